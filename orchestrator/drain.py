"""Leaving in order: nothing new, jobs given up, then the socket (architecture §3.3)."""

import asyncio
import logging

from core.errors import DatabaseUnavailable
from orchestrator.deps import Context

log = logging.getLogger(__name__)

RELEASE_SECONDS = 2.0
LAST_CALLS_SECONDS = 0.5
"""Between giving up the jobs and closing the socket: whoever looks at readiness has seen it by then."""


async def drain(ctx: Context, loop_task: asyncio.Task[None]) -> None:
    """Turn readiness off, finish the tick, and give up every job; callbacks are served meanwhile. Idempotent."""
    if ctx.life.draining:
        return
    ctx.life.draining = True
    log.info("draining", extra={"owner_id": ctx.owner_id})
    ctx.loop.stop()
    ctx.waiters.close()
    ctx.offers.close_all()
    try:
        if ctx.bus is not None:
            async with asyncio.timeout(RELEASE_SECONDS):
                await ctx.bus.stop_taking()
    except TimeoutError:
        log.warning("the broker keeps what was received until its locks end")
    try:
        async with asyncio.timeout(RELEASE_SECONDS):
            await asyncio.shield(loop_task)
            released = await ctx.recover.release_jobs()
        log.info("jobs released", extra={"jobs": released})
    except (DatabaseUnavailable, TimeoutError) as error:
        log.warning("jobs not released, others will reclaim them", extra={"reason": type(error).__name__})


async def depart(ctx: Context) -> None:
    """Say goodbye after the last request."""
    ctx.heartbeat.stop()
    if ctx.bus is not None:
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await ctx.bus.close()
        except TimeoutError:
            log.warning("broker not left in order, its locks end by themselves")
    try:
        async with asyncio.timeout(RELEASE_SECONDS):
            await ctx.recover.stop()
    except (DatabaseUnavailable, TimeoutError) as error:
        log.warning("departure not recorded", extra={"reason": type(error).__name__})
