"""What operators ask across everything: figures, the newest events, which job works for what."""

from collections import defaultdict
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response

from core import paging
from core.b2b import MAX_ORDINAL
from core.errors import ParameterMissing
from core.identity import Role
from core.paging import DEFAULT_LIMIT, MAX_LIMIT
from orchestrator.deps import context
from orchestrator.strict import StrictRoute
from repositories.database import transaction
from repositories.insight import InsightRepository
from repositories.storage import storage

MAX_HOURS = 24 * 366

router = APIRouter(prefix="/api/v1", tags=["insight"], route_class=StrictRoute)

Text = Annotated[str | None, Query(min_length=1, max_length=256, pattern=r"^[^\x00]*$")]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]


@router.get("/stats")
async def stats(request: Request, hours: Annotated[int, Query(ge=1, le=MAX_HOURS)] = 24) -> Response:
    """Count jobs and requests of the last hours, open tasks and reviews by state."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    async with transaction(ctx.pool) as conn:
        rows = await InsightRepository(conn).counts(hours)
    found: dict[str, Any] = {"hours": hours}
    for what in ("jobs", "tasks", "requests", "reviews"):
        names: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for row in rows:
            if row.what == what:
                names[row.name][row.state] = row.count
        found[what] = names
    return JSONResponse(found)


@router.get("/storage")
async def storage_of_platforms(request: Request) -> Response:
    """Say what the versions of each platform take, the largest first; files of bronze are not counted."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    async with transaction(ctx.pool) as conn:
        return JSONResponse({"platforms": [asdict(one) for one in await storage(conn)]})


@router.get("/events")
async def recent_events(request: Request, limit: Limit = DEFAULT_LIMIT, after: Text = None) -> Response:
    """List the newest events of all jobs, the newest first."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    key = paging.read_cursor("events", after, int)
    async with transaction(ctx.pool) as conn:
        rows = await InsightRepository(conn).recent_events(None if key is None else key[0], limit + 1)
    page = paging.page("events", rows, limit, lambda row: (row.event_id,))
    return JSONResponse({"events": [row.model_dump(mode="json") for row in page.rows], "next_after": page.next_after})


@router.get("/lookup")
async def lookup(
    request: Request,
    job_id: Text = None,
    request_id: Text = None,
    asset_id: Text = None,
    version_ordinal: Annotated[int | None, Query(ge=0, le=MAX_ORDINAL)] = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Response:
    """Say which jobs work for a request, an asset or a version, and what a job works for."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    if job_id is None and request_id is None and asset_id is None:
        raise ParameterMissing("expected job_id, request_id or asset_id", field="request_id")
    async with transaction(ctx.pool) as conn:
        rows = await InsightRepository(conn).linked(
            job_id=job_id, request_id=request_id, asset_id=asset_id, ordinal=version_ordinal, limit=limit
        )
    jobs = [
        {name: getattr(row, name) for name in row.__slots__ if name != "created_at"}
        | {"created_at": row.created_at.isoformat()}
        for row in rows
    ]
    return JSONResponse({"jobs": jobs})
