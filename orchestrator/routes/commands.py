"""Orders for one job, for one of its nodes, and for every job that a filter means."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from core.dag.orders import Kind
from core.errors import ParameterInvalid
from core.identity import Role
from core.job_filter import JobFilter
from orchestrator.deps import context, json_response, optional_body, parsed
from orchestrator.routes.jobs import JobView
from orchestrator.routes.nodes import NodeView
from orchestrator.strict import StrictRoute
from repositories.database import transaction
from services.commands import JobOutcome, Order
from services.known_workflows import check_known
from services.meant_jobs import statuses_meant

OF_JOBS = (Kind.CANCEL, Kind.PAUSE, Kind.RESUME, Kind.RETRY, Kind.RERUN, Kind.PRIORITY)
OF_NODES = (Kind.SKIP, Kind.GATE, Kind.WINDOW, Kind.RERUN)
MAX_REASON = 1000
MAX_JOBS = 1000

router = APIRouter(tags=["commands"], route_class=StrictRoute)
Endpoint = Callable[..., Awaitable[Response]]


class CommandAnswer(BaseModel):
    """The state that an order produced; `pending` when its job is held and will obey soon."""

    command: str
    state: str = Field(description="applied | pending | would_apply (of a dry run)")
    job: JobView
    node: NodeView | None = Field(default=None, description="Of an order for one node: how it is now.")


class CommandMany(BaseModel):
    """POST /api/v1/commands/{kind}"""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    filter: JobFilter = JobFilter()
    dry_run: bool = Field(default=False, description="Only list what would be touched.")
    limit: Annotated[int, Field(ge=1, le=MAX_JOBS)] = 100
    args: dict[str, Any] = Field(default_factory=dict)
    reason: Annotated[str, Field(max_length=MAX_REASON, pattern=r"^[^\x00]*$")] | None = None


class CommandManyAnswer(BaseModel):
    """What became of every job that a filter meant, oldest first."""

    command: str
    dry_run: bool
    jobs: list[JobOutcome]
    more: bool = Field(description="The filter means others too; call again.")


def _of_job(kind: Kind) -> Endpoint:
    async def endpoint(request: Request, job_id: str) -> Response:
        return await _ordered(request, job_id, kind, {})

    return endpoint


def _of_node(kind: Kind) -> Endpoint:
    async def endpoint(request: Request, job_id: str, node_id: str) -> Response:
        return await _ordered(request, job_id, kind, {"node_id": node_id})

    return endpoint


async def _ordered(request: Request, job_id: str, kind: Kind, names: dict[str, Any]) -> Response:
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.OPERATOR)
    body = await optional_body(request)
    reason = body.pop("reason", None)
    if reason is not None and not (isinstance(reason, str) and len(reason) <= MAX_REASON and "\0" not in reason):
        raise ParameterInvalid(f"reason must be a text of at most {MAX_REASON} characters", field="reason")
    dry_run = body.pop("dry_run", False)
    if not isinstance(dry_run, bool):
        raise ParameterInvalid("dry_run must be true or false", field="dry_run")
    order = Order(kind, caller.subject, reason, {**body, **names})
    answer = await ctx.commands.order(job_id, order, dry_run=dry_run)
    node = NodeView.of(await ctx.insight.node(job_id, names["node_id"])) if names else None
    job = JobView.of(answer.job, cancelled=await ctx.insight.cancelled(answer.job))
    view = CommandAnswer.model_construct(command=kind.value, state=answer.state, job=job, node=node)
    return json_response(view, 202 if answer.state == "pending" else 200)


def _add(path: str, endpoint: Endpoint, name: str) -> None:
    router.add_api_route(path, endpoint, methods=["POST"], name=name, response_model=CommandAnswer)


for one in OF_JOBS:
    _add(f"/api/v1/jobs/{{job_id}}/{one}", _of_job(one), f"{one}_job")
for one in OF_NODES:
    _add(f"/api/v1/jobs/{{job_id}}/nodes/{{node_id}}/{one}", _of_node(one), f"{one}_node")


@router.post("/api/v1/commands/{kind}", response_model=CommandManyAnswer)
async def order_many(request: Request, kind: str) -> Response:
    """Order something for every job that a filter means, or only say which those are."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.OPERATOR)
    wanted = await parsed(request, CommandMany)
    statuses_meant(wanted.filter, kind, wanted.args)
    if (workflow_id := wanted.filter.workflow_id) is not None:
        async with transaction(ctx.pool) as conn:
            await check_known(conn, ctx.shelf, workflow_id, "filter.workflow_id")
    order = Order(kind, caller.subject, wanted.reason, wanted.args)
    done = await ctx.commands.order_many(wanted.filter, order, limit=wanted.limit, dry_run=wanted.dry_run)
    return json_response(CommandManyAnswer(command=kind, dry_run=wanted.dry_run, jobs=list(done.jobs), more=done.more))
