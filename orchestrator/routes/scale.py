"""What workers scale on: unclaimed and leased tasks, never the length of a queue (architecture §2)."""

import logging

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from core.errors import NotFound
from core.handlers_catalog import KNOWN_QUEUES
from core.identity import Role
from orchestrator.deps import context
from orchestrator.strict import StrictRoute
from repositories.attempts import AttemptRepository
from repositories.database import transaction

log = logging.getLogger(__name__)

LONG_WAIT_SECONDS = 900.0
"""What asks for this number comes several times a minute, so the message lasts as long as the wait (infra/ alerts)."""

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
    async with transaction(ctx.pool) as conn:
        counts = await AttemptRepository(conn).counts(queue)
    (unclaimed, waited), (leased, _), (held, _) = (counts.get(kind, (0, 0.0)) for kind in ("queued", "leased", "held"))
    if waited > LONG_WAIT_SECONDS:
        log.warning("tasks wait for workers", extra={"queue": queue, "unclaimed": unclaimed, "seconds": round(waited)})
    return JSONResponse(
        {
            "queue": queue,
            "unclaimed": unclaimed,
            "leased": leased,
            "tasks": unclaimed + leased,
            "held": held,
            "oldest_unclaimed_seconds": round(max(waited, 0.0), 3),
        }
    )
