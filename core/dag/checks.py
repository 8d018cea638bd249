"""What a valid-looking workflow must also satisfy: names resolve, the shape is sound, templates can have values."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from core.dag.definition import ID_PATTERN, Workflow
from core.dag.graph import Cycle, edges_of
from core.dag.input_spec import violations
from core.dag.nodes import Backoff, EndNode, StartNode, TaskNode
from core.dag.problems import Report
from core.dag.templates import Lookup, Program, TemplateFailed, compile_value, lookups_of
from core.dag.yaml_source import Path
from core.handlers_catalog import HandlerSpec

JOB_FIELDS = frozenset(
    {"job_id", "workflow_id", "workflow_version", "run_no", "priority", "correlation_id", "created_at"}
)
_RESULT_FIELDS = frozenset({"output", "status"})


def check(workflow: Workflow, catalog: Mapping[str, HandlerSpec], queues: frozenset[str], report: Report) -> None:
    """Note every problem; later checks run only when the earlier ones found nothing."""
    _check_names(workflow, report)
    _check_inputs(workflow, report)
    _check_tasks(workflow, catalog, queues, report)
    if _check_references(workflow, report):
        _check_shape(workflow, report)
        if not report.problems:
            _check_templates(workflow, report)


def _check_names(workflow: Workflow, report: Report) -> None:
    rule = "must be letters, digits and single underscores, begin with a letter, at most 48 characters"
    if not re.match(ID_PATTERN, workflow.workflow_id):
        report.add(("workflow_id",), f"workflow_id {workflow.workflow_id!r} {rule}")
    for group, names in (("nodes", workflow.nodes), ("inputs", workflow.inputs)):
        for name in names:
            if not re.match(ID_PATTERN, name):
                report.add((group, name), f"the name {name!r} {rule}")


def _check_inputs(workflow: Workflow, report: Report) -> None:
    for name, spec in workflow.inputs.items():
        if spec.default is not None:
            for path, problem in violations(spec, spec.default, f"default of inputs.{name}"):
                report.add(("inputs", name, "default"), f"{path} {problem}")


def _check_tasks(
    workflow: Workflow, catalog: Mapping[str, HandlerSpec], queues: frozenset[str], report: Report
) -> None:
    for node_id, node in workflow.nodes.items():
        if isinstance(node, TaskNode):
            _check_task(node, ("nodes", node_id), catalog, queues, report)
            _check_retry(workflow, node_id, report)


def _check_task(
    node: TaskNode, path: Path, catalog: Mapping[str, HandlerSpec], queues: frozenset[str], report: Report
) -> None:
    if node.queue is not None and node.queue not in queues:
        report.add((*path, "queue"), f"queue {node.queue!r} is unknown; known are {', '.join(sorted(queues))}")
    spec = catalog.get(node.handler)
    if spec is None:
        report.add((*path, "handler"), f"handler {node.handler!r} is unknown; known are {', '.join(sorted(catalog))}")
        return
    fields = spec.params.model_fields
    if spec.params.model_config.get("extra") == "forbid":
        for name in sorted(node.params.keys() - fields.keys()):
            known = ", ".join(fields) or "none"
            report.add((*path, "params", name), f"handler {node.handler} has no param {name!r}; it has {known}")
    for name, info in fields.items():
        if info.is_required() and name not in node.params:
            report.add((*path, "params"), f"handler {node.handler} needs the param {name!r}")


def _check_retry(workflow: Workflow, node_id: str, report: Report) -> None:
    policy = workflow.retry_policies[node_id]
    path = ("nodes", node_id, "retry")
    if (policy.backoff is Backoff.SCHEDULE) != bool(policy.delays_seconds):
        report.add(path, "delays_seconds and backoff: schedule need each other")


def _check_references(workflow: Workflow, report: Report) -> bool:
    """Note edges to nodes that do not exist and return whether there were none."""
    found = False
    for node_id, node in workflow.nodes.items():
        named = [("next", target) for target in node.targets()]
        named += [("depends_on", source) for source in (node.depends_on.sources if node.depends_on else ())]
        for word, other in named:
            if other not in workflow.nodes:
                report.add(("nodes", node_id, word), f"{word} names {other!r}, which is not a node")
                found = True
    return not found


def _check_shape(workflow: Workflow, report: Report) -> None:
    starts = [key for key, node in workflow.nodes.items() if isinstance(node, StartNode)]
    if len(starts) != 1:
        report.add(("nodes",), f"there must be exactly one start node, found {len(starts)}")
        return
    if not any(isinstance(node, EndNode) for node in workflow.nodes.values()):
        report.add(("nodes",), "there must be at least one end node")
    incoming = edges_of(workflow.nodes)
    if incoming[starts[0]]:
        report.add(("nodes", starts[0]), f"a start node cannot follow {', '.join(incoming[starts[0]])}")
    _check_ends(workflow, incoming, report)
    try:
        graph = workflow.graph
    except Cycle as error:
        report.add(("nodes", error.ring[0]), error.detail.message)
        return
    for node_id in workflow.nodes.keys() - graph.descendants(starts) - set(starts):
        report.add(("nodes", node_id), f"cannot be reached from {starts[0]}")


def _check_ends(workflow: Workflow, incoming: Mapping[str, tuple[str, ...]], report: Report) -> None:
    for node_id, node in workflow.nodes.items():
        for source in incoming[node_id]:
            if isinstance(workflow.nodes[source], EndNode):
                report.add(("nodes", node_id), f"cannot follow the end node {source}")
        if isinstance(node, EndNode) and node.next:
            report.add(("nodes", node_id, "next"), "an end node points at nothing")


def _check_templates(workflow: Workflow, report: Report) -> None:
    for node_id, node in workflow.nodes.items():
        if isinstance(node, TaskNode):
            visible = workflow.graph.ancestors[node_id]
            for name, value in node.params.items():
                _check_value(value, ("nodes", node_id, "params", name), visible, workflow, report)
    for name, value in workflow.outputs.items():
        _check_value(value, ("outputs", name), frozenset(workflow.nodes), workflow, report)


def _check_value(value: Any, path: Path, visible: frozenset[str], workflow: Workflow, report: Report) -> None:
    try:
        program: Program = compile_value(value)
    except TemplateFailed as error:
        report.add(path, error.detail.message)
        return
    for lookup, source in lookups_of(program):
        for problem in _lookup_problems(lookup, visible, workflow):
            report.add(path, f"{source}: {problem}")


def _lookup_problems(lookup: Lookup, visible: frozenset[str], workflow: Workflow) -> Iterator[str]:
    root, *keys = lookup.chain
    match root:
        case "inputs":
            if keys and keys[0] not in workflow.inputs:
                yield f"{lookup} names no input; known are {', '.join(workflow.inputs) or 'none'}"
        case "job":
            if not keys or keys[0] not in JOB_FIELDS:
                yield f"{lookup} is not known; job has {', '.join(sorted(JOB_FIELDS))}"
        case "nodes":
            yield from _node_problems(lookup, keys, visible, workflow)
        case _:
            yield f"{root!r} is not known; templates see inputs, nodes and job"


def _node_problems(lookup: Lookup, keys: list[str | int], visible: frozenset[str], workflow: Workflow) -> Iterator[str]:
    if len(keys) < 2 or keys[1] not in _RESULT_FIELDS:
        yield f"{lookup} must say nodes.<id>.output or nodes.<id>.status"
    elif keys[0] not in workflow.nodes:
        yield f"{keys[0]!r} is not a node"
    elif keys[0] not in visible:
        yield f"node {keys[0]} is not upstream, so its output cannot be known here"
