"""Advice on workflows that load: what would fail, or surprise, in some of their runs only."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from core.dag.branch_cover import uncovered
from core.dag.certainty import Certain, certain_at, certain_at_end, completed_where, may_lack_output
from core.dag.checks import work_path
from core.dag.condition_types import doubts
from core.dag.conditions import parse_condition, shown
from core.dag.definition import Workflow
from core.dag.graph import rule_of
from core.dag.input_spec import InputSpec
from core.dag.loader import load_workflow
from core.dag.nodes import ConditionalNode, JoinRule, WorkflowNode
from core.dag.other_languages import brackets_in
from core.dag.places import Kind, Place, places
from core.dag.problems import DefinitionError, Problem, Report
from core.dag.retry import contradictions
from core.dag.templates import Expression, Lookup, compile_value
from core.dag.value_types import misfit
from core.dag.yaml_source import Path, read_yaml
from core.wording import shorten

RUNS_ITSELF: Final = "a workflow cannot contain itself, as this one does unless another version of it is the default"


def examine(text: str, filename: str) -> tuple[Workflow | None, tuple[Problem, ...]]:
    """Return the workflow of a file, None when it does not load, and everything that its author should look at."""
    try:
        workflow = load_workflow(text, filename)
    except DefinitionError as error:
        return None, error.problems
    report = Report(filename, read_yaml(text))
    lint(workflow, report)
    return workflow, tuple(report.problems)


def lint(workflow: Workflow, report: Report) -> None:
    """Note everything that its author should look at."""
    certain, at_end = certain_at(workflow), certain_at_end(workflow)
    for place in places(workflow):
        known = at_end if place.node_id is None else certain[place.node_id]
        plain, handled = _reads(place)
        for node_id in sorted(plain - handled - known - _guarded(workflow, place, certain)):
            if not _is_last_resort(workflow, place, node_id, handled, known):
                report.add(place.path, _advice(node_id))
        if (wrong := misfit(workflow, place)) is not None:
            report.add(place.path, wrong)
        for said in dict.fromkeys(_idle_defaults(workflow, place)):
            report.add(place.path, said)
        if place.kind is Kind.TEMPLATE:
            for said in dict.fromkeys(filter(None, map(brackets_in, _texts(place.value)))):
                report.add(place.path, said)
    for node_id, node in workflow.nodes.items():
        if isinstance(node, ConditionalNode) and (node.when is not None or node.best_effort):
            word = "when" if node.when is not None else "best_effort"
            report.add(("nodes", node_id, word), f"a conditional with {word} may choose nothing; then all its ways run")
        if isinstance(node, WorkflowNode) and (node.workflow_id, node.version) == (workflow.workflow_id, None):
            report.add(("nodes", node_id, "workflow_id"), RUNS_ITSELF)
    _check_conditions(workflow, report)
    for path, advice in sorted(_retry_advice(workflow) | _timeout_advice(workflow)):
        report.add(path, advice)


def _check_conditions(workflow: Workflow, report: Report) -> None:
    """Note conditions that no values fit, and conditionals that have no branch for some."""
    for place in places(workflow):
        if place.kind in {Kind.CONDITION, Kind.COMPARISON}:
            by_field = place.kind is Kind.COMPARISON
            condition = parse_condition(place.value, field=by_field)
            for doubt in doubts(condition.root, workflow.inputs, _field_of(workflow, place) if by_field else None):
                report.add(place.path, f"{dotted(place.path)} is {shorten(' '.join(place.value.split()))}: {doubt}")
    for node_id, node in workflow.nodes.items():
        values = uncovered(node, workflow.inputs) if isinstance(node, ConditionalNode) and node.branches else None
        if values is not None:
            report.add(("nodes", node_id, "branches"), _no_branch(node_id, values))


def _retry_advice(workflow: Workflow) -> set[tuple[tuple[str, ...], str]]:
    """Return what contradicts itself in retries, where it is written; what is said for all nodes only once."""
    found = set()
    for node_id, policy in workflow.retry_policies.items():
        node = workflow.nodes[node_id]
        own = node.retry if isinstance(node, WorkflowNode) else workflow.works[node_id].retry
        path = ("defaults", "retry") if own is None else (*map(str, work_path(workflow, node_id)), "retry")
        found |= {(path, doubt) for doubt in contradictions(policy)}
    return found


def _timeout_advice(workflow: Workflow) -> set[tuple[tuple[str, ...], str]]:
    """Return run times of tasks that the deadline of the job ends before, where they are written."""
    written = {
        (*map(str, work_path(workflow, node_id)), "timeout_seconds"): work.timeout_seconds
        for node_id, work in workflow.works.items()
    } | {("defaults", "timeout_seconds"): workflow.defaults.timeout_seconds}
    deadline = workflow.deadline_seconds or math.inf
    said = f"is more than the {deadline:g} of deadline_seconds, which ends the job before"
    return {(path, f"timeout_seconds {time:g} {said}") for path, time in written.items() if (time or 0) > deadline}


def _idle_defaults(workflow: Workflow, place: Place) -> Iterator[str]:
    """Yield advice on each `inputs.NAME | default(…)`: a declared input is always there, if only as null."""
    for lookup, _ in place.lookups():
        match lookup.chain:
            case ("inputs", name) if lookup.keeps_null and (spec := workflow.inputs.get(str(name))) is not None:
                yield f"default(…) never stands in for {lookup}, {_instead_of_default(lookup, spec)}"


def _instead_of_default(lookup: Lookup, spec: InputSpec) -> str:
    if spec.is_required:
        return "which is always given, since it is required: leave default(…) out"
    if spec.default is not None:
        return f"which is {shown(spec.default)} when it was left out, as the input declares: leave default(…) out"
    return (
        "which is null when it was left out: say `default` where the "
        f"input is declared, or write {{{{ … if {lookup} is none else {lookup} }}}}"
    )


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value, at any depth."""
    match value:
        case str():
            yield value
        case dict():
            for item in value.values():
                yield from _texts(item)
        case list() | tuple():
            for item in value:
                yield from _texts(item)


def _field_of(workflow: Workflow, place: Place) -> Expression | None:
    node = workflow.nodes[place.node_id or ""]
    program = compile_value(node.condition_field) if isinstance(node, ConditionalNode) else None
    return program if isinstance(program, Expression) else None


def _no_branch(node_id: str, values: Mapping[str, Any]) -> str:
    where = " and ".join(f"{name} = {shown(value)}" for name, value in values.items())
    return (
        f"nodes.{node_id}.branches has no default, and when no branch holds{f', as for {where},' if where else ''} "
        "the node fails with NO_BRANCH; add a branch with default: true"
    )


def dotted(path: Path) -> str:
    """Return a path as errors of jobs name it: `nodes.route.branches[1].condition`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def _reads(place: Place) -> tuple[frozenset[str], frozenset[str]]:
    """Return the nodes that are read, and those with care: default(…), `is defined`, or a look at the status beside."""
    lookups = [lookup for lookup, _ in place.lookups() if lookup.chain[0] == "nodes"]
    careful = [lookup for lookup in lookups if lookup.guarded or lookup.chain[2] == "status"]
    return frozenset(str(one.chain[1]) for one in lookups), frozenset(str(one.chain[1]) for one in careful)


def _guarded(workflow: Workflow, place: Place, certain: Certain) -> frozenset[str]:
    """Return the nodes that have completed where the `when` of a node held, before which nothing else is read."""
    if place.node_id is None or place.path[-1] == "when":
        return frozenset()
    when = workflow.when_conditions.get(place.node_id)
    guards = frozenset(filter(None, map(completed_where, when.conjuncts() if when else ())))
    return guards.union(*(certain[guard] for guard in guards))


def _is_last_resort(
    workflow: Workflow, place: Place, node_id: str, handled: frozenset[str], known: frozenset[str]
) -> bool:
    """Return whether a node is read only when no other way led on, as in `a | default(b)` behind any_of of both."""
    joins = known if place.node_id is None else known | {place.node_id}
    return any(_leads_here(workflow, join, node_id, handled) for join in joins)


def _leads_here(workflow: Workflow, join: str, node_id: str, handled: frozenset[str]) -> bool:
    """Return whether a node has completed when a join runs for which none of some others have."""
    if rule_of(workflow.nodes[join]) is JoinRule.ALL_DONE:
        return False
    ways = frozenset(workflow.graph.incoming[join])
    return node_id in ways <= handled | {node_id} and not any(may_lack_output(workflow.nodes[way]) for way in ways)


def _advice(node_id: str) -> str:
    return (
        f"node {node_id} may have no output here, since it can be skipped or fail: "
        f"read it through default(…), `is defined` or nodes.{node_id}.status"
    )
