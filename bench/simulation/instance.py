"""One orchestrator process: the real loop and services and the heartbeat's rules, over a pool with faults."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from bench.simulation.database import SimulatedDatabase
from bench.simulation.desk import SimulatedDesk
from bench.simulation.faults import Faults
from bench.simulation.world import Process, World
from core.dag.catalogue import WorkflowCatalogue
from core.errors import DatabaseUnavailable
from core.models.engine import Job
from core.wire import ExchangeRequest, Grant
from messaging.postgres import PostgresTaskQueue
from orchestrator.heartbeat import Pulse
from orchestrator.loop import Loop
from repositories.blobs_folder import FolderBlobRepository
from repositories.orchestrators import BEAT
from repositories.payloads import PayloadStore
from services.advance import AdvanceService, advance_one
from services.chores import ChoreService
from services.claims import ClaimService
from services.commands import CommandService
from services.definitions import Definitions
from services.jobs import JobService
from services.offers import Offers
from services.recover import OutageGuard, RecoverService
from services.results import ResultService
from services.rooms import RoomService
from services.shelf import Shelf
from services.slots import SlotService
from services.work import Connection

T = TypeVar("T")

HEARTBEAT_SECONDS = 5.0
RETRY_SECONDS = 0.5
THRESHOLD_SECONDS = 15.0
LEASE_SECONDS = 20.0
WATCH_SECONDS = 10.0
POLL_SECONDS = 15.0
"""Longer than in production: a poll is a step, and virtual time is long."""
CALL_SECONDS = 10.0
NO_BLOBS = Path("/nonexistent")
"""No value of the simulation is large."""


class NoAnswer(Exception):
    """A call that nobody answered; it may have been carried out."""


class SimulatedLoop(Loop):
    """The real loop; only its sleep is virtual, and anything may wake it."""

    world: World
    process: Process

    async def _sleep(self, seconds: float) -> None:
        wake = self.world.chance.random() * seconds if self.world.chance.random() < 0.3 else seconds
        await self.world.pause(self.process, max(wake, 0.0))


class Orchestrator:
    """One boot of one instance."""

    def __init__(
        self,
        name: str,
        owner_id: str,
        world: World,
        database: SimulatedDatabase,
        faults: Faults,
        catalogue: WorkflowCatalogue,
    ) -> None:
        self.name = name
        self.owner_id = owner_id
        self.process = Process(owner_id)
        self.draining = False
        self._world = world
        self._faults = faults
        self.pool = database.pool(world, self.process, faults)
        self._own_pool = database.pool(world, self.process, faults, stalls=False)
        """The heartbeat's: it has its own thread and connection."""
        self._guard = OutageGuard(world.now, THRESHOLD_SECONDS, LEASE_SECONDS)
        self._pulse = Pulse(world.now)
        definitions = Definitions()
        desk = SimulatedDesk(PayloadStore(FolderBlobRepository(NO_BLOBS)), world, self.process)
        advance = AdvanceService(
            PostgresTaskQueue(),
            definitions,
            desk,
            on_job_ended=_note_end,
            may_expire_leases=lambda: self._guard.may_expire_leases(world.now),
        )
        desk.advance = advance_one(self.pool, advance, _nobody_waits)
        desk.perform = ChoreService(self.pool, desk.store).perform
        self._jobs = JobService(advance.writer, Shelf(catalogue), definitions, desk, self._current_owner)
        self.commands = CommandService(self.pool, advance)
        self.claims = ClaimService(self.pool, LEASE_SECONDS)
        rooms = RoomService(PostgresTaskQueue(), self.claims)
        self.results, self._offers = ResultService(self.pool, advance, rooms), Offers(rooms)
        self.recover = RecoverService(self.pool, owner_id, THRESHOLD_SECONDS)
        self._slots = SlotService(self.pool)
        self._loop = SimulatedLoop(
            self.pool,
            advance,
            self.recover,
            self._guard,
            self._pulse,
            owner_id,
            POLL_SECONDS,
            hears=lambda: True,
            on_ended=_nobody_waits,
        )
        self._loop.world, self._loop.process = world, self.process

    def start(self) -> None:
        """Begin to beat and to loop."""
        self._world.spawn(self.process, self._beat, "heartbeat")
        self._world.spawn(self.process, self._loop.run, "loop")
        self._world.spawn(self.process, self._sweep, "watch")

    def drain(self) -> None:
        """Give up the jobs in order, then end."""
        self.draining = True
        self._loop.stop()
        self._world.spawn(self.process, self._leave, "drain")

    async def create_job(self, workflow_id: str) -> str:
        """Create a job as the route does."""
        order = await self._jobs.order(workflow_id=workflow_id, inputs={})
        async with self._offers.transaction(self.pool) as (conn, lent):
            (job,) = await self._jobs.create_many(conn, [order], lent)
        return job.job_id

    async def wait_for_tasks(self, request: ExchangeRequest) -> Sequence[Grant]:
        """Let a worker wait as the route does; of one that goes nobody hears, as through a balancer that hangs."""
        offer = self._offers.open(request)
        await self._world.pause(self.process, request.wait_seconds, offer.granted)
        self._offers.close(offer)
        while not offer.granted.done():
            await self._world.pause(self.process, 1.0, offer.granted)
        return offer.granted.result()

    def _current_owner(self) -> str | None:
        return self.owner_id if self._guard.registered and not self.draining else None

    async def _beat(self) -> None:
        while True:
            pause = HEARTBEAT_SECONDS
            if self._pulse.beats:
                began = self._world.now
                try:
                    async with self._own_pool.connection() as conn:
                        state = "draining" if self.draining else "active"
                        await conn.execute(BEAT, (self.owner_id, "sim", 1, "sim", state))
                    self._guard.beat(began)
                except Exception as error:  # noqa: BLE001 — as the heartbeat's thread: whatever it is, it goes on
                    self._faults.note(f"heartbeat {type(error).__name__}")
                    pause = RETRY_SECONDS
            await self._world.pause(self.process, pause)

    async def _sweep(self) -> None:
        while True:
            await self._world.pause(self.process, WATCH_SECONDS)
            with contextlib.suppress(DatabaseUnavailable):
                await self._slots.sweep()

    async def _leave(self) -> None:
        try:
            await self.recover.release_jobs()
            await self.recover.stop()
        except DatabaseUnavailable:
            self._faults.note("drain without database")
        self._world.at(0.0, lambda: self._world.crash(self.process))


async def call(
    world: World,
    faults: Faults,
    caller: Process,
    target: Orchestrator,
    request: Callable[[Orchestrator], Awaitable[T]],
) -> T:
    """Let an orchestrator carry out a request of another process, over a network with faults.

    Raises:
        NoAnswer: It arrived or not, was carried out or not.
    """
    if not target.process.alive:
        raise NoAnswer("connection refused")
    if caller.cut_off_until > world.now:
        raise NoAnswer("no route")
    answer: asyncio.Future[T | NoAnswer] = asyncio.get_running_loop().create_future()

    async def serve() -> None:
        found: T | NoAnswer = NoAnswer("the process died")
        try:
            found = await request(target)
        except DatabaseUnavailable:
            found = NoAnswer("503")
        finally:
            if not answer.done():
                answer.set_result(found)

    for _ in range(faults.request_copies()):
        world.spawn(target.process, serve, "request")
    await world.pause(caller, CALL_SECONDS, answer)
    if not answer.done():
        answer.cancel()
        raise NoAnswer("time-out")
    found = answer.result()
    if isinstance(found, NoAnswer):
        raise found
    if faults.answer_lost():
        raise NoAnswer("the answer was lost")
    return found


async def _note_end(conn: Connection, job: Job) -> None:
    """Stand for what hangs on a job's end; a second end of a run would break the primary key."""
    values = (job.job_id, job.run_no, job.status)
    await conn.execute("INSERT INTO sim.ends (job_id, run_no, status) VALUES (%s, %s, %s)", values)


def _nobody_waits(_: Iterable[Job]) -> None:
    """No HTTP caller waits for the end of a job here."""
