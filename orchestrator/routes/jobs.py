"""Jobs for operators: create, list, look, wait."""

import re
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from core import paging
from core.dag.inputs import Priority
from core.dag.progress import Progress
from core.dag.why import KINDS, told
from core.errors import Conflict, NotFound, ParameterInvalid
from core.identity import Role
from core.models.engine import Job, JobEvent
from core.statuses import JOB_FINAL, JobStatus
from core.submission import idempotency_key
from orchestrator.deps import Context, context, json_response, parsed
from orchestrator.strict import IDEMPOTENCY_HEADER, StrictRoute, documented, key_in
from repositories.database import transaction
from repositories.events import EventRepository
from repositories.jobs import TOP, JobRepository
from services.commands import Order
from services.insight import Cancelled
from services.job_keys import JobKey
from services.jobs import Created
from services.known_workflows import check_known
from services.meant_jobs import UNSUCCESSFUL

MAX_WAIT_SECONDS = 300.0
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], route_class=StrictRoute)


class CreateJob(BaseModel):
    """POST /api/v1/jobs"""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    workflow_id: str
    version: int | None = None
    inputs: dict[str, Any] = Field(default_factory=dict)
    priority: Priority | None = Field(default=None, description="0 to 10, or interactive, routine, backfill.")


class JobCreated(BaseModel):
    """The answer to a created job."""

    job_id: str
    status: JobStatus
    existing: bool = Field(
        default=False, description="The job was there already: the workflow deduplicates, or the key was used before."
    )


class WaitingFor(BaseModel):
    """Why a job or a node does not go on; docs/workflow-language.md says what each kind means."""

    kind: str = Field(description=", ".join(KINDS))
    detail: dict[str, Any] = Field(
        description="By kind. " + "; ".join(f"{kind}: {', '.join(names)}" for kind, names in KINDS.items())
    )


class JobView(BaseModel):
    """What operators see of a job."""

    job_id: str
    workflow_id: str
    workflow_version: int
    status: JobStatus
    inputs: dict[str, Any]
    input_refs: dict[str, Any] | None
    outputs: dict[str, Any] | None
    outputs_ref: dict[str, Any] | None
    error: dict[str, Any] | None
    warnings: list[Any]
    priority: int
    run_no: int
    version: int
    owner_id: str | None
    owner_epoch: int
    correlation_id: str | None = Field(
        description="Id of the request that it works for, also of a child job; null of what an operator started."
    )
    parent_task_id: str | None = Field(
        description="Of a child job: the task that it is, {job_id}_{node_id}_{attempt} of its parent."
    )
    submitted_by: str | None
    paused_at: datetime | None
    wake_at: datetime | None
    deadline_at: datetime | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    waiting_for: WaitingFor | None = Field(description="What holds the whole job: paused or slot.")
    progress: Progress | None = Field(default=None, description="Of one job that is asked for and has not ended.")
    cancelled: Cancelled | None = Field(
        default=None, description="Of one job that is asked for and was cancelled: by whom, why and when."
    )

    @classmethod
    def of(cls, job: Job, progress: Progress | None = None, cancelled: Cancelled | None = None) -> "JobView":
        """Return the view of a row; a job that has ended is not paused any more, though its row says that it was."""
        other = {"inputs", "progress", "waiting_for", "cancelled", "paused_at"}
        facts = {name: getattr(job, name) for name in cls.model_fields if name not in other}
        noted = told(job.waiting_for)
        reason = None if noted is None else WaitingFor.model_construct(**noted)
        return cls.model_construct(
            inputs=job.input_params,
            progress=progress,
            cancelled=cancelled,
            waiting_for=reason,
            paused_at=None if job.status in JOB_FINAL else job.paused_at,
            **facts,
        )


class JobList(BaseModel):
    """Newest jobs first; `next_after` asks for older ones."""

    jobs: list[JobView]
    next_after: str | None


class EventList(BaseModel):
    """Events in order; `next_after` asks for those that follow."""

    events: list[JobEvent]
    next_after: int | None


_RERUN = "Start a deduplicated job anew that failed or was cancelled; 422 when the workflow does not deduplicate."
_WAIT = "Seconds to wait for the end."
_KEY = "1 to 255 visible ASCII characters, new for each job: the same call again creates no second one."


@router.post(
    "",
    status_code=202,
    response_model=JobCreated,
    openapi_extra={
        "parameters": [
            documented("rerun", "query", {"type": "boolean", "default": False}, _RERUN),
            documented(IDEMPOTENCY_HEADER, "header", {"type": "string"}, _KEY),
        ]
    },
)
async def create_job(request: Request) -> Response:
    """Start a run of a workflow; of one that deduplicates, answer with the job that has the same inputs."""
    ctx, rerun = context(request), _flag(request, "rerun")
    caller = ctx.auth.mutator(request.headers, Role.OPERATOR)
    wanted = await parsed(request, CreateJob)
    key = _key(request, caller.subject, wanted, rerun)
    if key is not None and (known := await ctx.submits.known(key)):
        return _created(known)
    order, ends = await ctx.jobs.order(**dict(wanted), submitted_by=caller.subject, key=key), ctx.waiters.ends
    if rerun and order.workflow.deduplicate is None:
        raise _nothing_to_rerun(wanted.workflow_id)
    made = await ctx.submits.create(order)
    if not made.existing:
        ctx.waiters.created([made.job], ends)
    elif rerun and made.job.status in UNSUCCESSFUL:
        made = Created(await _rerun(ctx, made.job, caller.subject), existing=True)
    return _created(made)


def _created(made: Created) -> Response:
    job = made.job
    created = JobCreated(job_id=job.job_id, status=job.status, existing=made.existing)
    return json_response(created, 200 if made.existing else 202, {"Location": f"/api/v1/jobs/{job.job_id}"})


def _key(request: Request, actor: str, wanted: CreateJob, rerun: bool) -> JobKey | None:
    """Return the idempotency key of a call. Raises `ParameterInvalid` for one that can be none, or beside `rerun`."""
    text = idempotency_key(None, key_in(request.headers))
    if text is None:
        return None
    if rerun:
        message = "rerun is for workflows that deduplicate, whose calls may be repeated without a key"
        raise ParameterInvalid(message, field="idempotency_key", value=text, remediation="Leave one of them out.")
    return JobKey.of(actor, text, dict(wanted))


def _nothing_to_rerun(workflow_id: str) -> ParameterInvalid:
    return ParameterInvalid(
        f"{workflow_id} does not deduplicate: each call starts a new job, so there is none to start anew",
        field="rerun",
        value=True,
        remediation="Leave rerun out, or order rerun or retry for the job that is meant.",
    )


async def _rerun(ctx: Context, job: Job, actor: str) -> Job:
    """Start an unsuccessful job anew from its start; when somebody was faster, his state is the answer."""
    args = {"only_unsuccessful": True}
    try:
        return (await ctx.commands.order(job.job_id, Order("rerun", actor, "created again", args))).job
    except Conflict as conflict:
        if conflict.detail.code != "JOB_NOT_FAILED":
            raise
    async with transaction(ctx.pool) as conn:
        return await JobRepository(conn).get(job.job_id) or job


@router.get("")
async def list_jobs(
    request: Request,
    status: JobStatus | None = None,
    workflow_id: Annotated[str | None, Query(min_length=1, max_length=256, pattern=r"^[^\x00]*$")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    after: Annotated[str | None, Query(min_length=1, max_length=1000)] = None,
) -> Response:
    """List the newest jobs, of one workflow or of all."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    behind, wanted = paging.read_cursor("jobs", after, datetime, str) or TOP, limit + 1
    async with transaction(ctx.pool) as conn:
        repository = JobRepository(conn)
        if workflow_id is not None:
            await check_known(conn, ctx.shelf, workflow_id, "workflow_id")
            found = await repository.newest_of(workflow_id, JobStatus if status is None else [status], wanted, behind)
        elif status is not None:
            found = await repository.newest_in(status, wanted, behind)
        else:
            found = await repository.newest(wanted, behind)
    page = paging.page("jobs", found, limit, lambda job: (job.created_at, job.job_id))
    views = [JobView.of(job) for job in page.rows]
    return json_response(JobList.model_construct(jobs=views, next_after=page.next_after))


@router.get(
    "/{job_id}",
    openapi_extra={
        "parameters": [
            documented("job_id", "path", {"type": "string"}, "Id of the job."),
            documented("wait", "query", {"type": "number", "minimum": 0, "maximum": MAX_WAIT_SECONDS}, _WAIT),
        ]
    },
)
async def get_job(request: Request) -> Response:
    """Return one job, at the latest after `wait` seconds, at once when it is final."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    job = await ctx.waiters.wait_for_end(request.path_params["job_id"], _wait_seconds(request))
    return json_response(JobView.of(job, await ctx.insight.progress(job), await ctx.insight.cancelled(job)))


def _flag(request: Request, name: str) -> bool:
    said = request.query_params.get(name, "false")
    if said not in {"true", "false"}:
        raise ParameterInvalid(f"{name} is {said[:40]!r}; expected true or false", field=name, value=said[:40])
    return said == "true"


def _wait_seconds(request: Request) -> float:
    said = request.query_params.get("wait", "0")
    seconds = float(said) if _SECONDS.fullmatch(said) else -1.0
    if not 0 <= seconds <= MAX_WAIT_SECONDS:
        message = f"wait is {said[:40]!r}; expected seconds from 0 to {MAX_WAIT_SECONDS:g}"
        raise ParameterInvalid(message, field="wait", value=said[:40])
    return seconds


@router.get("/{job_id}/events")
async def get_events(
    request: Request,
    job_id: str,
    after: Annotated[int, Query(ge=0, le=2**53, description="Event id to start behind.")] = 0,
    limit: Annotated[int, Query(ge=1, le=10000)] = 1000,
) -> Response:
    """Return every transition of a job, oldest first."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    async with transaction(ctx.pool) as conn:
        if await JobRepository(conn).get(job_id) is None:
            raise NotFound(f"there is no job {job_id}", field="job_id", value=job_id)
        events = await EventRepository(conn).of_job(job_id, after, limit)
    more = events[-1].event_id if len(events) == limit else None
    return json_response(EventList.model_construct(events=list(events), next_after=more))
