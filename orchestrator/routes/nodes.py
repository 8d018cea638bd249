"""Nodes of jobs for operators: all vertices of a job, one node, and the children of a fan-out page by page."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from core import paging
from core.dag.child_jobs import CHILD_QUEUE, child_job_id
from core.identity import Role
from core.models.engine import NodeState
from core.paging import DEFAULT_LIMIT
from core.statuses import AttemptState, NodeStatus
from orchestrator.deps import context, json_response
from orchestrator.strict import StrictRoute
from services.insight import NodeInsight

MOST_CHILDREN = 200
"""On one page: each may have params and an output of 64 KiB."""

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], route_class=StrictRoute)


class Running(BaseModel):
    """What a worker says of the task it is at."""

    worker_id: str | None
    leased_at: datetime | None
    progress: dict[str, Any] | None = Field(description="{current, total, message}, as the handler reported.")
    peak_rss_bytes: int | None


class FanOutView(BaseModel):
    """Where a fan-out stands; `succeeded`, `failed` and `skipped` count items, the others tasks."""

    max_concurrency: int = Field(description="The window: tasks that are out at a time, as changed last.")
    items: int
    succeeded: int
    failed: int
    skipped: int = Field(description="Ended undone: cancelled, or left out after others had failed.")
    tasks: int
    tasks_made: int
    running: int
    waiting: dict[str, int] = Field(description="How many by the kind of what they wait for.")

    @classmethod
    def of(cls, insight: NodeInsight) -> "FanOutView | None":
        """Return the view of a fan-out's row and of its live children; None of any other node."""
        row, children = insight.fan_out, insight.children
        if row is None:
            return None
        return cls(
            max_concurrency=row.max_concurrency,
            items=row.item_count,
            succeeded=row.succeeded,
            failed=row.failed,
            skipped=row.skipped,
            tasks=row.child_count,
            tasks_made=row.next_child,
            running=0 if children is None else children.running,
            waiting={} if children is None else dict(children.waiting),
        )


class NodeView(NodeState):
    """A node with what is going on in it."""

    attempt: int | None = Field(  # type: ignore[assignment]  # the row has the number of the next one
        description="Number of the newest attempt, as in its task id, events and errors; null before the first."
    )
    running: Running | None = None
    fan_out: FanOutView | None = None
    child_job_id: str | None = Field(default=None, description="The job that works for a node of type `workflow`.")

    @classmethod
    def of(cls, insight: NodeInsight) -> "NodeView":
        """Return the view of a row, with why it waits now."""
        attempt = insight.attempt
        leased = attempt is not None and attempt.state is AttemptState.LEASED and attempt.worker_id is not None
        running = Running.model_validate(attempt, from_attributes=True) if leased else None
        now = {
            "attempt": None if attempt is None else attempt.attempt,
            "waiting_for": insight.waiting_for,
            "running": running,
            "fan_out": FanOutView.of(insight),
            "child_job_id": None if attempt is None or attempt.queue != CHILD_QUEUE else child_job_id(attempt.task_id),
        }
        return cls.model_construct(**{**insight.node.__dict__, **now})


class NodeList(BaseModel):
    """Every node of a job."""

    nodes: list[NodeView]


class ChildList(BaseModel):
    """Children of a fan-out in their order; `next_after` asks for what follows, also when nothing of a page fits."""

    nodes: list[NodeView]
    next_after: str | None


@router.get("/{job_id}/nodes")
async def get_nodes(request: Request, job_id: str) -> Response:
    """Return the state of every node, with why it waits and why it failed."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    views = [NodeView.of(one) for one in await ctx.insight.nodes(job_id)]
    return json_response(NodeList.model_construct(nodes=views))


@router.get("/{job_id}/nodes/{node_id}")
async def get_node(request: Request, job_id: str, node_id: str) -> Response:
    """Return the state of one node, or of one child of a fan-out."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    return json_response(NodeView.of(await ctx.insight.node(job_id, node_id)))


@router.get("/{job_id}/nodes/{node_id}/children")
async def get_children(
    request: Request,
    job_id: str,
    node_id: str,
    status: NodeStatus | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_CHILDREN)] = DEFAULT_LIMIT,
    after: Annotated[str | None, Query(min_length=1, max_length=256)] = None,
) -> Response:
    """Return children of a fan-out that were made, in their order, in one status or in any."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    (behind,) = paging.read_cursor("children", after, int) or (-1,)
    page = await ctx.insight.children(job_id, node_id, status=status, after=behind, limit=limit)
    cursor = None if page.next_after is None else paging.make_cursor("children", (page.next_after,))
    views = [NodeView.of(one) for one in page.children]
    return json_response(ChildList.model_construct(nodes=views, next_after=cursor))
