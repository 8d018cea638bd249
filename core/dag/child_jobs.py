"""Sub-workflows: a node of type workflow waits for a job of its own, the end of which is the result of its attempt.

The attempt is leased to nobody: no worker, no time. The child's last transaction puts a result for it into the inbox
of the parent, so retries, cancels and late ends meet the same fence as the results of workers.
"""

from datetime import datetime

from core.dag import slots
from core.dag.definition import Workflow
from core.dag.inputs import resolve_inputs
from core.dag.nodes import WorkflowNode
from core.dag.pinning import MAX_DEPTH
from core.dag.rendering import Shape
from core.dag.run import Run
from core.dag.state import StartJob
from core.dag.templates import TemplateFailed
from core.dag.values import Ask, value_of
from core.errors import CallerError, ErrorDetail, WorkflowError
from core.ids import JobId, digest, split_task_id, task_id
from core.models.engine import Attempt, Job, NodeState, TaskResultRow
from core.statuses import AttemptState, JobStatus, NodeStatus

CHILD_QUEUE = "child-jobs"
"""Stands in the attempts that child jobs work for; no worker takes anything from it."""
WORKFLOW_DEPTH = "WORKFLOW_DEPTH"
CHILD_CANCELLED = "CHILD_CANCELLED"
CHILD_LOST = "CHILD_LOST"


def child_job_id(parent_task_id: str) -> JobId:
    """Return the id of the job that works for an attempt: each attempt has its own."""
    return JobId(digest({"parent_task_id": parent_task_id})[:32])


def waits_for_child(node: NodeState) -> bool:
    """Return whether a node waits for its child job, and not for the time of a retry."""
    return node.status is NodeStatus.WAITING and (node.waiting_for or {}).get("kind") == "child"


def go_on(run: Run, node_id: str, node: WorkflowNode) -> None:
    """Prepare the child job of a READY node, unless something holds it; what is wrong with its inputs is final."""
    if node_id in run.child_jobs or run.overdue or run.holds(node_id) or not slots.admits_job(run, node_id):
        return
    if run.job.depth >= MAX_DEPTH:
        message = f"child jobs lie at most {MAX_DEPTH} deep; {node.workflow_id} would be one deeper"
        run.fail_node(node_id, ErrorDetail(code=WORKFLOW_DEPTH, message=message, node_id=node_id))
        return
    try:
        run.child_jobs[node_id] = _prepared(run, node_id, node)
    except (TemplateFailed, CallerError) as error:
        run.fail_node(node_id, error.detail.model_copy(update={"node_id": node_id}))


def _prepared(run: Run, node_id: str, node: WorkflowNode) -> StartJob:
    state, child = run.nodes[node_id], _definition(run, node)
    given = value_of(
        run,
        Ask(
            path=f"nodes.{node_id}.inputs",
            template=node.inputs,
            program=run.workflow.inputs_programs[node_id],
            override=state.params_override or {},
            shape=Shape.SPLIT,
            workflow_id=child.workflow_id,
            inputs=child.inputs,
        ),
    )
    inputs = given.value if given.digest else resolve_inputs(child, given.value)  # made elsewhere, it fits already
    task = task_id(run.job.job_id, node_id, state.attempt)
    above = slots.held_for_children(run)
    return StartJob(node_id, task, child.workflow_id, child.definition_hash, inputs, given.refs, above)


def start(run: Run) -> None:
    """Start every child job that was prepared; the first one starts the job, as a task does."""
    for node_id, one in run.child_jobs.items():
        run.start_job()
        _start(run, node_id, one)


def _start(run: Run, node_id: str, one: StartJob) -> None:
    state, child = run.nodes[node_id], run.state.workflows[one.definition_hash]
    detail = {"job_id": child_job_id(one.task_id), "workflow_id": child.workflow_id, "version": child.version}
    run.move(
        node_id,
        NodeStatus.WAITING,
        "child_job_started",
        data={**detail, "attempt": state.attempt},
        task_id=one.task_id,
        attempt=state.attempt + 1,
        input_params=dict(one.inputs),
        first_dispatched_at=state.first_dispatched_at or run.now,
        dispatched_at=run.now,
        started_at=run.now,
        not_before=None,
        waiting_for={"kind": "child", "detail": detail},
    )


def _definition(run: Run, node: WorkflowNode) -> Workflow:
    found = run.state.workflows.get(node.definition_hash or "")
    if found is None:
        raise WorkflowError(f"the definition {node.definition_hash} of {node.workflow_id} cannot be read")
    return found


def new_attempt(job: Job, start: StartJob, now: datetime, token_hash: str = "") -> Attempt:
    """Return the row of an attempt that a child job works for; nobody knows its token."""
    parts = split_task_id(start.task_id)
    return Attempt(
        task_id=start.task_id,
        job_id=job.job_id,
        node_id=start.node_id,
        attempt=0 if parts is None else parts[2],
        state=AttemptState.LEASED,
        queue=CHILD_QUEUE,
        handler=start.workflow_id,
        priority=job.priority,
        params_digest=digest(start.inputs),
        token_hash=token_hash,
        timeout_seconds=0,
        queued_at=now,
    )


def new_job(parent: Job, start: StartJob, child: Workflow, now: datetime) -> Job:
    """Return the child job of an attempt: for the same request as its parent, as urgent, of the same owner."""
    return Job(
        job_id=child_job_id(start.task_id),
        workflow_id=child.workflow_id,
        workflow_version=child.version,
        definition_hash=child.definition_hash,
        status=JobStatus.PENDING,
        input_params=dict(start.inputs),
        input_refs={name: ref.model_dump() for name, ref in start.input_refs.items()} or None,
        run_no=1,
        version=1,
        owner_id=parent.owner_id,
        owner_epoch=1,
        priority=parent.priority,
        deadline_at=child.deadline_at(now),
        parent_task_id=start.task_id,
        correlation_id=parent.correlation_id,
        submitted_by=parent.submitted_by,
        depth=parent.depth + 1,
        slots_above=list(start.slots_above) or None,
        created_at=now,
        updated_at=now,
    )


def result_of(job: Job, now: datetime) -> TaskResultRow | None:
    """Return what the end of a job means to the attempt that it worked for; None for a job without a parent."""
    parts = split_task_id(job.parent_task_id or "")
    if parts is None or job.parent_task_id is None:
        return None
    completed = job.status is JobStatus.COMPLETED
    error = None if completed else _error_of(job).model_dump(mode="json", exclude_none=True)
    return TaskResultRow(
        task_id=job.parent_task_id,
        job_id=parts[0],
        node_id=parts[1],
        attempt=parts[2],
        status="completed" if completed else "failed",
        output=(job.outputs or {}) if completed and job.outputs_ref is None else None,
        output_ref=job.outputs_ref if completed else None,
        error=error,
        reported_at=now,
    )


def _error_of(job: Job) -> ErrorDetail:
    """Return the error of a node whose child did not complete: the code and the root cause of the child."""
    if job.status is JobStatus.CANCELLED:
        message = f"its child job {job.job_id} of workflow {job.workflow_id} was cancelled"
        return ErrorDetail(code=CHILD_CANCELLED, message=message)
    cause = ErrorDetail.model_validate(job.error or {"code": "INTERNAL", "message": "it failed without an error"})
    place = job.workflow_id if cause.node_id is None else f"{job.workflow_id}.{cause.node_id}"
    update = {"message": f"{place}: {cause.message}", "node_id": None, "attempts": ()}
    return cause.model_copy(update=update)
