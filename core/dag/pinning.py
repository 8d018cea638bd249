"""Pins child workflows by content: each node of type workflow gets the hash of the definition that it will run.

The hash of a parent so contains what its children are, down to the last one, and a job never meets another child than
the one that its author saw. Children are pinned before their parents, so workflows cannot contain each other.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from core.dag.definition import Workflow
from core.dag.input_spec import violations
from core.dag.nodes import GLOBAL, WorkflowNode
from core.dag.output_names import never_there, tested, tested_by_choices
from core.dag.places import places
from core.dag.templates import Constant, TemplateFailed, is_constant
from core.dag.yaml_source import Path
from core.wording import did_you_mean, offered

MAX_DEPTH = 8
"""How deep child jobs may lie below the job that somebody submitted."""

Key = tuple[str, int]
Workflows = Mapping[Key, Workflow]
Trouble = tuple[Path, str]
BrokenName = Callable[[str, int | None], str | None]
"""Returns which broken file is about a workflow, and about a version of it when one is asked for."""


@dataclass(frozen=True, slots=True)
class _Use:
    """A node that runs another workflow, None when there is no such one."""

    node_id: str
    node: WorkflowNode
    child: Key | None


def default_of(versions: Iterable[Workflow]) -> Workflow | None:
    """Return the version marked `current`, else the highest."""
    found = sorted(versions, key=lambda workflow: workflow.version)
    return next((workflow for workflow in found if workflow.current), found[-1] if found else None)


def _none_is_broken(_workflow_id: str, _version: int | None) -> None:
    return None


def pin(
    workflows: Workflows, broken_name: BrokenName = _none_is_broken
) -> tuple[dict[Key, Workflow], dict[Key, list[Trouble]]]:
    """Return the workflows with their children pinned, and what is wrong with those that cannot be.

    Parents of what cannot be pinned are in neither: they are judged again once it is gone.
    """
    uses = {key: tuple(_uses(workflow, workflows)) for key, workflow in workflows.items()}
    troubles = {
        key: list(_troubles(workflow, uses[key], workflows, broken_name)) for key, workflow in workflows.items()
    }
    try:
        order = tuple(TopologicalSorter({key: _children(found) for key, found in uses.items()}).static_order())
    except CycleError as error:
        order = ()
        ring: Sequence[Key] = error.args[1]
        shown = " -> ".join(workflow_id for workflow_id, _ in ring)
        for key in ring[1:]:
            troubles[key].append((("nodes",), f"these workflows contain each other: {shown}"))
    pinned: dict[Key, Workflow] = {}
    depths: dict[Key, int] = {}
    asked: dict[Key, frozenset[str]] = {}
    for key in order:
        below = _children(uses[key])
        if troubles[key] or not below <= pinned.keys():
            continue
        depths[key] = max((depths[child] + 1 for child in below), default=0)
        if depths[key] > MAX_DEPTH:
            deep = f"its child workflows lie {depths[key]} deep; at most {MAX_DEPTH} are allowed"
            troubles[key].append((("nodes",), deep))
            continue
        if (own := workflows[key].concurrency) is not None and any(own.key in asked[child] for child in below):
            waits = f"the job holds the slot {own.key!r}, for which a child workflow of it would wait"
            troubles[key].append((("concurrency", "key"), waits))
            continue
        asked[key] = _fixed_keys(workflows[key]).union(*(asked[child] for child in below))
        hashes = {use.node_id: pinned[use.child].definition_hash for use in uses[key] if use.child is not None}
        pinned[key] = _with_pins(workflows[key], hashes)
    return pinned, {key: found for key, found in troubles.items() if found}


def same_but_for_pins(one: Workflow, other: Workflow) -> bool:
    """Return whether two definitions differ at most in the children that were pinned for them."""
    return _with_pins(one, {}).definition_hash == _with_pins(other, {}).definition_hash


def _uses(workflow: Workflow, workflows: Workflows) -> Iterator[_Use]:
    for node_id, node in workflow.nodes.items():
        if isinstance(node, WorkflowNode):
            versions = [one for (workflow_id, _), one in workflows.items() if workflow_id == node.workflow_id]
            child = default_of(one for one in versions if node.version in {None, one.version})
            yield _Use(node_id, node, None if child is None else (child.workflow_id, child.version))


def _fixed_keys(workflow: Workflow) -> frozenset[str]:
    """Return the keys of slots that are the same in every job of every workflow, none when one cannot be read."""
    try:
        programs = workflow.key_programs.items()
    except TemplateFailed:
        return frozenset()
    return frozenset(key for key, program in programs if key.startswith(GLOBAL) and isinstance(program, Constant))


def _children(uses: Iterable[_Use]) -> set[Key]:
    return {use.child for use in uses if use.child is not None}


def _troubles(
    workflow: Workflow, uses: Iterable[_Use], workflows: Workflows, broken_name: BrokenName
) -> Iterator[Trouble]:
    children: dict[str, Workflow] = {}
    for use in uses:
        path: Path = ("nodes", use.node_id)
        if use.child is None:
            version = "" if use.node.version is None else f" version {use.node.version}"
            file = broken_name(use.node.workflow_id, use.node.version)
            guess = did_you_mean(use.node.workflow_id, {name for name, _ in workflows} - {use.node.workflow_id})
            why = guess if file is None else f": its file {file} is broken"
            yield (*path, "workflow_id"), f"there is no usable workflow {use.node.workflow_id!r}{version}{why}"
        else:
            children[use.node_id] = workflows[use.child]
            yield from _input_troubles(use.node, workflows[use.child], (*path, "inputs"))
    yield from _output_troubles(workflow, children)


def _input_troubles(node: WorkflowNode, child: Workflow, path: Path) -> Iterator[Trouble]:
    """Yield what the child's inputs refuse already now; what comes from templates is checked when it has a value."""
    for name in sorted(node.inputs.keys() - child.inputs.keys()):
        known = offered(name, child.inputs)
        yield (*path, name), f"workflow {child.workflow_id} has no input {name!r}; it has {known}"
    for name, spec in child.inputs.items():
        value = node.inputs.get(name)
        if value is None and spec.is_required and not spec.nullable:
            yield path, f"workflow {child.workflow_id} needs the input {name!r}"
        elif value is not None and is_constant(value):
            for where, problem, _ in violations(spec, value, f"inputs.{name}"):
                yield (*path, name), f"{where} of workflow {child.workflow_id} {problem}"


def _output_troubles(workflow: Workflow, children: Mapping[str, Workflow]) -> Iterator[Trouble]:
    """Yield where an output of a child is read that it does not have; `children` are by node.

    What cannot be read is no trouble here: the loader has said it of files, and stored definitions stay in use.
    """
    if not children:
        return
    choices = tested_by_choices(workflow)
    for place in places(workflow):
        for source, lookups in place.readable_texts():
            tests = choices | tested(lookups)
            for lookup in lookups:
                child = children.get(str(lookup.chain[1])) if len(lookup.chain) > 1 else None
                problem = None if child is None else never_there(lookup, child.outputs, tests)
                if problem is not None:
                    yield place.path, f"{source}: {problem}"


def _with_pins(workflow: Workflow, hashes: Mapping[str, str]) -> Workflow:
    """Return a workflow whose nodes name these definitions and no others.

    Not by `model_copy`, which would keep the hash that was computed before.
    """
    definition = workflow.to_json()
    for node_id, node in definition["nodes"].items():
        node.pop("definition_hash", None)
        if node_id in hashes:
            node["definition_hash"] = hashes[node_id]
    return Workflow.from_json(definition)
