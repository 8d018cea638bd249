"""Liveness, readiness and, for operators, how the process does."""

import time
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from core.errors import DatabaseUnavailable
from core.identity import Role
from orchestrator.deps import Context, context
from repositories.database import transaction
from repositories.orchestrators import OrchestratorRepository
from repositories.workers import WorkerRepository

WORKERS_SEEN_WITHIN_SECONDS = 60.0
DATABASE_WAIT_SECONDS = 2.0

router = APIRouter(tags=["health"])


@router.get("/livez")
async def livez() -> Response:
    """Say that the process answers; nothing about what it needs."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz")
async def readyz(request: Request) -> Response:
    """Say whether to send requests here: not while draining, not before the first heartbeat, not without database."""
    ctx = context(request)
    reason = await _why_not_ready(ctx)
    body = {"status": "degraded" if ctx.shelf.catalogue.broken else "ok"} if reason is None else {"status": reason}
    return JSONResponse(body, 200 if reason is None else 503)


@router.get("/health")
async def health(request: Request) -> Response:
    """Return everything an operator asks first."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    reason = await _why_not_ready(ctx)
    body: dict[str, Any] = {
        "status": reason or ("degraded" if ctx.shelf.catalogue.broken else "ok"),
        "owner_id": ctx.owner_id,
        "build_id": ctx.settings.build_id,
        "draining": ctx.life.draining,
        "listener": "listening" if ctx.listener.hears.is_set() else "polling every 200 ms",
        "queue": "postgres" if ctx.bus is None else ctx.bus.trouble or "servicebus",
        "loop_seconds_since_step": round(time.monotonic() - ctx.loop.pulse.finished_at, 3),
        "may_expire_leases": ctx.guard.may_expire_leases(time.monotonic()),
        "may_reclaim_jobs": ctx.guard.may_reclaim(time.monotonic()),
        "pool": ctx.pool.get_stats(),
        "broken_workflows": [one.file for one in ctx.shelf.catalogue.broken],
    }
    if reason != "no_database":
        body |= await _peers(ctx)
    return JSONResponse(body)


async def _why_not_ready(ctx: Context) -> str | None:
    if ctx.life.draining:
        return "draining"
    if not ctx.guard.registered:
        return "starting"
    try:
        async with transaction(ctx.pool, DATABASE_WAIT_SECONDS) as conn:
            await conn.execute("SELECT 1")
    except DatabaseUnavailable:
        return "no_database"
    return None


async def _peers(ctx: Context) -> dict[str, Any]:
    async with transaction(ctx.pool, DATABASE_WAIT_SECONDS) as conn:
        orchestrators = await OrchestratorRepository(conn).all()
        workers = await WorkerRepository(conn).recent(WORKERS_SEEN_WITHIN_SECONDS)
    return {
        "orchestrators": [one.model_dump(mode="json") for one in orchestrators],
        "workers": [one.model_dump(mode="json") for one in workers],
    }
