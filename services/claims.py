"""Claims, heartbeats and leases: attempt transactions, which never touch a job's row (architecture §3.5 and §3.7)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hmac import compare_digest
from typing import Any, assert_never

from core.dag.event_log import ranges
from core.handlers_catalog import CATALOG
from core.ids import token_hash
from core.models.engine import Attempt, Checkpoint
from core.ports import Sealer
from core.statuses import AttemptState
from core.wire import (
    Beat,
    Capacity,
    Claim,
    ClaimAnswer,
    ClaimOutcome,
    ClaimRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    Revocation,
)
from repositories.attempts import AttemptRepository, Claimed
from repositories.checkpoints import CheckpointRepository
from repositories.database import AsyncPool
from repositories.decisions import DecisionRepository
from repositories.events import NewEvent
from repositories.notifications import clock
from repositories.workers import WorkerRepository
from services.checkpoints import checkpoint_rows, is_storable, save_checkpoints
from services.reports import outcomes_of
from services.source_secrets import opened
from services.work import Connection, pipelined

REFUSALS: Mapping[AttemptState, ClaimOutcome] = {
    AttemptState.PARKED: ClaimOutcome.PAUSED,
    AttemptState.LEASED: ClaimOutcome.LEASED,
    AttemptState.REPORTED: ClaimOutcome.FINISHED,
    AttemptState.RELEASED: ClaimOutcome.SUPERSEDED,
    AttemptState.EXPIRED: ClaimOutcome.SUPERSEDED,
    AttemptState.REVOKED: ClaimOutcome.CANCELLED,
}
"""Answers to a claim on an attempt that waits for nobody."""


@dataclass(slots=True)
class Free:
    """What is left of a worker's capacity while its claims are answered one after the other."""

    slots: int
    memory_bytes: int

    @classmethod
    def of(cls, capacity: Capacity, leaving: bool) -> "Free":
        """Return what a worker offers; one that leaves offers nothing."""
        return cls(0 if leaving else capacity.slots, capacity.memory_bytes)

    def take(self, attempt: Attempt) -> str | None:
        """Reserve room for one task, or return what is missing; memory 0 means that the worker does not say."""
        spec = CATALOG.get(attempt.handler)
        needed = spec.memory_bytes if spec else 0
        if self.slots < 1:
            return "no free slot"
        if self.memory_bytes and needed > self.memory_bytes:
            return f"needs {needed} bytes of memory, {self.memory_bytes} are free"
        self.slots -= 1
        self.memory_bytes = max(self.memory_bytes - needed, 1) if self.memory_bytes else 0
        return None


class ClaimService:
    """The callbacks that take and keep leases."""

    def __init__(self, pool: AsyncPool, lease_seconds: float, sealer: Sealer | None = None) -> None:
        self._pool = pool
        self.lease_seconds = lease_seconds
        """Of attempts without a length of their own."""
        self._sealer = sealer

    async def claim(self, request: ClaimRequest) -> list[ClaimAnswer]:
        """Answer claims in their order; the same claim id gets the same answer again."""
        async with pipelined(self._pool) as conn:
            attempts = await AttemptRepository(conn).lock_to_claim(
                [claim.task_id for claim in request.claims], request.worker.queue
            )
            return await self.decide(conn, request, await attempts.rows())

    async def decide(self, conn: Connection, request: ClaimRequest, attempts: Sequence[Claimed]) -> list[ClaimAnswer]:
        """Answer claims on attempts that this transaction has locked, in the order of the claims."""
        found = {one.task_id: one for one in attempts}
        room = _Room(
            Free.of(request.free, request.worker.state != "active"),
            await _checkpoints(conn, found.values()),
            await self._credentials(conn, found.values()),
        )
        answers, granted, parked = self._answer(request, found, room)
        await self._write(conn, request, [(found[task], claim) for task, claim in granted.items()], parked)
        if lacking := _lacking(answers, found):
            await AttemptRepository(conn).note_no_fit(lacking)
        return answers

    def _answer(
        self, request: ClaimRequest, found: Mapping[str, Claimed], room: "_Room"
    ) -> tuple[list[ClaimAnswer], dict[str, str], list[str]]:
        """Return answers, granted claims (task id to claim id), and tasks to park."""
        answers: list[ClaimAnswer] = []
        granted: dict[str, str] = {}
        parked: list[str] = []
        for claim in request.claims:
            attempt = found.get(claim.task_id)
            outcome, reason = _verdict(claim, attempt, room, granted)
            if outcome is ClaimOutcome.GRANTED and attempt is not None:
                if attempt.state is AttemptState.QUEUED:
                    granted[claim.task_id] = claim.claim_id
                answers.append(self._grant(attempt, room))
                continue
            if outcome is ClaimOutcome.PAUSED and attempt is not None and attempt.state is AttemptState.QUEUED:
                parked.append(claim.task_id)
            answers.append(ClaimAnswer(task_id=claim.task_id, outcome=outcome, reason=reason))
        return answers, granted, parked

    async def _credentials(self, conn: Connection, attempts: Iterable[Attempt]) -> Mapping[str, str]:
        """Return the opened credentials of jobs whose source one of these attempts fetches."""
        jobs = {one.job_id for one in attempts if (spec := CATALOG.get(one.handler)) and spec.fetches}
        return await opened(conn, self._sealer, jobs) if jobs and self._sealer else {}

    def _grant(self, attempt: Attempt, room: "_Room") -> ClaimAnswer:
        checkpoint, spec = room.checkpoint(attempt), CATALOG.get(attempt.handler)
        return ClaimAnswer(
            task_id=attempt.task_id,
            outcome=ClaimOutcome.GRANTED,
            lease_seconds=attempt.heartbeat_timeout_seconds or self.lease_seconds,
            handler=attempt.handler,
            params_digest=attempt.params_digest,
            checkpoint=None if checkpoint is None else {"phase": checkpoint.phase, "state": checkpoint.state},
            credential=room.credentials.get(attempt.job_id) if spec and spec.fetches else None,
        )

    async def _write(
        self, conn: Connection, request: ClaimRequest, granted: Sequence[tuple[Claimed, str]], parked: Sequence[str]
    ) -> None:
        if parked:
            await AttemptRepository(conn).park(parked)
        if granted:
            worker_id = request.worker.worker_id
            claims = [
                {
                    "task_id": one.task_id,
                    "job_id": one.job_id,
                    "node_id": None if one.child else one.node_id,
                    "claim_id": claim_id,
                }
                for one, claim_id in granted
            ]
            events = list(started([one for one, _ in granted], worker_id))
            await DecisionRepository(conn).start(claims, worker_id, self.lease_seconds, events)

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Renew the leases of a worker, store progress and checkpoints, and say what it must stop."""
        async with pipelined(self._pool) as conn:
            attempts = await AttemptRepository(conn).lock([beat.task_id for beat in request.beats])
            pending = await clock(conn)
            found = {attempt.task_id: attempt for attempt in await attempts.rows()}
            now = (await pending.rows())[0]
            alive: list[Beat] = []
            revoked: list[Revocation] = []
            for beat in request.beats:
                reason = _why_stop(beat, found.get(beat.task_id))
                if reason is None:
                    alive.append(beat)
                else:
                    revoked.append(Revocation(task_id=beat.task_id, reason=reason))
            beats = _one_a_task(alive)
            saved = [(found[beat.task_id], beat.checkpoint) for beat in beats if beat.checkpoint]
            await self._keep(conn, request, [_renewal(beat) for beat in beats])
            await save_checkpoints(conn, checkpoint_rows(saved, now))
        return HeartbeatResponse(lease_seconds=self.lease_seconds, revoked=tuple(revoked))

    async def _keep(self, conn: Connection, request: HeartbeatRequest, renewals: Sequence[dict[str, Any]]) -> None:
        if renewals:
            await AttemptRepository(conn).renew(renewals, self.lease_seconds)
        await WorkerRepository(conn).beat(request.worker, request.free.model_dump())


@dataclass(frozen=True, slots=True)
class _Room:
    """What else decides about claims: capacity, and the checkpoints that attempts start from."""

    free: Free
    checkpoints: Mapping[tuple[str, str], Checkpoint]
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of jobs whose source is fetched."""

    def checkpoint(self, attempt: Attempt) -> Checkpoint | None:
        """Return the node's checkpoint when it was saved for equal params."""
        found = self.checkpoints.get((attempt.job_id, attempt.node_id))
        return found if found is not None and found.params_digest == attempt.params_digest else None


async def _checkpoints(conn: Connection, attempts: Iterable[Attempt]) -> Mapping[tuple[str, str], Checkpoint]:
    """Return what earlier attempts saved, by job and node; a first attempt has nothing to look for."""
    later = [attempt for attempt in attempts if attempt.attempt > 0]
    if not later:
        return {}
    pending = await CheckpointRepository(conn).of_nodes({one.job_id for one in later}, {one.node_id for one in later})
    return {(one.job_id, one.node_id): one for one in await pending.rows()}


def _lacking(answers: Iterable[ClaimAnswer], found: Mapping[str, Claimed]) -> dict[str, str]:
    """Return what tasks did not find that did not miss the same at the claim before; rarely anything to write."""
    return {
        answer.task_id: answer.reason
        for answer in answers
        if answer.outcome is ClaimOutcome.NO_FIT and answer.reason and found[answer.task_id].no_fit != answer.reason
    }


def _verdict(
    claim: Claim, attempt: Claimed | None, room: _Room, granted: Mapping[str, str]
) -> tuple[ClaimOutcome, str | None]:
    """Return the answer to one claim; only GRANTED and PAUSED of a queued attempt change anything."""
    if attempt is None:
        return ClaimOutcome.UNKNOWN, "no such task"
    if claim.dispatch_no < attempt.dispatch_no:
        return ClaimOutcome.SUPERSEDED, f"dispatch {attempt.dispatch_no} is the newest"
    if not compare_digest(attempt.token_hash, token_hash(claim.token)):
        return ClaimOutcome.UNKNOWN, "the token is not the task's"
    match attempt.state:
        case AttemptState.LEASED if attempt.claim_id == claim.claim_id:
            return ClaimOutcome.GRANTED, None
        case AttemptState.QUEUED:
            return _verdict_on_queued(claim, attempt, room, granted)
        case (
            AttemptState.PARKED
            | AttemptState.LEASED
            | AttemptState.REPORTED
            | AttemptState.RELEASED
            | AttemptState.EXPIRED
            | AttemptState.REVOKED
        ):
            return REFUSALS[attempt.state], attempt.reason
        case _ as never:
            assert_never(never)


def _verdict_on_queued(
    claim: Claim, attempt: Claimed, room: _Room, granted: Mapping[str, str]
) -> tuple[ClaimOutcome, str | None]:
    if claim.task_id in granted:
        return ClaimOutcome.LEASED, "claimed twice in one call"
    if attempt.paused:
        return ClaimOutcome.PAUSED, "the job, its workflow or its queue is paused"
    missing = room.free.take(attempt)
    return (ClaimOutcome.GRANTED, None) if missing is None else (ClaimOutcome.NO_FIT, missing)


def _why_stop(beat: Beat, attempt: Attempt | None) -> str | None:
    """Return why a worker must stop a task, None while it holds the lease."""
    if attempt is None:
        return "no such task"
    if not compare_digest(attempt.token_hash, token_hash(beat.token)):
        return "the token is not the task's"
    if attempt.state is AttemptState.LEASED:
        return None
    return f"the attempt is {attempt.state}" + (f": {attempt.reason}" if attempt.reason else "")


def _one_a_task(beats: Iterable[Beat]) -> Sequence[Beat]:
    """Return one beat a task: a row is written once, and what the newest does not say counts as an earlier one said."""
    found: dict[str, Beat] = {}
    for beat in beats:
        earlier = found.get(beat.task_id)
        found[beat.task_id] = beat if earlier is None else _both(earlier, beat)
    return list(found.values())


def _both(earlier: Beat, newest: Beat) -> Beat:
    said = {name: value for name, value in newest if value is not None}
    if earlier.outcomes and newest.outcomes:
        said["outcomes"] = (*earlier.outcomes, *newest.outcomes)
    return earlier.model_copy(update=said)


def _renewal(beat: Beat) -> dict[str, Any]:
    progress = beat.progress if is_storable(beat.progress, beat.task_id) else None
    outcomes = outcomes_of(beat.outcomes, beat.task_id)
    return {
        "task_id": beat.task_id,
        "progress": progress,
        "peak_rss_bytes": beat.peak_rss_bytes,
        "outcomes": outcomes,
    }


def started(attempts: Iterable[Attempt], worker_id: str | None, now: datetime | None = None) -> Iterator[NewEvent]:
    """Yield an event for each task, and one for all children of a fan-out together."""
    children: dict[tuple[str, str], list[int]] = {}
    for attempt in attempts:
        if attempt.child:
            parent, _, number = attempt.node_id.rpartition("__")
            children.setdefault((attempt.job_id, parent), []).append(int(number))
        else:
            yield _task_started(attempt, worker_id, now)
    for (job_id, node_id), numbers in children.items():
        yield NewEvent(
            job_id=job_id,
            node_id=node_id,
            event_type="children_started",
            event_status="RUNNING",
            event_data={"worker_id": worker_id, "children": ranges(numbers)},
            created_at=now,
        )


def _task_started(attempt: Attempt, worker_id: str | None, now: datetime | None) -> NewEvent:
    return NewEvent(
        job_id=attempt.job_id,
        node_id=attempt.node_id,
        task_id=attempt.task_id,
        event_type="node_started",
        event_status="RUNNING",
        event_data={"worker_id": worker_id, "attempt": attempt.attempt, "dispatch_no": attempt.dispatch_no},
        created_at=now,
    )
