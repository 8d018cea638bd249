"""What a human does to a job, decided purely; services write the decision as they write one of `advance`."""

from collections.abc import Mapping
from datetime import datetime

from core.dag import gates
from core.dag.definition import Workflow
from core.dag.evaluator import evaluate
from core.dag.gates import GateDecision
from core.dag.run import Run
from core.dag.state import Decision, JobState
from core.errors import Conflict
from core.handlers_catalog import CATALOG, HandlerSpec
from core.statuses import JOB_FINAL, JobStatus


def cancel_job(
    workflow: Workflow,
    state: JobState,
    now: datetime,
    *,
    actor: str,
    reason: str = "",
    catalog: Mapping[str, HandlerSpec] = CATALOG,
) -> Decision:
    """Cancel the job and all its unfinished nodes and revoke their attempts. Raises `Conflict` JOB_FINAL."""
    run = Run(workflow, state, now, catalog)
    if run.job.status in JOB_FINAL:
        raise Conflict(f"the job is {run.job.status} already", code="JOB_FINAL", value=run.job.status.value)
    run.cancel_unfinished("the job was cancelled")
    run.move_job(JobStatus.CANCELLED, data={"actor": actor, "reason": reason})
    return run.decision(None)


def decide_gate(
    workflow: Workflow,
    state: JobState,
    now: datetime,
    *,
    node_id: str,
    decision: GateDecision,
    catalog: Mapping[str, HandlerSpec] = CATALOG,
) -> Decision:
    """Decide a gate and everything that follows from it. Raises as `core.dag.gates.decide` does."""
    run = Run(workflow, state, now, catalog)
    gates.decide(run, node_id, decision)
    return evaluate(run)
