"""Dead letters: watched, so that a message that nobody can use ends its run, and settled by operators."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from core import dead_letters
from core.dead_letters import Letter, Verdict
from core.errors import Conflict, NotFound
from core.ids import split_task_id
from core.models.engine import Attempt, DeadLetter, TaskResultRow
from repositories.attempts import AttemptRepository
from repositories.database import AsyncPool, transaction
from repositories.dead_letters import Arrived, DeadLetterRepository
from repositories.events import EventRepository, NewEvent
from repositories.jobs import JobRepository
from repositories.notifications import UNOWNED_CHANNEL, clock, notify, owner_channel
from repositories.pauses import PauseRepository
from services.work import Connection

log = logging.getLogger(__name__)

BATCH = 100
LOCK_SECONDS = 1.0

OURSELVES = "geodag"
"""Who settles letters that no operator needs to see."""
REPLAYED = "replayed"
DISCARDED = "discarded"
ATTEMPT_OVER = "attempt_over"
"""Nothing was sent: the attempt that the message was for has ended, or runs."""
_BECAME: Final[Mapping[str, str]] = {ATTEMPT_OVER: "its attempt was over when it was replayed"}
"""A resolution in words, where its name is none."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """A letter with what it means."""

    arrived: Arrived
    attempt: Attempt | None
    verdict: Verdict


class DeadLetterService:
    """Takes letters over and does with them what operators want."""

    def __init__(self, pool: AsyncPool) -> None:
        self._pool = pool

    async def take_over(self) -> int:
        """Take over what workers set aside and return how many letters; their attempts fail through the inbox."""
        taken = 0
        while (batch := await self._take_batch()) > 0:
            taken += batch
        return taken

    async def _take_batch(self) -> int:
        async with transaction(self._pool) as conn:
            arrived = await DeadLetterRepository(conn).take(BATCH)
            if not arrived:
                return 0
            attempts = await (await AttemptRepository(conn).lock([one.task_id for one in arrived])).rows()
            now = (await (await clock(conn)).rows())[0]
            judged = [_judge(one, {attempt.task_id: attempt for attempt in attempts}) for one in arrived]
            stored = await DeadLetterRepository(conn).store([_row(one) for one in judged])
            await EventRepository(conn).append([_event(one, now) for one in judged if one.attempt is not None])
            await self._fail(conn, judged, now)
        for one in judged:
            kind = one.verdict.kind.value
            log.warning("dead letter", extra={"message_id": one.arrived.message_id, "kind": kind})
        for one, letter_id in zip(judged, stored, strict=True):
            if one.verdict.again:
                await self.replay(letter_id, OURSELVES, "the broker gave up delivering it")
        return len(judged)

    async def _fail(self, conn: Connection, judged: Sequence[_Judged], now: datetime) -> None:
        """Put failures of poisoned attempts into the inboxes of their jobs, and wake the owners."""
        failures = {row.task_id: row for one in judged if (row := _failure(one, now)) is not None}
        if not failures:
            return
        await DeadLetterRepository(conn).put_failures(list(failures.values()))
        owners = await JobRepository(conn).owners({row.job_id for row in failures.values()})
        await notify(conn, [UNOWNED_CHANNEL if owner is None else owner_channel(owner) for owner in owners])

    async def list(self, *, only_open: bool, before: int | None, limit: int) -> Sequence[DeadLetter]:
        """Return letters, newest first."""
        async with transaction(self._pool) as conn:
            return await DeadLetterRepository(conn).newest(only_open=only_open, before=before, limit=limit)

    async def replay(self, dead_letter_id: int, actor: str, reason: str | None = None) -> DeadLetter:
        """Let the task of a letter be sent again by its job, as the same attempt; nothing when that is over.

        Raises:
            NotFound: There is no such letter.
            Conflict: DEAD_LETTER_RESOLVED with what became of it.
        """
        async with transaction(self._pool) as conn:
            letter = await self._open(conn, dead_letter_id)
            resolution = REPLAYED if await self._send_again(conn, letter) else ATTEMPT_OVER
            return await self._resolve(conn, letter, resolution, actor, reason)

    async def discard(self, dead_letter_id: int, actor: str, reason: str | None = None) -> DeadLetter:
        """Put a letter away; raises what `replay` raises."""
        async with transaction(self._pool) as conn:
            letter = await self._open(conn, dead_letter_id)
            return await self._resolve(conn, letter, DISCARDED, actor, reason)

    async def _open(self, conn: Connection, dead_letter_id: int) -> DeadLetter:
        letter = await DeadLetterRepository(conn).lock(dead_letter_id)
        if letter is None:
            raise NotFound(f"there is no dead letter {dead_letter_id}", field="dead_letter_id", value=dead_letter_id)
        if letter.resolution is not None:
            became = _BECAME.get(letter.resolution, letter.resolution)
            raise Conflict(
                f"dead letter {dead_letter_id} is settled: {became} by {letter.resolved_by}",
                code="DEAD_LETTER_RESOLVED",
                value=letter.resolution,
            )
        return letter

    async def _send_again(self, conn: Connection, letter: DeadLetter) -> bool:
        if letter.task_id is None or letter.job_id is None:
            return False
        if not await JobRepository(conn).wait_for_lock(letter.job_id, LOCK_SECONDS):
            return False
        if not await DeadLetterRepository(conn).send_again(letter.task_id):
            return False
        return bool(await PauseRepository(conn).wake([letter.job_id]))

    async def _resolve(
        self, conn: Connection, letter: DeadLetter, resolution: str, actor: str, reason: str | None
    ) -> DeadLetter:
        repository = DeadLetterRepository(conn)
        await repository.resolve(letter.dead_letter_id, resolution, actor)
        if letter.job_id is not None and await JobRepository(conn).get(letter.job_id) is not None:
            data = {"dead_letter_id": letter.dead_letter_id, "actor": actor, "reason": reason or ""}
            event = NewEvent(
                job_id=letter.job_id,
                node_id=_node_of(letter.task_id),
                task_id=letter.task_id,
                event_type=f"dead_letter_{resolution}",
                event_data=data,
            )
            await EventRepository(conn).append([event])
        log.info("dead letter settled", extra={"dead_letter_id": letter.dead_letter_id, "resolution": resolution})
        settled = await repository.lock(letter.dead_letter_id)
        return settled or letter


def _judge(arrived: Arrived, attempts: Mapping[str, Attempt]) -> _Judged:
    attempt = attempts.get(arrived.task_id)
    letter = Letter(arrived.message_id, arrived.body, arrived.reason)
    return _Judged(arrived, attempt, dead_letters.judge(letter, attempt))


def _row(judged: _Judged) -> dict[str, Any]:
    arrived, known = judged.arrived, judged.attempt
    return {
        "message_id": arrived.message_id,
        "queue": arrived.queue,
        "task_id": arrived.task_id,
        "job_id": None if known is None else known.job_id,
        "body": dead_letters.without_tokens(arrived.body),
        "reason": arrived.reason,
        "classification": judged.verdict.kind.value,
        "delivery_count": arrived.delivery_count,
        "dead_at": arrived.dead_lettered_at,
    }


def _event(judged: _Judged, now: datetime) -> NewEvent:
    return NewEvent(
        job_id="" if judged.attempt is None else judged.attempt.job_id,
        node_id=_node_of(judged.arrived.task_id),
        task_id=judged.arrived.task_id,
        event_type="dead_letter_found",
        event_data={"classification": judged.verdict.kind.value, "reason": judged.arrived.reason},
        created_at=now,
    )


def _failure(judged: _Judged, now: datetime) -> TaskResultRow | None:
    attempt, error = judged.attempt, judged.verdict.error
    if attempt is None or error is None:
        return None
    return TaskResultRow(
        task_id=attempt.task_id,
        job_id=attempt.job_id,
        node_id=attempt.node_id,
        attempt=attempt.attempt,
        status="failed",
        error=error.model_dump(mode="json", exclude_none=True),
        reported_at=now,
    )


def _node_of(task_id: str | None) -> str | None:
    parts = None if task_id is None else split_task_id(task_id)
    return None if parts is None else parts[1]
