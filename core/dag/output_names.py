"""Names at the top of what nodes put out, as far as they are known before any run."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from core.dag.definition import Workflow
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
from core.dag.places import Kind, places
from core.dag.templates import Lookup
from core.handlers_catalog import HandlerSpec
from core.wording import offered

Tests = frozenset[tuple[str | int, ...]]
"""Names in outputs that are tested, as chains; the chain of an output stands for every name in it."""
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


def tested(lookups: Iterable[Lookup]) -> Tests:
    """Return what is looked at under `default(…)` or `is defined`, and outputs as a whole, as in `'b' in …`."""
    return frozenset(one.chain[:4] for one in lookups if one.guarded is (len(one.chain) > 3))


def tested_by_choices(workflow: Workflow) -> Tests:
    """Return what conditions and sources of fan-outs test: by them it may depend whether others are read at all."""
    choices = (place for place in places(workflow) if place.kind is not Kind.TEMPLATE)
    return tested(lookup for place in choices for _, lookups in place.readable_texts() for lookup in lookups)


def never_there(lookup: Lookup, names: Collection[str] | None, tests: Tests) -> str | None:
    """Return what is wrong with a look at a node's output that has these names, None when it may find something.

    Nothing is said of a name that the same text tests, or any condition or source of the workflow.
    """
    match lookup.chain:
        case ("nodes", node_id, "output", key, *_) if names is not None and key not in names and not lookup.guarded:
            if tests.isdisjoint({lookup.chain[:3], lookup.chain[:4]}):
                known = offered(key, sorted(names), "nothing in it")
                return f"{lookup} is never there; the output of {node_id} has {known}"
    return None
