"""Runs one seed: a cast of processes, a load, a time of faults, a calm end, then the checks."""

import hashlib
import logging
import secrets
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orchestrator.heartbeat
import orchestrator.loop
import services.chores
import services.payload_desk
from bench.simulation.broker import Broker
from bench.simulation.bugs import BUGS
from bench.simulation.checks import violations
from bench.simulation.database import SimulatedDatabase
from bench.simulation.desk import VirtualAsyncio
from bench.simulation.evidence import Evidence, coverage
from bench.simulation.faults import Faults, Profile
from bench.simulation.instance import NoAnswer, Orchestrator, call
from bench.simulation.operator import Operator
from bench.simulation.patching import replaced
from bench.simulation.worker import Disk, Outside, Worker
from bench.simulation.workload import Workload
from bench.simulation.world import Process, SimulationError, World
from core.dag import retry
from core.errors import DatabaseUnavailable

REDISPATCH_SECONDS = 40.0
"""300 in production; here a lost message must not make a history long."""
LIMIT_SECONDS = 24 * 3600.0
"""Virtual time after the last fault within which everything must have ended."""
WATCH_SECONDS = 20.0
LOGGERS = ("services", "orchestrator", "repositories", "messaging")


@dataclass(slots=True)
class History:
    """What came of one seed."""

    seed: int
    violations: list[str] = field(default_factory=list)
    jobs: int = 0
    steps: int = 0
    transactions: int = 0
    virtual_seconds: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    covered: Counter[str] = field(default_factory=Counter)
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Size:
    """How much happens: least and most jobs, least and most virtual seconds with faults."""

    jobs: tuple[int, int] = (3, 8)
    fault_seconds: tuple[float, float] = (30.0, 200.0)
    anew: float = 0.4
    """Chance that an order of the operator is a retry or a rerun, while there are faults."""


SMALL = Size((2, 4), (20.0, 60.0))


class Cast:
    """All processes of a history, with their boots; whoever dies comes back."""

    def __init__(
        self, world: World, database: SimulatedDatabase, faults: Faults, workload: Workload, anew: float
    ) -> None:
        self.world = world
        self.database = database
        self.faults = faults
        self.broker = Broker(world, faults)
        self.disks: list[Disk] = []
        self._catalogue = workload.catalogue()
        self._operator = Operator(world, faults, database, workload, anew)
        self._boots = 0
        self._orchestrators: dict[str, Orchestrator] = {}
        self._workers: dict[str, Worker] = {}
        self._roles: dict[str, tuple[str, int, Disk]] = {}

    def start(self) -> None:
        """Start the broker, two or three orchestrators and three workers."""
        pool = self.database.pool(self.world, self.broker.process, self.faults)
        self.world.spawn(self.broker.process, lambda: self.broker.relay(pool), "relay")
        for number in range(self.world.chance.randint(2, 3)):
            self._start_orchestrator(f"o{number}")
        self.world.spawn(self._operator.process, lambda: self._operator.work(self.orchestrators), "orders")
        queues = [
            "functionapp-tasks",
            "container-tasks",
            self.world.chance.choice(["functionapp-tasks", "container-tasks"]),
        ]
        for number, queue in enumerate(queues):
            disk = Disk()
            self.disks.append(disk)
            self._roles[f"w{number}"] = (queue, self.world.chance.randint(1, 4), disk)
            self._start_worker(f"w{number}")

    def orchestrators(self) -> Sequence[Orchestrator]:
        """Return the newest boot of each orchestrator."""
        return list(self._orchestrators.values())

    def members(self) -> list[Process]:
        """Return the processes that can be hurt."""
        everybody: list[Orchestrator | Worker] = [*self._orchestrators.values(), *self._workers.values()]
        return [one.process for one in everybody]

    def crash_one(self) -> None:
        """Kill any process; it starts again later."""
        name = self.world.chance.choice([*self._orchestrators, *self._workers])
        member = self._orchestrators.get(name) or self._workers[name]
        if member.process.alive:
            self.faults.note("crash")
            self.world.crash(member.process)
            self.world.at(self.world.chance.random() * 40, lambda: self._restart(name))

    def drain_one(self) -> None:
        """Ask any process to leave in order; it starts again later."""
        name = self.world.chance.choice([*self._orchestrators, *self._workers])
        member = self._orchestrators.get(name) or self._workers[name]
        if member.process.alive and not member.process.paused:
            self.faults.note("drain")
            member.drain()
            self.world.at(20 + self.world.chance.random() * 20, lambda: self._restart(name))

    def pause_one(self) -> None:
        """Stop any process and let it go on later."""
        process = self.world.chance.choice(self.members())
        self.faults.note("pause")
        process.paused = True
        self.world.at(self.world.chance.uniform(2, 70), lambda: setattr(process, "paused", False))

    def cut_off_one(self) -> None:
        """Let a worker reach nobody for a while."""
        worker = self.world.chance.choice(list(self._workers.values()))
        self.faults.note("partition")
        worker.process.cut_off_until = self.world.now + self.world.chance.uniform(10, 70)

    def database_away(self) -> None:
        """Let the database be away for some time."""
        self.faults.database_down(self.world.chance.random() * 60)

    def heal(self) -> None:
        """Let everything run again, without faults from now on."""
        self.faults.calm()
        for process in self.members():
            process.paused, process.cut_off_until = False, 0.0
        for name in (*self._orchestrators, *self._workers):
            self._restart(name)

    def _restart(self, name: str) -> None:
        member = self._orchestrators.get(name) or self._workers[name]
        if member.process.alive and not member.draining:
            return
        if member.process.alive:
            self.world.crash(member.process)
        if name in self._orchestrators:
            self._start_orchestrator(name)
        else:
            self._start_worker(name)

    def _start_orchestrator(self, name: str) -> None:
        self._boots += 1
        one = Orchestrator(name, f"{name}b{self._boots}", self.world, self.database, self.faults, self._catalogue)
        self._orchestrators[name] = one
        one.start()

    def _start_worker(self, name: str) -> None:
        self._boots += 1
        queue, slots, disk = self._roles[name]
        outside = Outside(self.world, self.faults, self.broker, self.database, self.orchestrators)
        self._workers[name] = one = Worker(f"{name}b{self._boots}", queue, slots, disk, outside)
        one.start()


async def run_history(
    seed: int,
    database: SimulatedDatabase,
    *,
    bug: str | None = None,
    profile: Profile | None = None,
    size: Size = Size(),
) -> History:
    """Run one seed on an emptied database; what went wrong is in the history.

    Args:
        seed: Draws everything.
        database: Where it happens.
        bug: One of `BUGS` to plant.
        profile: What goes wrong; drawn from the seed when missing.
        size: How much happens.
    """
    await database.empty()
    history = History(seed)
    world = World(seed)
    chance = Random(seed * 2 + 1)
    faults = Faults(world.chance, profile or Profile.draw(chance), world.monotonic)
    workload = Workload.draw(chance)
    names = sorted(workload.definitions)
    cast = Cast(world, database, faults, workload, size.anew)
    load = Load(cast, [chance.choice(names) for _ in range(chance.randint(*size.jobs))])
    planted = BUGS[bug]() if bug else nullcontext()
    async with _recording(history), _virtual(world, seed):
        with planted:
            await _play(history, world, load, chance.uniform(*size.fault_seconds))
    evidence = await Evidence.read(database, cast.disks, workload)
    history.violations += violations(evidence)
    history.covered = coverage(evidence)
    history.jobs = len(evidence.tables["jobs"])
    history.steps, history.transactions = world.steps, database.transactions
    history.virtual_seconds, history.faults = world.now, dict(faults.counts)
    log = [(row["event_type"], row["job_id"], row["node_id"], row["created_at"]) for row in evidence.tables["events"]]
    history.digest = hashlib.sha256(repr(log).encode()).hexdigest()
    return history


async def _play(history: History, world: World, load: "Load", fault_seconds: float) -> None:
    load.start(fault_seconds)
    try:
        await world.run(lambda: load.over)
    except SimulationError as error:
        history.violations.append(f"the history does not end: {error}")
    history.violations += [f"a coroutine failed: {error!r}" for error in world.failures]
    await world.close()


class Load:
    """The client that creates jobs, the faults beside it, and the watch for the end."""

    def __init__(self, cast: Cast, wanted: Sequence[str]) -> None:
        self.over = False
        self._cast = cast
        self._wanted = wanted
        self._process = Process("client")
        self._submitted = False

    def start(self, fault_seconds: float) -> None:
        """Start the cast and begin to submit, and to hurt for some time."""
        world, profile = self._cast.world, self._cast.faults.profile
        self._cast.start()
        world.spawn(self._process, lambda: self._submit(fault_seconds), "submits")
        world.spawn(self._process, self._watch, "watch")
        for every, hurt in (
            (profile.crash_every, self._cast.crash_one),
            (profile.pause_every, self._cast.pause_one),
            (profile.drain_every, self._cast.drain_one),
            (profile.outage_every, self._cast.database_away),
            (profile.partition_every, self._cast.cut_off_one),
        ):
            if every is not None:
                self._repeat(every, hurt)
        world.at(fault_seconds, self._cast.heal)

    def _repeat(self, every: float, hurt: Any) -> None:
        def again() -> None:
            if not self._cast.faults.is_calm:
                hurt()
                self._repeat(every, hurt)

        self._cast.world.at(self._cast.world.chance.expovariate(1 / every), again)

    async def _submit(self, within_seconds: float) -> None:
        world = self._cast.world
        for name in self._wanted:
            await world.pause(self._process, world.chance.random() * within_seconds / len(self._wanted))
            while not await self._create(name):
                await world.pause(self._process, 1.0)
        self._submitted = True

    async def _create(self, name: str) -> bool:
        """Create a job; a submit without an answer is sent again and may make another job."""
        target = self._cast.world.chance.choice(self._cast.orchestrators())
        try:
            await call(self._cast.world, self._cast.faults, self._process, target, lambda one: one.create_job(name))
        except NoAnswer:
            return False
        return True

    async def _watch(self) -> None:
        world = self._cast.world
        began = None
        while not self.over:
            await world.pause(self._process, WATCH_SECONDS)
            if not (self._cast.faults.is_calm and self._submitted):
                continue
            began = world.now if began is None else began
            (row,) = await self._cast.database.rows(
                "SELECT (SELECT count(*) FROM dagapp.dag_jobs WHERE status IN ('PENDING', 'RUNNING'))"
                " + (SELECT count(*) FROM dagapp.dag_task_results WHERE NOT processed)"
                " + (SELECT count(*) FROM dagapp.dag_commands WHERE processed_at IS NULL)"
                " + (SELECT count(*) FROM dagapp.dag_slots) AS left_over"
            )
            unanswered = sum(len(disk.unanswered) for disk in self._cast.disks)
            self.over = row["left_over"] + unanswered == 0 or world.now - began > LIMIT_SECONDS


@asynccontextmanager
async def _recording(history: History) -> AsyncIterator[None]:
    """Count as violations what the engine's own boundaries caught and logged as unexpected."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            unexpected = error is not None and not isinstance(error, DatabaseUnavailable)
            if record.levelno >= logging.ERROR or unexpected:
                history.violations.append(f"logged: {record.getMessage()}: {error!r}")

    handler, loggers = Handler(logging.WARNING), [logging.getLogger(name) for name in LOGGERS]
    states = [(one.level, one.propagate) for one in loggers]
    for one in loggers:
        one.addHandler(handler)
        one.setLevel(logging.WARNING)
        one.propagate = False
    try:
        yield
    finally:
        for one, (level, propagate) in zip(loggers, states, strict=True):
            one.removeHandler(handler)
            one.setLevel(level)
            one.propagate = propagate


class _VirtualTime:
    """Stands in for the module `time` where production code asks it for monotonic seconds."""

    def __init__(self, world: World) -> None:
        self.monotonic = world.monotonic


@asynccontextmanager
async def _virtual(world: World, seed: int) -> AsyncIterator[None]:
    """Put virtual time and reproducible ids in place of the machine's."""
    chance = Random(f"ids of {seed}")
    with replaced(
        (orchestrator.loop, "time", _VirtualTime(world)),
        (orchestrator.heartbeat, "time", _VirtualTime(world)),
        (services.chores, "asyncio", VirtualAsyncio(world)),
        (services.payload_desk, "asyncio", VirtualAsyncio(world)),
        (retry, "REDISPATCH_SECONDS", REDISPATCH_SECONDS),
        (retry, "REDISPATCH_MAX_SECONDS", 4 * REDISPATCH_SECONDS),
        (uuid, "uuid4", lambda: uuid.UUID(int=chance.getrandbits(128), version=4)),
        (secrets, "token_hex", lambda size=32: chance.randbytes(size).hex()),
    ):
        yield
