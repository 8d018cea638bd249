"""Places the nodes of a graph in layers, so that few edges cross: each node one layer below its lowest source."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.dag.graph import Graph

_SWEEPS = 4

Edge = tuple[str, str]
Spot = tuple[int, str]
"""A layer, and a node in it or the edge that passes through it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Spots from left to right by layer, and the spots that each edge goes through."""

    layers: tuple[tuple[Spot, ...], ...]
    routes: Mapping[Edge, tuple[Spot, ...]]


def layout(graph: Graph) -> Layout:
    """Return a layout; the same graph is always laid out in the same way."""
    depth: dict[str, int] = {}
    for node_id in graph.order:
        depth[node_id] = 1 + max((depth[source] for source in graph.incoming[node_id]), default=-1)
    edges = [(source, target) for target in graph.order for source in graph.incoming[target]]
    routes = {edge: _route(edge, depth) for edge in edges}
    layers: list[list[Spot]] = [[] for _ in range(max(depth.values()) + 1)]
    for spot in dict.fromkeys([*((depth[key], key) for key in graph.order), *(s for r in routes.values() for s in r)]):
        layers[spot[0]].append(spot)
    _untangle(layers, list(routes.values()))
    return Layout(tuple(map(tuple, layers)), routes)


def _route(edge: Edge, depth: Mapping[str, int]) -> tuple[Spot, ...]:
    source, target = edge
    between = [(layer, f"{source} > {target}") for layer in range(depth[source] + 1, depth[target])]
    return ((depth[source], source), *between, (depth[target], target))


def _untangle(layers: list[list[Spot]], routes: Sequence[Sequence[Spot]]) -> None:
    """Order each layer by where its neighbours above, then below, stand on average."""
    above: dict[Spot, list[Spot]] = {}
    below: dict[Spot, list[Spot]] = {}
    for route in routes:
        for upper, lower in itertools.pairwise(route):
            below.setdefault(upper, []).append(lower)
            above.setdefault(lower, []).append(upper)
    for _ in range(_SWEEPS):
        for neighbours, order in ((above, layers[1:]), (below, layers[-2::-1])):
            for layer in order:
                _sort(layer, neighbours, {spot: number for row in layers for number, spot in enumerate(row)})


def _sort(layer: list[Spot], neighbours: Mapping[Spot, Sequence[Spot]], at: Mapping[Spot, int]) -> None:
    def mean(spot: Spot) -> float:
        near = neighbours.get(spot, (spot,))
        return sum(at[other] for other in near) / len(near)

    layer.sort(key=mean)
