"""Composition root: everything that one orchestrator process consists of, and its life from start to end."""

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI

from core.dag.catalogue import load_folder
from core.errors import DatabaseUnavailable
from edge.identity import Identity, PrepareIdentity, build_identity
from edge.seal import Seal
from messaging.listener import Listener
from messaging.postgres import PostgresTaskQueue
from orchestrator import errors
from orchestrator.auth import Authenticator
from orchestrator.business import build_business, read_definitions
from orchestrator.deps import Context, Life
from orchestrator.direct import DirectRoutes, Endpoint
from orchestrator.drain import depart, drain
from orchestrator.heartbeat import Heartbeat, Instance, Pulse
from orchestrator.loop import Loop
from orchestrator.routes import (
    assets,
    audit,
    bootstrap,
    callbacks,
    commands,
    dead_letters,
    health,
    insight,
    job_batches,
    jobs,
    limits,
    nodes,
    pauses,
    platforms,
    requests,
    reviews,
    scale,
    status,
    submit,
    uploads,
    values,
    webhooks,
    workflows,
)
from orchestrator.scaling import WRITE_SECONDS, ScaleMetric
from orchestrator.settings import OrchestratorSettings
from orchestrator.upkeep import Chore, upkeep
from orchestrator.waiters import JobWaiters
from orchestrator.webhooks import WebhookLoop
from repositories.blobs import open_blobs
from repositories.database import AsyncPool, listen
from repositories.engine_pool import engine_pool
from repositories.notifications import ENDED_CHANNEL, UNOWNED_CHANNEL, owner_channel
from repositories.payloads import PayloadStore
from repositories.webhooks import WEBHOOK_CHANNEL
from services.advance import AdvanceService, advance_one
from services.chores import ChoreService
from services.claims import ClaimService
from services.commands import CommandService
from services.dead_letters import DeadLetterService
from services.definitions import Definitions
from services.insight import InsightService
from services.jobs import JobService
from services.offers import Offers
from services.pauses import PauseService
from services.payload_desk import PayloadDesk
from services.payload_upkeep import PayloadUpkeep
from services.publish import on_job_ended
from services.recover import OutageGuard, RecoverService
from services.reopening import OF_VERSIONS
from services.results import ResultService
from services.rooms import RoomService
from services.shelf import Shelf
from services.slots import SlotService
from services.stalls import StallService
from services.submit import SubmitService
from services.submits import Submits
from services.work import pipelined
from services.writing import OnJobEnded

if TYPE_CHECKING:
    from orchestrator.bus import Bus

log = logging.getLogger(__name__)

POOL_SIZE = 10
REGISTER_RETRY_SECONDS = 0.5
WATCH_SECONDS = 5.0
"""Pause between looks for what no notification tells of."""
ROUTERS: Sequence[APIRouter] = (
    job_batches.router,
    jobs.router,
    nodes.router,
    commands.router,
    pauses.router,
    dead_letters.router,
    limits.router,
    values.router,
    workflows.router,
    workflows.operations,
    callbacks.router,
    scale.router,
    submit.router,
    status.router,
    assets.router,
    requests.router,
    platforms.router,
    reviews.router,
    audit.router,
    insight.router,
    uploads.router,
    uploads.addresses,
    webhooks.router,
    bootstrap.router,
    health.router,
)
DIRECT: Mapping[tuple[str, str], Endpoint] = {
    ("POST", "/api/v1/jobs"): jobs.create_job,
    ("GET", "/api/v1/jobs/{job_id}"): jobs.get_job,
    ("POST", "/api/v1/callbacks/claims"): callbacks.claims,
    ("POST", "/api/v1/callbacks/heartbeats"): callbacks.heartbeats,
    ("POST", "/api/v1/callbacks/task-results"): callbacks.task_results,
    ("POST", "/api/v1/callbacks/exchange"): callbacks.exchange,
}
"""Routes of every job and task."""


def create_app(settings: OrchestratorSettings) -> FastAPI:
    """Return the app; nothing is connected before its lifespan begins, so the database may come later."""
    app = FastAPI(
        title="geodag orchestrator",
        version=settings.build_id,
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # looks into the environment with every request
    )
    app.state.settings = settings
    app.state.identity = identity = build_identity(settings)
    for router in ROUTERS:
        app.router.routes.extend(router.routes)  # as they are: include_router would analyse each endpoint a second time
    errors.install(app)
    app.add_middleware(DirectRoutes, api=app, endpoints=DIRECT)
    app.add_middleware(PrepareIdentity, identity=identity)
    app.add_middleware(errors.ErrorBoundary)
    return app


def load_shelf(folder: Path) -> Shelf:
    """Return the workflows of a folder; files that are broken are logged and listed."""
    files = read_definitions(folder)
    shelf = Shelf(load_folder(files), files)
    for broken in shelf.catalogue.broken:
        log.error("workflow file broken", extra={"file": broken.file, "reason": broken.error})
    return shelf


def build_context(settings: OrchestratorSettings, identity: Identity) -> Context:
    """Return everything wired together, not yet connected."""
    owner_id = f"{socket.gethostname()[:24]}-{os.getpid()}-{secrets.token_hex(4)}"
    pool = _pool(settings, owner_id)
    guard = OutageGuard(time.monotonic(), settings.orchestrator_threshold_seconds, settings.lease_seconds)
    shelf, life = load_shelf(settings.workflows_dir), Life()
    waiters = JobWaiters(pool, lambda: listener.hears.is_set())  # noqa: PLW0108 - there is no listener yet
    definitions, blobs = Definitions(shelf.catalogue.workflows.values()), open_blobs(settings)
    desk = PayloadDesk(PayloadStore(blobs))
    advance = _advance_service(definitions, desk, guard, lambda conn, job: on_job_ended(conn, job, jobs_service))
    desk.advance, desk.perform = advance_one(pool, advance, waiters.ended), ChoreService(pool, desk.store).perform
    jobs_service = JobService(
        advance.writer, shelf, definitions, desk, lambda: owner_id if guard.registered and not life.draining else None
    )
    recover, pulse = RecoverService(pool, owner_id, settings.orchestrator_threshold_seconds), Pulse()
    commands, sealer = CommandService(pool, advance, waiters.ended), Seal(settings.secrets_key.get_secret_value())
    rooms = RoomService(PostgresTaskQueue(), ClaimService(pool, settings.lease_seconds, sealer))
    business = build_business(settings, pool, blobs, shelf.catalogue, jobs_service, waiters, commands, sealer)
    webhook_loop = WebhookLoop(business.webhooks)
    listener = _listener(settings, owner_id, lambda channel: _on_wake(channel, loop, waiters, webhook_loop))
    loop = Loop(
        pool,
        advance,
        recover,
        guard,
        pulse,
        owner_id,
        settings.orchestrator_poll_interval,
        hears=listener.hears.is_set,
        on_ended=waiters.ended,
    )
    return Context(
        settings=settings,
        owner_id=owner_id,
        pool=pool,
        auth=Authenticator(identity),
        shelf=shelf,
        jobs=jobs_service,
        submits=Submits(pool, jobs_service, offers := Offers(rooms)),
        results=ResultService(pool, advance, rooms),
        offers=offers,
        claims=rooms.claims,
        commands=commands,
        pauses=PauseService(pool, shelf),
        dead_letters=DeadLetterService(pool),
        insight=InsightService(pool, definitions),
        slots=SlotService(pool),
        stalls=StallService(pool, advance, owner_id, waiters.ended),
        recover=recover,
        guard=guard,
        waiters=waiters,
        loop=loop,
        listener=listener,
        heartbeat=_heartbeat(settings, owner_id, guard, pulse, life),
        business=business,
        life=life,
        webhook_loop=webhook_loop,
        desk=desk,
        bus=_bus(settings, owner_id, pool, identity, business.submits),
    )


def _bus(
    settings: OrchestratorSettings, owner_id: str, pool: AsyncPool, identity: Identity, submits: SubmitService
) -> "Bus | None":
    """Return what goes through Service Bus; a process without one does not pay for the SDK."""
    if not settings.uses_service_bus:
        return None
    from orchestrator.bus import Bus

    return Bus.of(settings, owner_id, pool, identity, submits)


def _pool(settings: OrchestratorSettings, owner_id: str) -> AsyncPool:
    return engine_pool(
        settings.conninfo,
        name=f"orchestrator {owner_id}",
        max_size=POOL_SIZE,
        pooled=settings.is_pooled,
    )


def _advance_service(
    definitions: Definitions, desk: PayloadDesk, guard: OutageGuard, on_ended: OnJobEnded
) -> AdvanceService:
    return AdvanceService(
        PostgresTaskQueue(),
        definitions,
        desk,
        on_job_ended=on_ended,
        may_expire_leases=lambda: guard.may_expire_leases(time.monotonic()),
        reopening=OF_VERSIONS,
    )


def _listener(settings: OrchestratorSettings, owner_id: str, on_wake: Callable[[str], None]) -> Listener:
    return Listener(
        lambda: listen(settings.listen_conninfo, name=f"listener {owner_id}"),
        [owner_channel(owner_id), UNOWNED_CHANNEL, ENDED_CHANNEL, WEBHOOK_CHANNEL],
        on_wake,
    )


def _on_wake(channel: str, loop: Loop, waiters: JobWaiters, webhook_loop: WebhookLoop) -> None:
    if channel == ENDED_CHANNEL:
        waiters.check()
    elif channel == WEBHOOK_CHANNEL:
        webhook_loop.wake()
    else:
        loop.wake(unowned=channel == UNOWNED_CHANNEL)


def _heartbeat(
    settings: OrchestratorSettings, owner_id: str, guard: OutageGuard, pulse: Pulse, life: Life
) -> Heartbeat:
    instance = Instance(owner_id, socket.gethostname(), os.getpid(), settings.build_id)
    return Heartbeat(
        settings.listen_conninfo,
        instance,
        guard,
        pulse,
        interval_seconds=settings.orchestrator_heartbeat_seconds,
        state=lambda: "draining" if life.draining else "active",
    )


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Connect and run the background parts for as long as requests are served."""
    ctx = build_context(app.state.settings, app.state.identity)
    app.state.context = ctx
    await ctx.pool.open()
    ctx.heartbeat.start()
    ctx.listener.start()
    if ctx.bus is not None:
        ctx.bus.start()
    task = asyncio.create_task(_run(ctx), name="loop")
    chores = asyncio.create_task(upkeep(_chores(ctx)), name="upkeep")
    watched = (ctx.pauses.release_held, ctx.dead_letters.take_over, ctx.slots.sweep)
    watch = asyncio.create_task(upkeep(watched, WATCH_SECONDS), name="watch")
    scaling = asyncio.create_task(upkeep(_scaling(ctx), WRITE_SECONDS), name="scaling")
    hooks = asyncio.create_task(ctx.webhook_loop.run(), name="webhooks")
    app.state.drain = lambda: drain(ctx, task)
    log.info("orchestrator started", extra={"owner_id": ctx.owner_id, "workflows": len(ctx.shelf.catalogue.workflows)})
    try:
        yield
    finally:
        chores.cancel()
        watch.cancel()
        scaling.cancel()
        hooks.cancel()
        await drain(ctx, task)
        task.cancel()
        await depart(ctx)
        await ctx.desk.close()
        await ctx.desk.store.close()
        await ctx.listener.close()
        await ctx.pool.close()
        log.info("orchestrator stopped", extra={"owner_id": ctx.owner_id})


def _chores(ctx: Context) -> Sequence[Chore]:
    values = PayloadUpkeep(ctx.pool, ctx.desk.store)
    reviews = ctx.business.reviews
    return (
        ctx.recover.prepare_months,
        ctx.recover.forget_dead,
        reviews.remind,
        values.remove_orphans,
        ctx.stalls.move_stalled,
    )


def _scaling(ctx: Context) -> Sequence[Chore]:
    metric = ScaleMetric.of(ctx.settings, ctx.pool)
    return () if metric is None else (metric.write_scale,)


async def _run(ctx: Context) -> None:
    """Store the definitions as soon as the database and its schema are there, then loop."""
    while not ctx.life.registered_definitions and not ctx.life.draining:
        try:
            async with pipelined(ctx.pool) as conn:
                await ctx.shelf.register(conn, may_redefine=ctx.settings.environment == "development")
            ctx.life.registered_definitions = True
        except Exception as error:
            known = isinstance(error, DatabaseUnavailable)
            log.warning("definitions not stored yet", extra={"reason": str(error)}, exc_info=not known)
            ctx.loop.pulse.step()
            await asyncio.sleep(REGISTER_RETRY_SECONDS)
    await ctx.loop.run()
