"""What a valid-looking workflow must also satisfy, everything that is wrong with it noted together."""

import re
from collections.abc import Mapping

from core.dag.check_params import wrong_params
from core.dag.check_shape import check_shape
from core.dag.check_values import check_values
from core.dag.definition import ID_PATTERN, Workflow
from core.dag.input_spec import violations
from core.dag.nodes import GLOBAL, Backoff, FanOutNode, Work
from core.dag.problems import Report
from core.dag.yaml_source import Path
from core.handlers_catalog import HandlerSpec
from core.wording import offered


def check(workflow: Workflow, catalog: Mapping[str, HandlerSpec], queues: frozenset[str], report: Report) -> None:
    """Note every problem."""
    _check_names(workflow, report)
    _check_inputs(workflow, report)
    for node_id, work in workflow.works.items():
        _check_work(work, work_path(workflow, node_id), catalog, queues, report)
    _check_retries(workflow, report)
    _check_slots(workflow, report)
    graph = check_shape(workflow, report)
    check_values(workflow, graph, catalog, report)


def work_path(workflow: Workflow, node_id: str) -> Path:
    """Return where the work of a node is written."""
    inner = ("task",) if isinstance(workflow.nodes[node_id], FanOutNode) else ()
    return ("nodes", node_id, *inner)


def _check_names(workflow: Workflow, report: Report) -> None:
    rule = "must be letters, digits and single underscores, begin with a letter, at most 48 characters"
    if not re.match(ID_PATTERN, workflow.workflow_id):
        report.add(("workflow_id",), f"workflow_id {workflow.workflow_id!r} {rule}")
    if f"{workflow.workflow_id}:" == GLOBAL:
        message = f"workflow_id cannot be {workflow.workflow_id!r}: so begin keys of slots that all workflows share"
        report.add(("workflow_id",), message)
    for group, names in (("nodes", workflow.nodes), ("inputs", workflow.inputs)):
        for name in names:
            if not re.match(ID_PATTERN, name):
                report.add((group, name), f"the name {name!r} {rule}")


def _check_inputs(workflow: Workflow, report: Report) -> None:
    for name, spec in workflow.inputs.items():
        if spec.default is not None:
            for path, problem, _ in violations(spec, spec.default, f"default of inputs.{name}"):
                report.add(("inputs", name, "default"), f"{path} {problem}")


def _check_work(
    work: Work, path: Path, catalog: Mapping[str, HandlerSpec], queues: frozenset[str], report: Report
) -> None:
    if work.queue is not None and work.queue not in queues:
        report.add(
            (*path, "queue"), f"queue {work.queue!r} is unknown; known are {offered(work.queue, sorted(queues))}"
        )
    spec = catalog.get(work.handler)
    if spec is None:
        report.add(
            (*path, "handler"),
            f"handler {work.handler!r} is unknown; known are {offered(work.handler, sorted(catalog))}",
        )
        return
    fields = spec.params.model_fields
    if spec.params.model_config.get("extra") == "forbid":
        for name in sorted(work.params.keys() - fields.keys()):
            known = offered(name, fields)
            report.add((*path, "params", name), f"handler {work.handler} has no param {name!r}; it has {known}")
    for name, info in fields.items():
        if info.is_required() and name not in work.params:
            report.add((*path, "params"), f"handler {work.handler} needs the param {name!r}")
    for where, problem in wrong_params(spec, work.params):
        report.add((*path, "params", *where), problem)


def _check_retries(workflow: Workflow, report: Report) -> None:
    for node_id, policy in workflow.retry_policies.items():
        if (policy.backoff is Backoff.SCHEDULE) != bool(policy.delays_seconds):
            path = (*work_path(workflow, node_id), "retry")
            report.add(path, "delays_seconds and backoff: schedule need each other")


def _check_slots(workflow: Workflow, report: Report) -> None:
    """Note tasks that would wait for the slot that their own job holds."""
    for node_id, work in workflow.works.items():
        if work.concurrency and workflow.concurrency and work.concurrency.key == workflow.concurrency.key:
            message = f"the job itself holds the slot {work.concurrency.key!r}: a task of it would wait for itself"
            report.add((*work_path(workflow, node_id), "concurrency", "key"), message)
