"""Names at the top of what nodes put out, as far as they are known before any run."""

from collections.abc import Collection, Mapping
from typing import Final

from core.dag.nodes import (
    Aggregation,
    ConditionalNode,
    EndNode,
    FanInNode,
    FanOutNode,
    GateNode,
    Node,
    StartNode,
    TaskNode,
)
from core.dag.templates import Lookup
from core.handlers_catalog import HandlerSpec
from core.wording import offered

_OF_ITEMS: Final = frozenset({"succeeded", "failed", "skipped", "failures"})
_AGGREGATES: Final[Mapping[Aggregation, frozenset[str]]] = {
    Aggregation.COLLECT: frozenset({"results", "count"}),
    Aggregation.CONCAT: frozenset({"results", "count"}),
    Aggregation.SUM: frozenset({"total", "count"}),
    Aggregation.COUNT: frozenset({"count"}),
    Aggregation.FIRST: frozenset({"result", "count"}),
    Aggregation.LAST: frozenset({"result", "count"}),
}


def output_names(node: Node, catalog: Mapping[str, HandlerSpec]) -> frozenset[str] | None:
    """Return the names that the output of a node may have at its top; None when only a run can tell."""
    match node:
        case StartNode() | EndNode():
            return frozenset()
        case TaskNode():
            return _declared(catalog.get(node.handler))
        case ConditionalNode():
            return frozenset({"taken", "condition", "value"})
        case GateNode():
            return frozenset({"decision", "actor", "reason", "data"})
        case FanOutNode():
            return _OF_ITEMS | {"fan_out_count", "child_node_ids"}
        case FanInNode():
            return _OF_ITEMS | _AGGREGATES[node.aggregation]
        case _:
            return None


def _declared(spec: HandlerSpec | None) -> frozenset[str] | None:
    if spec is None or spec.output.model_config.get("extra") == "allow":
        return None
    return frozenset(info.serialization_alias or name for name, info in spec.output.model_fields.items())


def never_there(lookup: Lookup, names: Collection[str] | None) -> str | None:
    """Return what is wrong with a look at a node's output that has these names, None when it may find something."""
    _, node_id, field, *keys = lookup.chain
    if names is None or field != "output" or not keys or lookup.guarded or keys[0] in names:
        return None
    return f"{lookup} is never there; the output of {node_id} has {offered(keys[0], sorted(names), 'nothing in it')}"
