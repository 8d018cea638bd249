"""`retry failed` and `rerun`: the only orders that start a job anew that has ended.

The nodes and all that follows from them become PENDING again, under the next `run_no`. Attempt numbers go on growing,
so nothing that an earlier run's worker still says is taken for an answer of this one.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from core.dag.check_params import wrong_params
from core.dag.json_values import NotJson, as_stored
from core.dag.run import Run
from core.errors import Conflict, ParameterInvalid
from core.ids import canonical_json, split_task_id
from core.models.engine import NodeState
from core.statuses import NodeStatus, SkipReason

RETRY: Final = "Retry the job: what failed or was cancelled starts anew, with all that follows."
_UNSUCCESSFUL = frozenset({NodeStatus.FAILED, NodeStatus.CANCELLED})


def retry_failed(run: Run, by: Mapping[str, Any]) -> None:
    """Start every failed and cancelled node anew, with all that follows.

    Raises:
        Conflict: NOTHING_FAILED; CHILD_JOB; or whatever keeps this job from being started again.
    """
    _check_reopenable(run)
    roots = [node_id for node_id in run.workflow.graph.order if is_unsuccessful(run.nodes[node_id])]
    if not roots:
        raise Conflict(
            f"the job is {run.job.status} and no node of it failed",
            code="NOTHING_FAILED",
            value=run.job.status.value,
            remediation="Rerun it from one of its nodes instead.",
        )
    _start_anew(run, roots, "job_retried", by)


def is_unsuccessful(node: NodeState) -> bool:
    """Return whether a retry starts a node anew."""
    return node.status in _UNSUCCESSFUL or node.skip_reason is SkipReason.UPSTREAM_FAILED


def rerun(run: Run, node_id: str, params: Mapping[str, Any] | None, by: Mapping[str, Any]) -> None:
    """Start a node anew, with all that follows; `params` are put over its own from now on, {} takes earlier ones off.

    Raises:
        Conflict: NODE_NOT_STARTED; CHILD_JOB; or whatever keeps this job from being started again.
        ParameterInvalid: The node takes no such params, or none of such values.
    """
    _check_reopenable(run)
    stored = None if params is None else _fit_params(run, node_id, params)
    if params is None or run.nodes[node_id].status is not NodeStatus.PENDING:
        _check_began(run, node_id)
    _start_anew(run, [node_id], "job_rerun", {**by, "node_id": node_id})
    if stored is not None:
        run.override_params(node_id, stored)


def _check_began(run: Run, node_id: str) -> None:
    """Refuse a node that would be skipped again: what kept it from starting is not started anew with it."""
    node = run.nodes[node_id]
    if node.skip_reason is SkipReason.NOT_TAKEN:
        choosers = " and ".join(_choosers(run, node_id))
        message = f"{node_id} has not run: {choosers} took another way"
        remediation: str | None = f"Rerun {choosers}, or what makes the values that are compared there."
    elif _never_began(node):
        message = f"{node_id} has not run yet"
        remediation = None if node.status is NodeStatus.PENDING else RETRY
    else:
        return
    raise Conflict(message, code="NODE_NOT_STARTED", value=node.status.value, remediation=remediation)


def _never_began(node: NodeState) -> bool:
    """Return whether a node waits for others, did when the job was cancelled, or waited for what failed."""
    waited = node.status is NodeStatus.CANCELLED and node.ready_at is None and node.attempt == 0
    return node.status is NodeStatus.PENDING or waited or node.skip_reason is SkipReason.UPSTREAM_FAILED


def _choosers(run: Run, node_id: str) -> list[str]:
    """Return the conditionals that left out a node which was not taken, in the order of the graph."""
    left_out: set[str] = {node_id}
    found: set[str] = set()
    for key in reversed(run.workflow.graph.order):
        for source in run.workflow.graph.incoming[key] if key in left_out else ():
            (left_out if run.nodes[source].skip_reason is SkipReason.NOT_TAKEN else found).add(source)
    return [key for key in run.workflow.graph.order if key in found]


def _check_reopenable(run: Run) -> None:
    if (parent := run.job.parent_task_id) is not None:
        job_id, node_id, _ = split_task_id(parent) or (parent, "?", 0)
        raise Conflict(
            f"the job runs for node {node_id} of job {job_id}",
            code="CHILD_JOB",
            value=run.job.status.value,
            remediation=f"Order it there: `geodag job rerun {job_id} {node_id}`, or `geodag job retry {job_id}`.",
        )
    if (refusal := run.state.reopen_refusal) is not None:
        raise Conflict(
            refusal.message,
            code=refusal.code,
            field=refusal.field,
            value=refusal.value,
            remediation=refusal.remediation,
        )


def _fit_params(run: Run, node_id: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return params as they will be read; raises for those that the node does not take."""
    work = run.workflow.works.get(node_id)
    if work is None:
        raise ParameterInvalid(f"{node_id} takes no params: it runs no handler", field="params")
    try:
        stored: dict[str, Any] = as_stored(dict(params), "params")
    except NotJson as error:
        raise ParameterInvalid(error.detail.message, field=error.detail.field) from error
    for name, value in stored.items():
        if "{{" in canonical_json(value):
            message = f"params.{name} has a {{{{ … }}}}, and params of a rerun are values, which nobody renders"
            raise ParameterInvalid(message, field=f"params.{name}")
    if (spec := run.catalog.get(work.handler)) is None:
        return stored
    known, strict = spec.params.model_fields, spec.params.model_config.get("extra") == "forbid"
    if strict and (unknown := sorted(params.keys() - known.keys())):
        message = f"{work.handler} has no param {unknown[0]!r}; it has {', '.join(known) or 'none'}"
        raise ParameterInvalid(message, field=f"params.{unknown[0]}")
    for path, problem in wrong_params(spec, {**work.params, **stored}):
        if path[0] in params:
            raise ParameterInvalid(problem, field=".".join(("params", *map(str, path))))
    return stored


def _start_anew(run: Run, roots: Iterable[str], event: str, by: Mapping[str, Any]) -> None:
    roots = list(roots)
    again = {*roots, *run.workflow.graph.descendants(roots)}
    nodes = [node_id for node_id in run.workflow.graph.order if node_id in again]
    run.reopen(event, {**by, "nodes": [key for key in nodes if run.nodes[key].status is not NodeStatus.PENDING]})
    for node_id in nodes:
        if run.nodes[node_id].status is not NodeStatus.PENDING:
            run.reset_node(node_id)
