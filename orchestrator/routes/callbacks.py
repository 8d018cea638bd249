"""What workers call: claims, heartbeats, results, releases. One transaction a call, many tasks a transaction."""

import asyncio
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from core.identity import Role
from core.wire import (
    ClaimRequest,
    ClaimResponse,
    ExchangeRequest,
    ExchangeResponse,
    Grant,
    HeartbeatRequest,
    Release,
    ReleaseRequest,
    ResultRequest,
    ResultResponse,
    TaskResult,
)
from orchestrator.deps import Context, context, json_response, received
from orchestrator.strict import StrictRoute
from services.evaluation import ended_jobs

router = APIRouter(prefix="/api/v1/callbacks", tags=["callbacks"], route_class=StrictRoute)


@router.post("/claims")
async def claims(request: Request) -> Response:
    """Take leases of delivered tasks."""
    ctx = _for_worker(request)
    wanted = await received(request, ClaimRequest)
    return json_response(ClaimResponse(answers=tuple(await ctx.claims.claim(wanted))))


@router.post("/heartbeats")
async def heartbeats(request: Request) -> Response:
    """Renew all leases of a worker."""
    ctx = _for_worker(request)
    return json_response(await ctx.claims.heartbeat(await received(request, HeartbeatRequest)))


@router.post("/task-results")
async def task_results(request: Request) -> Response:
    """Store and apply what came of tasks."""
    ctx = _for_worker(request)
    reported = await received(request, ResultRequest)
    return await _report(ctx, reported.worker.worker_id, reported.results)


@router.post("/exchange")
async def exchange(request: Request) -> Response:
    """Store and apply what came of tasks, and give the worker the next ones that it has room for.

    Without results it waits for tasks that this instance makes, until there are some, the time is over, or it goes.
    """
    ctx = _for_worker(request)
    wanted = await received(request, ExchangeRequest)
    if not wanted.results:
        return json_response(ExchangeResponse(answers=(), grants=tuple(await _wait(request, ctx, wanted))))
    answers, steps, grants = await ctx.results.exchange(wanted)
    ctx.waiters.ended(ended_jobs(steps))
    return json_response(ExchangeResponse(answers=tuple(answers), grants=tuple(grants)))


@router.post("/task-result")
async def task_result(request: Request) -> Response:
    """Store and apply what came of one task."""
    ctx = _for_worker(request)
    return await _report(ctx, None, (await received(request, TaskResult),))


@router.post("/releases")
async def releases(request: Request) -> Response:
    """Take leases back from a worker that ends; the tasks leave again at once."""
    ctx = _for_worker(request)
    given = await received(request, ReleaseRequest)
    return await _report(ctx, given.worker.worker_id, given.releases)


def _for_worker(request: Request) -> Context:
    ctx = context(request)
    ctx.auth.service(request.headers, Role.WORKER)
    return ctx


async def _report(ctx: Context, worker_id: str | None, reports: Sequence[TaskResult | Release]) -> Response:
    answers, steps = await ctx.results.report(worker_id, reports)
    ctx.waiters.ended(ended_jobs(steps))
    return json_response(ResultResponse(answers=tuple(answers)))


async def _wait(request: Request, ctx: Context, wanted: ExchangeRequest) -> Sequence[Grant]:
    offer = ctx.offers.open(wanted)
    gone = asyncio.create_task(_gone(request), name="worker gone")
    try:
        if ctx.life.draining:
            return ()
        events: set[asyncio.Future[Any]] = {offer.granted, gone}
        await asyncio.wait(events, timeout=wanted.wait_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        ctx.offers.close(offer)
    return await offer.granted


async def _gone(request: Request) -> None:
    """Wait until the caller of a request whose body was read closes its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
