"""One worker: its parts, its life, and how it leaves."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from core.handlers_catalog import HandlerSpec, RunMode
from core.ports import BlobRepository, ExternalExport, TaskReceiver
from core.wire import Capacity, HeartbeatRequest, ReleaseRequest, WorkerIdentity
from edge.fetching import SourceClient
from handlers.context import NO_ZONE
from repositories.payloads import PayloadStore
from worker.capacity import Machine
from worker.child_process import ChildSettings
from worker.client import CallbackClient, NoAnswer, Refused
from worker.consumer import Consumer, ConsumerSettings
from worker.executor import Executor, OpenTransaction, Tools
from worker.frames import Setup
from worker.health import HealthServer, HealthState
from worker.heartbeat import Heartbeat
from worker.intake import Intake
from worker.jail import child_environment
from worker.journal import Journal
from worker.offers import Offerer
from worker.pool import PoolSettings, ProcessPool
from worker.reporter import Reporter
from worker.result_log import ResultLog
from worker.settings import WorkerSettings
from worker.settler import Settler
from worker.state_dir import own_folder, remove_leftovers
from worker.supervisor import Supervisor
from worker.tasks import Slots, TaskTable
from worker.values import TaskValues

GDAL_CACHE_MEGABYTES = 200
CLAIM_GRACE_SECONDS = 0.7
HANDLER_GRACE_SECONDS = 1.5
REPORT_SECONDS = 1.3
END_SECONDS = 0.5
"""For tasks that were killed to end, and for the goodbye."""
IDLE_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Outside:
    """What the composition root connects a worker to."""

    receiver: TaskReceiver
    blobs: BlobRepository
    open_transaction: OpenTransaction
    catalog: Mapping[str, HandlerSpec]
    implementations: Mapping[str, str]
    sources: SourceClient | None = None
    """For handlers that fetch; None when this process has none."""
    external: ExternalExport = NO_ZONE
    """For handlers that copy public versions outside."""
    import_paths: tuple[str, ...] = ()
    """Put before `sys.path` of subprocesses; for handlers that live elsewhere."""
    listens: Callable[[], bool | None] = lambda: None
    """() -> whether the receiver's notifications arrive; None when it has none."""


class Worker:
    """Everything of one worker process but its signals and its settings' source."""

    def __init__(self, settings: WorkerSettings, outside: Outside, logger: logging.Logger) -> None:
        self._settings = settings
        self._outside = outside
        self._logger = logger
        self._locks = [own_folder(folder) for folder in {settings.worker_state_dir, settings.worker_scratch_dir}]
        if count := remove_leftovers(settings.worker_scratch_dir):
            self._logger.info("scratch leftovers removed", extra={"count": count})
        self._state: Literal["active", "draining", "stopped"] = "active"
        self._machine = Machine(settings.worker_scratch_dir)
        self._worker_id = settings.worker_id or f"{socket.gethostname()}-{os.urandom(4).hex()}"
        self._slots = Slots(settings.worker_slots_inline, lambda: len(self._pool), settings.worker_credit)
        self._table = TaskTable()
        self._client = CallbackClient(settings.callback_urls, settings.worker_service_key.get_secret_value())
        store = ResultLog(settings.worker_state_dir, logger)
        self._reporter = Reporter(store, self._client, self._identity(), logger)
        self._pool = ProcessPool(self._pool_settings(), logger, on_ready=self._slots.notice)
        self._supervisor = Supervisor(self._executor(), self._reporter, self._table, self._slots, logger)
        self._settler = Settler(outside.receiver, logger)
        self._intake = self._reporter.intake = self._make_intake()
        self._consumer = self._make_consumer()
        self._offerer = self._make_offerer()
        self._heartbeat = self._make_heartbeat()
        self._health = HealthServer(self._health_state)

    @property
    def health_port(self) -> int:
        """Return where the health server listens."""
        return self._health.port

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then drain; a part that breaks stops the whole worker, which is then restarted.

        Raises:
            ExceptionGroup: of the part that broke.
        """
        await self._health.start(self._settings.worker_health_host, self._settings.worker_health_port)
        await self._pool.start()
        loops = [
            asyncio.create_task(loop, name=name)
            for name, loop in {
                "consumer": self._consumer.run(),
                "reporter": self._reporter.run(),
                "heartbeat": self._heartbeat.run(),
                "settler": self._settler.run(),
            }.items()
        ]
        offering = asyncio.create_task(self._offerer.run(), name="offers")
        loops += [offering] if self._settings.offered_slots else []
        if self._settings.worker_exit_when_idle_seconds > 0:
            loops.append(asyncio.create_task(self._idle(self._settings.worker_exit_when_idle_seconds), name="idle"))
        self._logger.info("worker started", extra={"worker_id": self._worker_id, "health_port": self.health_port})
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({stopping, *loops}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        offering.cancel()
        await self._drain(loops)

    async def _idle(self, seconds: float) -> None:
        """Return, which ends the worker, when for so long nothing ran and no result waited for its answer."""
        busy_at = time.monotonic()
        while (now := time.monotonic()) - busy_at < seconds:
            await asyncio.sleep(min(IDLE_LOOK_SECONDS, seconds))
            if len(self._table) or len(self._reporter):
                busy_at = now

    async def _drain(self, loops: list[asyncio.Task[None]]) -> None:
        """Leave within five seconds: leases and checkpoints first, clean-up after."""
        self._state = "draining"
        self._logger.info("drain started", extra={"running": len(self._table)})
        consumer, *others = loops
        self._intake.stop()
        self._consumer.stop()
        self._supervisor.ask_all_to_stop()
        await asyncio.wait({consumer}, timeout=CLAIM_GRACE_SECONDS)
        consumer.cancel()
        self._supervisor.ask_all_to_stop()
        await self._supervisor.wait_ended(HANDLER_GRACE_SECONDS)
        self._pool.hurry()
        self._supervisor.kill_all()
        await asyncio.gather(
            self._in_time(REPORT_SECONDS, self._release()),
            self._in_time(REPORT_SECONDS, self._reporter.drained()),
            self._in_time(REPORT_SECONDS, self._settler.flush()),
        )
        self._state = "stopped"
        await asyncio.gather(self._in_time(END_SECONDS, self._say_goodbye()), self._supervisor.wait_ended(END_SECONDS))
        for loop in others:
            loop.cancel()
        await self._close()
        broken = [r for r in await asyncio.gather(*loops, return_exceptions=True) if isinstance(r, Exception)]
        self._logger.info("drain ended", extra={"unreported": len(self._reporter)})
        if broken:
            raise ExceptionGroup("a part of the worker broke", broken)

    async def _release(self) -> None:
        """Give back the leases of all tasks that did not end."""
        releases = tuple(task.release() for task in self._table if not task.revoked)
        if releases:
            self._logger.info("leases given back", extra={"count": len(releases)})
            await self._client.releases(ReleaseRequest(worker=self._identity(), releases=releases))

    async def _say_goodbye(self) -> None:
        """Tell operators that nobody is missed here."""
        await self._client.heartbeats(HeartbeatRequest(worker=self._identity(), free=Capacity(slots=0), beats=()))

    async def _in_time(self, seconds: float, step: Coroutine[Any, Any, None]) -> None:
        """Take a step of the drain, but not longer than it may: what it did not do, time-outs of others mend."""
        try:
            async with asyncio.timeout(seconds):
                await step
        except (TimeoutError, NoAnswer, Refused) as exc:
            self._logger.warning("drain step not finished", extra={"reason": f"{type(exc).__name__} {exc}"})

    async def _close(self) -> None:
        await asyncio.gather(
            self._in_time(1.0, self._pool.close()),
            self._in_time(1.0, self._outside.receiver.close()),
            self._in_time(1.0, self._client.close()),
            self._in_time(1.0, self._offerer.close()),
            self._in_time(1.0, self._health.close()),
        )
        for descriptor in self._locks:
            os.close(descriptor)

    def _identity(self) -> WorkerIdentity:
        return WorkerIdentity(
            worker_id=self._worker_id,
            queue=self._settings.worker_queue,
            host=socket.gethostname(),
            pid=os.getpid(),
            build_id=self._settings.build_id,
            state=self._state,
        )

    def _capacity(self) -> Capacity:
        return self._machine.capacity(self._slots.total_free)

    def _executor(self) -> Executor:
        return Executor(
            Tools(
                implementations=self._outside.implementations,
                pool=self._pool,
                blobs=self._outside.blobs,
                values=TaskValues(PayloadStore(self._outside.blobs), self._logger),
                scratch=self._settings.worker_scratch_dir,
                memory_bytes=self._settings.worker_task_memory_bytes,
                journal=Journal(self._settings.worker_journal_file),
                open_transaction=self._outside.open_transaction,
                logger=self._logger,
                sources=self._outside.sources,
                external=self._outside.external,
            )
        )

    def _pool_settings(self) -> PoolSettings:
        warm = tuple(
            self._outside.implementations[spec.name]
            for spec in self._outside.catalog.values()
            if spec.mode is RunMode.SUBPROCESS and spec.queue == self._settings.worker_queue
        )
        setup = Setup(import_paths=self._outside.import_paths, warm=warm)
        child = ChildSettings(child_environment(GDAL_CACHE_MEGABYTES), setup)
        return PoolSettings(self._settings.worker_slots_process, child)

    def _make_consumer(self) -> Consumer:
        settings = ConsumerSettings(self._identity(), self._outside.catalog, self._settings.paced_by, self._capacity)
        return Consumer(
            settings,
            self._outside.receiver,
            self._client,
            self._supervisor,
            self._slots,
            self._settler,
            self._intake,
            self._reporter.drained,
            self._logger,
        )

    def _make_intake(self) -> Intake:
        enabled = self._settings.paced_by is RunMode.INLINE
        return Intake(
            self._outside.catalog, self._slots, self._supervisor.begin, self._machine.capacity, enabled=enabled
        )

    def _make_offerer(self) -> Offerer:
        key, slots = self._settings.worker_service_key.get_secret_value(), self._settings.offered_slots
        clients = [CallbackClient([url], key) for url in self._settings.offer_urls]
        return Offerer(
            clients if slots else [], self._identity, self._intake, slots, self._reporter.follow, self._logger
        )

    def _make_heartbeat(self) -> Heartbeat:
        return Heartbeat(
            self._identity,
            self._capacity,
            self._client,
            self._table,
            self._reporter,
            self._supervisor,
            self._logger,
            self._settings.worker_heartbeat_seconds,
        )

    def _health_state(self) -> HealthState:
        return HealthState(
            draining=self._state != "active",
            last_answer_at=self._client.last_answer_at,
            details={
                "worker_id": self._worker_id,
                "queue": self._settings.worker_queue,
                "build_id": self._settings.build_id,
                "free_slots": {mode.value: self._slots.free(mode) for mode in RunMode},
                "running": [
                    {"task_id": t.task_id, "handler": t.spec.name, "peak_rss_bytes": t.peak_rss_bytes}
                    for t in self._table
                ],
                "unanswered_results": len(self._reporter),
                "listening": self._outside.listens(),
            },
        )
