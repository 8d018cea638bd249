"""One worker process: it follows the worker's protocol (claim, then work; heartbeats; results kept until answered).

Results lie on a disk that outlives the process. What a task does is written in its params, so a job's end is known.
"""

import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bench.simulation.broker import Broker, Parcel
from bench.simulation.database import SimulatedDatabase
from bench.simulation.faults import Faults
from bench.simulation.instance import NoAnswer, Orchestrator, call
from bench.simulation.world import Process, World
from core.errors import Classification, DatabaseUnavailable, ErrorDetail
from core.wire import (
    Beat,
    Capacity,
    Claim,
    ClaimAnswer,
    ClaimOutcome,
    ClaimRequest,
    ExchangeRequest,
    HeartbeatRequest,
    ItemOutcome,
    Release,
    ResultAnswer,
    TaskMessage,
    TaskResult,
    TaskStatus,
    WorkerIdentity,
)
from repositories import roles
from repositories.database import transaction
from repositories.fence import FenceLost, hold

T = TypeVar("T")

BEAT_SECONDS = 5.0
CLAIM_TRIES = 5
EXCHANGES = 0.7
"""How often results are reported where the answer brings tasks; workers of two builds run side by side."""


@dataclass(slots=True)
class Disk:
    """What survives a crash of a worker, and what all its boots did."""

    unanswered: dict[str, TaskResult] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    """Task ids whose handler was started, in order."""
    refused: list[str] = field(default_factory=list)
    """Outcomes of claims that were not granted."""
    written: dict[str, TaskResult] = field(default_factory=dict)
    answers: list[tuple[str, ResultAnswer]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Outside:
    """What a worker finds around it."""

    world: World
    faults: Faults
    broker: Broker
    database: SimulatedDatabase
    orchestrators: Callable[[], Sequence[Orchestrator]]


class Worker:
    """One boot of one worker."""

    def __init__(self, worker_id: str, queue: str, slots: int, disk: Disk, outside: Outside) -> None:
        self.process = Process(worker_id)
        self._queue = queue
        self._slots = slots
        self._disk = disk
        self._outside = outside
        self._world = outside.world
        self._pool = outside.database.pool(outside.world, self.process, outside.faults, roles.WORKER)
        self._running: dict[str, TaskMessage] = {}
        self._outcomes: dict[str, list[ItemOutcome]] = {}
        """Of running batches: what came of the items so far."""
        self._numbers = itertools.count()
        self._kept = 0
        """Slots that are kept free for what an answer brings."""
        self._open = 0
        """Slots that stand open at an instance."""
        self.draining = False

    def start(self) -> None:
        """Begin to consume, to beat and to report."""
        self._world.spawn(self.process, self._consume, "consumer")
        self._world.spawn(self.process, self._beat, "heartbeat")
        self._world.spawn(self.process, self._report, "reporter")
        self._world.spawn(self.process, self._offer, "offers")

    def drain(self) -> None:
        """Give every lease back, then end."""
        self.draining = True
        self._world.spawn(self.process, self._leave, "drain")

    @property
    def _identity(self) -> WorkerIdentity:
        state = "draining" if self.draining else "active"
        return WorkerIdentity(
            worker_id=self.process.name, queue=self._queue, host="sim", pid=1, build_id="sim", state=state
        )

    @property
    def _free(self) -> Capacity:
        return Capacity(slots=self._slots - len(self._running) - self._kept - self._open)

    async def _call(self, request: Callable[[Orchestrator], Awaitable[T]]) -> T:
        """Call any orchestrator that is there, as through a balancer."""
        targets = [one for one in self._outside.orchestrators() if one.process.alive]
        if not targets:
            await self._world.pause(self.process, 1.0)
            raise NoAnswer("no orchestrator")
        return await call(self._world, self._outside.faults, self.process, self._world.chance.choice(targets), request)

    async def _consume(self) -> None:
        while not self.draining:
            room = self._free.slots
            parcels = self._outside.broker.receive(self._queue, room) if room > 0 else ()
            if parcels:
                await self._claim(parcels)
            await self._world.pause(self.process, self._world.chance.random() * (0.2 if parcels else 3.0))

    async def _claim(self, parcels: Sequence[Parcel]) -> None:
        claims = tuple(
            Claim(
                task_id=parcel.message.task_id,
                dispatch_no=parcel.message.dispatch_no,
                token=parcel.message.token,
                claim_id=f"{self.process.name}-{next(self._numbers)}",
            )
            for parcel in parcels
        )
        request = ClaimRequest(worker=self._identity, free=self._free, claims=claims)
        for _ in range(CLAIM_TRIES):
            try:
                answers = await self._call(lambda one: one.claims.claim(request))
            except NoAnswer:
                await self._world.pause(self.process, self._world.chance.random())
                continue
            for parcel, answer in zip(parcels, answers, strict=True):
                self._act(parcel, answer)
            return

    def _act(self, parcel: Parcel, answer: ClaimAnswer) -> None:
        message, broker = parcel.message, self._outside.broker
        if answer.outcome is not ClaimOutcome.GRANTED:
            self._disk.refused.append(answer.outcome)
        match answer.outcome:
            case ClaimOutcome.GRANTED:
                broker.complete(parcel)
                self._begin(message)
            case ClaimOutcome.NO_FIT:
                broker.give_back(parcel, 1.0)
            case ClaimOutcome.UNKNOWN:
                broker.dead_letter(parcel, answer.reason or "unknown")
            case _:
                broker.complete(parcel)

    def _begin(self, message: TaskMessage) -> None:
        self._running[message.task_id] = message
        self._disk.started.append(message.task_id)
        self._world.spawn(self.process, lambda: self._work(message), message.task_id)

    async def _work(self, message: TaskMessage) -> None:
        if message.items is None:
            result = await self._run(message, message.params)
        else:
            result = await self._run_batch(message)
        self._outcomes.pop(message.task_id, None)
        if self._running.pop(message.task_id, None) is not None and result is not None:
            self._disk.written[message.task_id] = self._disk.unanswered[message.task_id] = result

    async def _run(self, message: TaskMessage, params: dict[str, Any], item: int | None = None) -> TaskResult | None:
        """Do one piece of work; None when it may not go on."""
        run_id = f"{self.process.name}-{next(self._numbers)}"
        await self._world.pause(self.process, self._seconds(params))
        if message.task_id not in self._running:
            return None  # revoked: its process was killed
        if params.get("effect") and not await self._take_effect(message, run_id, item):
            return None
        return self._result(message, params)

    async def _run_batch(self, message: TaskMessage) -> TaskResult | None:
        """Run the wanted items one after the other."""
        params = {one["index"]: one["params"] for one in message.params["items"]}
        outcomes = self._outcomes[message.task_id] = []
        for index in message.items or ():
            one = await self._run(message, params[index], index)
            if one is None:
                return None
            outcomes.append(ItemOutcome(index=index, status=one.status, output=one.output, error=one.error))
        ids = {"task_id": message.task_id, "token": message.token}
        return TaskResult(**ids, status=TaskStatus.COMPLETED, outcomes=tuple(outcomes))

    def _seconds(self, params: dict[str, Any]) -> float:
        chance = self._world.chance
        if chance.random() < params.get("hangs", 0.0):
            return 100_000.0
        return chance.random() * float(params.get("seconds", 5.0))

    async def _take_effect(self, message: TaskMessage, run_id: str, item: int | None) -> bool:
        """Change something in place behind the fence; return whether the task may go on."""
        while message.task_id in self._running:
            try:
                async with transaction(self._pool) as conn:
                    await hold(conn, message.task_id, message.token)
                    await conn.execute(
                        "INSERT INTO sim.effects (run_id, task_id, item, seen_move)"
                        " VALUES (%s, %s, %s, (SELECT max(move_id) FROM sim.moves)) ON CONFLICT (run_id) DO NOTHING",
                        (run_id, message.task_id, item),
                    )
                return True
            except FenceLost:
                return False
            except DatabaseUnavailable:
                await self._world.pause(self.process, 1.0)
        return False

    def _result(self, message: TaskMessage, params: dict[str, Any]) -> TaskResult:
        chance = self._world.chance
        ids = {"task_id": message.task_id, "token": message.token}
        if chance.random() < params.get("transient", 0.0):
            error = ErrorDetail(code="SIM_FLAKY", message="try again", classification=Classification.TRANSIENT)
            return TaskResult(**ids, status=TaskStatus.FAILED, error=error)
        if params.get("end") == "bad":
            return TaskResult(**ids, status=TaskStatus.FAILED, error=ErrorDetail(code="SIM_BAD", message="no"))
        if params.get("end") == "poison":
            return TaskResult(**ids, status=TaskStatus.COMPLETED, output=None)
        return TaskResult(
            **ids, status=TaskStatus.COMPLETED, output={**params.get("output", {}), "by": message.task_id}
        )

    async def _beat(self) -> None:
        while True:
            waiting: list[TaskMessage | TaskResult] = [*self._running.values(), *self._disk.unanswered.values()]
            beats = tuple(
                Beat(task_id=one.task_id, token=one.token, outcomes=self._said(one.task_id)) for one in waiting
            )
            request = HeartbeatRequest(worker=self._identity, free=self._free, beats=beats)
            try:
                answer = await self._call(lambda one, request=request: one.claims.heartbeat(request))  # type: ignore[misc]
                for revocation in answer.revoked:
                    self._running.pop(revocation.task_id, None)
                pause = BEAT_SECONDS
            except NoAnswer:
                pause = 1.0
            await self._world.pause(self.process, pause)

    def _said(self, task_id: str) -> tuple[ItemOutcome, ...] | None:
        """Return what came of the items of a running batch so far; None when it is no batch."""
        outcomes = self._outcomes.get(task_id)
        return None if outcomes is None else tuple(outcomes)

    async def _report(self) -> None:
        while True:
            await self._world.pause(self.process, self._world.chance.random() * 2.0)
            results = tuple(self._disk.unanswered.values())
            if results and self._world.chance.random() < EXCHANGES and not self.draining:
                await self._exchange(results)
            elif results:
                await self._send(results)

    async def _exchange(self, results: Sequence[TaskResult]) -> None:
        """Report, and take what the answer brings into slots that are kept free meanwhile."""
        self._kept = max(self._free.slots, 0)
        request = ExchangeRequest(
            worker=self._identity,
            results=tuple(results),
            free=Capacity(slots=self._kept),
            claim_id=f"{self.process.name}-{next(self._numbers)}",
        )
        try:
            answers, _, grants = await self._call(lambda one: one.results.exchange(request))
        except NoAnswer:
            return
        finally:
            self._kept = 0
        self._settle(answers)
        for grant in grants:
            self._outside.faults.note("task with an answer")
            self._begin(grant.message)

    async def _offer(self) -> None:
        """Let a slot stand open at an instance, again and again."""
        while not self.draining:
            await self._world.pause(self.process, self._world.chance.random() * 3.0)
            if self._free.slots <= 0:
                continue
            request = ExchangeRequest(
                worker=self._identity,
                free=Capacity(slots=1),
                claim_id=f"{self.process.name}-{next(self._numbers)}",
                wait_seconds=8.0,
            )
            self._open = 1
            try:
                grants = await self._call(lambda one, request=request: one.wait_for_tasks(request))  # type: ignore[misc]
            except NoAnswer:
                continue
            finally:
                self._open = 0
            for grant in grants:
                self._outside.faults.note("task at an open slot")
                self._begin(grant.message)

    async def _send(self, results: Sequence[TaskResult | Release]) -> bool:
        try:
            answers, _ = await self._call(lambda one: one.results.report(self.process.name, results))
        except NoAnswer:
            return False
        self._settle(answers)
        return True

    def _settle(self, answers: Sequence[ResultAnswer]) -> None:
        for answer in answers:
            self._disk.answers.append((answer.task_id, answer))
            self._disk.unanswered.pop(answer.task_id, None)

    async def _leave(self) -> None:
        releases = tuple(
            Release(task_id=one.task_id, token=one.token, outcomes=self._said(one.task_id))
            for one in self._running.values()
        )
        self._running.clear()
        if releases:
            await self._send(releases)
        self._world.at(0.0, lambda: self._world.crash(self.process))
