"""Every place of a workflow where a template or a condition stands, and what can be seen from there."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from typing import Any

from core.dag.condition_syntax import ConditionFailed
from core.dag.conditions import parse_condition
from core.dag.definition import Workflow
from core.dag.nodes import ConditionalNode, FanOutNode, Node, TaskNode, Work, WorkflowNode
from core.dag.templates import Expression, Lookup, TemplateFailed, compile_value, lookups_of
from core.dag.yaml_source import Path

ROOTS = frozenset({"inputs", "nodes", "job"})
ITEM_ROOTS = ROOTS | {"item", "index"}
JOB_ROOTS = frozenset({"inputs", "job"})


class Kind(StrEnum):
    """How a text is read."""

    TEMPLATE = "template"
    EXPRESSION = "expression"
    """One `{{ … }}` and nothing else."""
    CONDITION = "condition"
    COMPARISON = "comparison"
    """A condition that may leave left sides out."""


@dataclass(frozen=True, slots=True)
class Place:
    """One value with templates, or one condition."""

    path: Path
    value: Any
    kind: Kind = Kind.TEMPLATE
    node_id: str | None = None
    """The node that reads it; None for what belongs to the job."""
    roots: frozenset[str] = ROOTS

    def lookups(self) -> Iterator[tuple[Lookup, str]]:
        """Yield each static lookup with the source it stands in. Raises `TemplateFailed` and `ConditionFailed`."""
        match self.kind:
            case Kind.TEMPLATE:
                yield from lookups_of(compile_value(self.value))
            case Kind.EXPRESSION:
                program = compile_value(self.value)
                if not isinstance(program, Expression):
                    raise TemplateFailed(f"{self.value} is not one {{{{ … }}}}")
                yield from lookups_of(program)
            case Kind.CONDITION | Kind.COMPARISON:
                condition = parse_condition(self.value, field=self.kind is Kind.COMPARISON)
                for operand in condition.operands:
                    yield from lookups_of(operand.expression)

    def texts(self) -> Iterator[tuple[str, tuple[Lookup, ...]]]:
        """Yield the source of each text with its static lookups. Raises `TemplateFailed` and `ConditionFailed`."""
        for source, found in groupby(self.lookups(), itemgetter(1)):
            yield source, tuple(lookup for lookup, _ in found)

    def readable_texts(self) -> tuple[tuple[str, tuple[Lookup, ...]], ...]:
        """Return `texts`, none when they cannot be read: the loader says so, and what is stored was read once."""
        try:
            return tuple(self.texts())
        except (TemplateFailed, ConditionFailed):
            return ()


def places(workflow: Workflow) -> Iterator[Place]:
    """Yield every place, in no particular order."""
    for node_id, node in workflow.nodes.items():
        yield from _node_places(node_id, node)
    for name, value in workflow.outputs.items():
        yield Place(("outputs", name), value)
    if workflow.concurrency is not None:
        yield Place(("concurrency", "key"), workflow.concurrency.key, roots=JOB_ROOTS)


def _node_places(node_id: str, node: Node) -> Iterator[Place]:
    path = ("nodes", node_id)
    if node.when is not None:
        yield Place((*path, "when"), node.when, Kind.CONDITION, node_id)
    match node:
        case TaskNode():
            yield from _work_places(node_id, node, path, ROOTS, ROOTS)
        case FanOutNode():
            yield Place((*path, "source"), node.source, Kind.EXPRESSION, node_id)
            key_roots = ITEM_ROOTS if node.batch_size == 1 else ROOTS
            yield from _work_places(node_id, node.task, (*path, "task"), ITEM_ROOTS, key_roots)
        case WorkflowNode():
            yield from (Place((*path, "inputs", name), value, node_id=node_id) for name, value in node.inputs.items())
        case ConditionalNode():
            yield from _choice_places(node_id, node, path)


def _work_places(
    node_id: str, work: Work, path: Path, roots: frozenset[str], key_roots: frozenset[str]
) -> Iterator[Place]:
    """Yield the places of a task; the key of a batch sees no item, since there are several."""
    for name, value in work.params.items():
        yield Place((*path, "params", name), value, node_id=node_id, roots=roots)
    if work.concurrency is not None:
        yield Place((*path, "concurrency", "key"), work.concurrency.key, node_id=node_id, roots=key_roots)


def _choice_places(node_id: str, node: ConditionalNode, path: Path) -> Iterator[Place]:
    if node.condition is not None:
        yield Place((*path, "condition"), node.condition, Kind.CONDITION, node_id)
    kind = Kind.CONDITION
    if node.condition_field is not None:
        kind = Kind.COMPARISON
        yield Place((*path, "condition_field"), node.condition_field, Kind.EXPRESSION, node_id)
    for number, branch in enumerate(node.branches):
        if branch.condition is not None:
            yield Place((*path, "branches", number, "condition"), branch.condition, kind, node_id)
