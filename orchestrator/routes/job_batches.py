"""Many jobs by one call: those that are valid are created in one transaction, each of the others says why not."""

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from core.errors import ErrorDetail, GeodagError, TransientError
from core.identity import Role
from orchestrator.deps import Context, context, json_response, parsed
from orchestrator.errors import parameter_error
from orchestrator.routes.jobs import CreateJob, JobCreated
from orchestrator.strict import StrictRoute
from services.jobs import Created, Order

MAX_JOBS = 1000
MAX_BATCH_BYTES = 32 * 1024 * 1024

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], route_class=StrictRoute)


class CreateJobs(BaseModel):
    """POST /api/v1/jobs/batch; each job is a `CreateJob` that is judged by itself."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    jobs: Annotated[tuple[dict[str, Any], ...], Field(min_length=1, max_length=MAX_JOBS)]


class JobRefused(BaseModel):
    """Why one job was not created."""

    error: ErrorDetail


class JobsCreated(BaseModel):
    """What became of each job, in the order of the request."""

    created: int = Field(description="How many are new; others may have existed, where their workflow deduplicates.")
    refused: int
    jobs: list[JobCreated | JobRefused]


@router.post("/batch", status_code=202)
async def create_jobs(request: Request) -> Response:
    """Start up to 1,000 runs: all that are valid together or, when their transaction fails, none."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.OPERATOR)
    wanted = await parsed(request, CreateJobs, MAX_BATCH_BYTES)
    ordered = [await _order(ctx, number, one, caller.subject) for number, one in enumerate(wanted.jobs)]
    orders = [order for order in ordered if isinstance(order, Order)]
    found = await ctx.submits.create_many(orders) if orders else []
    answers = iter(found)
    fates = [JobRefused(error=one) if isinstance(one, ErrorDetail) else _answer(next(answers)) for one in ordered]
    created = sum(not one.existing for one in found)
    refused = len(ordered) - len(orders)
    return json_response(JobsCreated.model_construct(created=created, refused=refused, jobs=fates), 202)


async def _order(ctx: Context, number: int, wanted: dict[str, Any], subject: str) -> Order | ErrorDetail:
    """Return the order of a valid job, or what is wrong with this one; an outage is the whole call's error."""
    try:
        return await ctx.jobs.order(**dict(CreateJob.model_validate(wanted)), submitted_by=subject)
    except TransientError:
        raise
    except ValidationError as invalid:
        error = parameter_error(invalid).detail
    except GeodagError as refusal:
        error = refusal.detail
    place = f"jobs.{number}"
    return error.model_copy(update={"field": place if error.field is None else f"{place}.{error.field}"})


def _answer(found: Created) -> JobCreated:
    return JobCreated(job_id=found.job.job_id, status=found.job.status, existing=found.existing)
