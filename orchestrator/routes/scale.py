"""What workers scale on: unclaimed and leased tasks, never the length of a queue (architecture §2)."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from core.errors import NotFound
from core.handlers_catalog import KNOWN_QUEUES
from core.identity import Role
from orchestrator.deps import context
from orchestrator.scaling import work_of
from orchestrator.strict import StrictRoute

router = APIRouter(prefix="/api/v1/scale", tags=["scale"], route_class=StrictRoute)


@router.get("/{queue}")
async def scale(request: Request, queue: str) -> Response:
    """Return how many tasks of a queue wait for a worker and how many run, and for how long the oldest one has waited.

    What a pause holds, parked or still in the queue, is work for no worker and does not count.
    """
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    if queue not in KNOWN_QUEUES:
        raise NotFound(f"there is no queue {queue}", field="queue", value=queue[:64])
    work = await work_of(ctx.pool, queue)
    return JSONResponse(
        {
            "queue": queue,
            "unclaimed": work.unclaimed,
            "leased": work.leased,
            "tasks": work.tasks,
            "held": work.held,
            "oldest_unclaimed_seconds": work.oldest_unclaimed_seconds,
        }
    )
