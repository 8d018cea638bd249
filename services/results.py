"""What workers report: stored once, fenced by attempt and token, applied at once when the job is free.

One transaction stores a result and ends its attempt. When the job's row is free it is advanced in the same
transaction; otherwise, or when that fails, the result waits in the inbox and the owner is woken. A released lease is a
result too.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from core.dag.results import APPLIED
from core.dag.state import Disposition
from core.errors import DatabaseUnavailable
from core.ids import split_task_id
from core.models.engine import Attempt, TaskResultRow
from core.statuses import AttemptState
from core.wire import ExchangeRequest, Grant, Release, ResultAnswer, ResultDisposition, TaskResult
from repositories.database import AsyncPool
from repositories.decisions import DecisionRepository
from repositories.events import NewEvent
from services.advance import AdvanceService, ChildrenNeeded
from services.checkpoints import checkpoint_rows, save_checkpoints
from services.evaluation import Step
from services.loading import Locked, lock_jobs
from services.loading_fan_outs import Scope
from services.reports import Told, Verdict, judge, read
from services.rooms import Room, RoomService
from services.turns import Turns
from services.work import Connection, begin_meanwhile, pipelined
from services.writing import Reported, owner_channels_of

log = logging.getLogger(__name__)

ANSWERS: Mapping[str, ResultDisposition] = {
    "applied": ResultDisposition.APPLIED,
    "superseded": ResultDisposition.SUPERSEDED,
    "poison": ResultDisposition.REJECTED,
}

MANY = 64
"""So many results are written before jobs are evaluated: the server is busy with them meanwhile."""
ONLY_TIMERS = Scope(look=False)


class ResultService:
    """The callbacks that end attempts."""

    def __init__(self, pool: AsyncPool, advance: AdvanceService, rooms: RoomService) -> None:
        self._pool = pool
        self._advance = advance
        self._rooms = rooms
        self._turns = Turns()

    async def exchange(self, request: ExchangeRequest) -> tuple[list[ResultAnswer], Sequence[Step], Sequence[Grant]]:
        """Store and apply results as `report` does, and lease in the same transaction what the worker has room for.

        Older tasks out of the queue come first, then those that these results make. When a job cannot take its step,
        or the call brings nothing, there are no tasks: the worker finds them in the queue.
        """
        room, told = self._rooms.room(request), read(request.results)
        async with self._turns.taken(() if room is None else _jobs_of(request.results)):
            verdicts, steps = await self._report_with(request.worker.worker_id, told, room)
        return _final_answers(verdicts, steps), steps, () if room is None else room.granted()

    async def report(
        self, worker_id: str | None, reports: Sequence[TaskResult | Release]
    ) -> tuple[list[ResultAnswer], Sequence[Step]]:
        """Store and apply reports; return the answers in their order, and the steps that jobs took.

        Without a worker id, the one that holds the lease is taken. When a job cannot take its step, all reports of the
        call are only stored: the loop goes job by job, and reads all children of a fan-out when it has to.
        Idempotent: the same report again is answered as a duplicate.
        """
        verdicts, steps = await self._report_with(worker_id, read(reports), None)
        return _final_answers(verdicts, steps), steps

    async def _report_with(
        self, worker_id: str | None, told: Sequence[Told], room: Room | None
    ) -> tuple[Sequence[Verdict], Sequence[Step]]:
        try:
            return await self._report(worker_id, told, apply=True, room=room)
        except DatabaseUnavailable:
            raise
        except ChildrenNeeded:
            return await self._report(worker_id, told, apply=False)
        except Exception:
            log.exception("reports not applied, left in the inbox", extra={"worker_id": worker_id, "count": len(told)})
            return await self._report(worker_id, told, apply=False)

    async def _report(
        self, worker_id: str | None, told: Sequence[Told], *, apply: bool, room: Room | None = None
    ) -> tuple[Sequence[Verdict], Sequence[Step]]:
        reports = [one.report for one in told]
        job_ids = sorted(_jobs_of(reports))
        async with pipelined(self._pool) as conn:
            taken = await self._rooms.take(conn, room) if room else None
            locked = await lock_jobs(conn, job_ids, [report.task_id for report in reports], ONLY_TIMERS)
            attempts = {attempt.task_id: attempt for group in locked.attempts.values() for attempt in group}
            verdicts = judge(told, attempts, worker_id, locked.now)
            await _save_checkpoints(conn, reports, verdicts, attempts, locked)
            if room and taken:
                room.taken = await taken.deliveries()
            steps = await self._store(conn, locked, verdicts, apply, room)
            if room:
                await self._rooms.claim(conn, room)
        if room:
            room.commit()
        return verdicts, steps

    async def _store(
        self, conn: Connection, locked: Locked, verdicts: Sequence[Verdict], apply: bool, room: Room | None
    ) -> Sequence[Step]:
        """Write inbox rows and attempts, and with `apply` advance the jobs that this transaction holds."""
        ends = [verdict.end(locked.now) for verdict in verdicts if verdict.ends is not None]
        rows = [verdict.row for verdict in verdicts if verdict.row is not None]
        fresh = [row for row in rows if not row.processed]
        theirs = {row.job_id for row in fresh}
        mine = sorted(theirs & locked.jobs.keys()) if apply else []
        ahead: list[TaskResultRow] = []
        if len(ends) >= MANY:
            ahead = [row for row in fresh if row.job_id in mine]
            await DecisionRepository(conn).update(attempts=ends, new_results=[_applied(row) for row in ahead])
            begin_meanwhile(conn)
            ends = []
        written = frozenset(row.task_id for row in ahead)
        rows = [row for row in rows if row.task_id not in written]
        steps = await self._advance.evaluate_locked(conn, _with_results(locked, fresh), mine)
        settled = {d.task_id: d for step in steps for d in step.decision.dispositions}
        reported = Reported(
            results=[_settled(row, settled.get(row.task_id)) for row in rows],
            written=written,
            corrected=[
                _settled(row, settled.get(row.task_id)) for row in ahead if not _is_applied(settled.get(row.task_id))
            ],
            attempts=ends,
            events=[_late_event(row, locked.now) for row in rows if row.processed],
            slots_left=[row.task_id for row in rows if row.processed],
            # Who holds their job may have read the inbox already.
            channels=await owner_channels_of(conn, theirs.difference(mine)),
        )
        await self._advance.writer.update(conn, steps, locked.now, reported, [room] if room else [])
        return steps


def _jobs_of(reports: Iterable[TaskResult | Release]) -> set[str]:
    return {parts[0] for report in reports if (parts := split_task_id(report.task_id))}


def _with_results(locked: Locked, fresh: Sequence[TaskResultRow]) -> Locked:
    """Return the state as it is once these results are stored: in the inbox, their attempts ended."""
    reported = {row.task_id: row for row in fresh}
    attempts = {
        job_id: [_ended(attempt, reported.get(attempt.task_id)) for attempt in group]
        for job_id, group in locked.attempts.items()
    }
    inbox = {job_id: list(rows) for job_id, rows in locked.inbox.items()}
    for row in fresh:
        inbox.setdefault(row.job_id, []).append(row)
    return replace(locked, attempts=attempts, inbox=inbox)


def _ended(attempt: Attempt, row: TaskResultRow | None) -> Attempt:
    if row is None:
        return attempt
    state = AttemptState.RELEASED if row.status == "released" else AttemptState.REPORTED
    return attempt.model_copy(update={"state": state, "ended_at": row.reported_at, "lease_expires_at": None})


def _applied(row: TaskResultRow) -> dict[str, Any]:
    """Return a row as it is when the evaluation has applied it, as becomes of almost all."""
    return {**row.__dict__, "processed": True, "disposition": APPLIED}


def _is_applied(disposition: Disposition | None) -> bool:
    return disposition is not None and disposition.disposition == APPLIED


def _settled(row: TaskResultRow, disposition: Disposition | None) -> TaskResultRow:
    if disposition is None:
        return row
    return row.model_copy(update={"processed": True, "disposition": disposition.disposition})


def _final_answers(verdicts: Iterable[Verdict], steps: Iterable[Step]) -> list[ResultAnswer]:
    """Return the answers after the evaluation: what was stored may still turn out to be superseded or poison."""
    dispositions = {d.task_id: d for step in steps for d in step.decision.dispositions}
    return [_final_answer(verdict.answer, dispositions) for verdict in verdicts]


def _final_answer(answer: ResultAnswer, dispositions: Mapping[str, Disposition]) -> ResultAnswer:
    disposition = dispositions.get(answer.task_id)
    if answer.disposition is not ResultDisposition.APPLIED or disposition is None:
        return answer
    return ResultAnswer(task_id=answer.task_id, disposition=ANSWERS[disposition.disposition], reason=disposition.reason)


def _late_event(row: TaskResultRow, now: datetime) -> NewEvent:
    return NewEvent(
        job_id=row.job_id,
        node_id=row.node_id,
        task_id=row.task_id,
        event_type="result_superseded",
        event_data={"worker_id": row.worker_id, "status": row.status},
        created_at=now,
    )


async def _save_checkpoints(
    conn: Connection,
    reports: Sequence[TaskResult | Release],
    verdicts: Sequence[Verdict],
    attempts: Mapping[str, Attempt],
    locked: Locked,
) -> None:
    """Save what accepted releases carry, before their attempts end."""
    saved: list[tuple[Attempt, dict[str, Any]]] = [
        (attempts[report.task_id], report.checkpoint)
        for report, verdict in zip(reports, verdicts, strict=True)
        if isinstance(report, Release) and report.checkpoint and verdict.ends is not None
    ]
    await save_checkpoints(conn, checkpoint_rows(saved, locked.now))
