"""How a workflow must end, by the words of the language page and nothing else: the reference model.

It is written from `workflow-language.md`, knows no database, no time and no attempts, and shares no code with the
evaluator. `plan` says of each task whether it succeeds in the end.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]

PASSED, DEAD, FAILED = "passed", "dead", "failed"


@dataclass(frozen=True, slots=True)
class End:
    """Status of every node (`SKIPPED` with its reason) and of the job."""

    nodes: Mapping[str, str]
    job: str
    warned: frozenset[str]


def predict(definition: Json, plan: Mapping[str, bool]) -> End:
    """Return how a job of this definition ends when `on_failure` is drain and nobody intervenes.

    Conditions are lone inputs with boolean defaults.
    """
    nodes: Mapping[str, Json] = definition["nodes"]
    inputs = {name: spec["default"] for name, spec in definition.get("inputs", {}).items()}
    ends: dict[str, str] = {}
    for node_id in _in_order(nodes):
        node = nodes[node_id]
        edges = [_edge(nodes[one], ends[one], node_id, inputs) for one in sources_of(nodes, node_id)]
        ends[node_id] = _skipped(node, edges, inputs) or ("COMPLETED" if plan.get(node_id, True) else "FAILED")
    failed = {node_id for node_id, end in ends.items() if end == "FAILED"}
    warned = frozenset(node_id for node_id in failed if nodes[node_id].get("best_effort"))
    return End(ends, "FAILED" if failed - warned else "COMPLETED", warned)


def _holds(condition: str, inputs: Mapping[str, bool]) -> bool:
    return inputs[condition.removeprefix("{{ inputs.").removesuffix(" }}")]


def _edge(source: Json, end: str, target: str, inputs: Mapping[str, bool]) -> str:
    if source.get("type") == "conditional" and end == "COMPLETED":
        chosen = "on_true" if _holds(source["condition"], inputs) else "on_false"
        choices = [*source.get("on_true", []), *source.get("on_false", [])]
        return DEAD if target in choices and target not in source.get(chosen, []) else PASSED
    if end in {"COMPLETED", "SKIPPED bypassed"} or (end == "FAILED" and source.get("best_effort")):
        return PASSED
    return DEAD if end == "SKIPPED not_taken" else FAILED


def _skipped(node: Json, edges: list[str], inputs: Mapping[str, bool]) -> str | None:
    """Return why a node is skipped, None when it runs."""
    if edges and all(edge == DEAD for edge in edges):
        return "SKIPPED not_taken"
    rule = _rule(node)
    if rule == "all_of" and FAILED in edges:
        return "SKIPPED upstream_failed"
    if rule == "any_of" and edges and PASSED not in edges:
        return "SKIPPED upstream_failed"
    return "SKIPPED bypassed" if "when" in node and not _holds(node["when"], inputs) else None


def _rule(node: Json) -> str:
    join = node.get("depends_on")
    return next(iter(join)) if isinstance(join, Mapping) else "all_of"


def sources_of(nodes: Mapping[str, Json], node_id: str) -> list[str]:
    """Return the nodes whose end a node waits for."""
    join = nodes[node_id].get("depends_on", [])
    named = list(next(iter(join.values()))) if isinstance(join, Mapping) else _listed(join)
    return [source for source in nodes if source in named or node_id in _targets(nodes[source])]


def _targets(node: Json) -> list[str]:
    return [one for word in ("next", "on_true", "on_false") for one in _listed(node.get(word, []))]


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _in_order(nodes: Mapping[str, Json]) -> list[str]:
    """Return every node after its sources."""
    order: list[str] = []
    while len(order) < len(nodes):
        free = [key for key in nodes if key not in order and set(sources_of(nodes, key)) <= set(order)]
        if not free:
            raise ValueError("the nodes form a cycle")
        order.extend(free)
    return order
