"""What is said of outputs before a run is what runs put out."""

import pytest

from core.dag.nodes import Aggregation
from core.dag.output_names import output_names
from core.handlers_catalog import CATALOG
from tests.unit.core.dag.fan_outs import workflow_with
from tests.unit.core.dag.harness import World, workflow_of


def names_of(world: World, node_id: str) -> frozenset[str] | None:
    return output_names(world.workflow.nodes[node_id], CATALOG)


@pytest.mark.parametrize("aggregation", list(Aggregation))
@pytest.mark.parametrize("items", [[], [1, 2]])
def test_fan_outs_and_fan_ins_put_out_what_is_said(aggregation: Aggregation, items: list[int]) -> None:
    world = World(workflow_with({}, {"aggregation": aggregation}), {"items": items})
    for number in range(len(items)):
        world.complete(f"many__{number}")
    for node_id in ("many", "join"):
        assert frozenset(world.node(node_id).output or {}) == names_of(world, node_id)


def test_gates_conditionals_and_the_rest_put_out_what_is_said() -> None:
    nodes = {
        "start": {"type": "start", "next": ["choice"]},
        "choice": {"type": "conditional", "condition": "1 == 1", "on_true": ["gate"]},
        "gate": {"type": "gate", "next": ["end"]},
        "end": {"type": "end"},
    }
    world = World(workflow_of(nodes))
    world.decide("gate", "approved")
    for node_id in nodes:
        assert frozenset(world.node(node_id).output or {}) == names_of(world, node_id)
