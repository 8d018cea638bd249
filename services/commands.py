"""Orders of operators: one transaction that locks the job, obeys, and answers with the state it produced.

A job that somebody holds for longer than a moment gets the order through its inbox (`dag_commands`): whoever advances
it next obeys. Of two orders that exclude each other, the second is refused with the state that won.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, TypeVar

from core.dag.commands import direct_command
from core.dag.orders import APPLIED, DIRECT, REOPENING, Kind, check_order
from core.errors import CallerError, Conflict, DatabaseUnavailable, GeodagError
from core.job_filter import JobBrief, JobFilter
from core.models.engine import Command, Job
from core.statuses import JobStatus
from repositories.commands import CommandRepository
from repositories.database import AsyncPool, lost_to_a_lock, transaction
from repositories.jobs import JobRepository
from repositories.notifications import UNOWNED_CHANNEL, notify, owner_channel
from services.advance import AdvanceService, unevaluated, unknown_job, with_all_children
from services.evaluation import Step, ended_jobs
from services.loading import Locked, lock_jobs
from services.loading_fan_outs import Scope
from services.meant_jobs import statuses_meant
from services.work import Connection, pipelined

log = logging.getLogger(__name__)

LOCK_SECONDS = 0.5
"""How long an order waits for the rows of its job."""
ANSWER_SECONDS = 2.0
"""How long it waits for its outcome when it went through the inbox."""
ANSWER_MANY_SECONDS = 1.0
"""How long an order for many jobs waits for those outcomes, once for all of them."""
LOOK_SECONDS = 0.05
BATCH = 50
Some = TypeVar("Some")


@dataclass(frozen=True, slots=True)
class Order:
    """What somebody wants; `actor` comes from his credential."""

    kind: str
    actor: str
    reason: str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of an order for one job."""

    state: Literal["would_apply", "applied", "pending"]
    job: Job
    """As the order left it; as it is, while the order is pending, and after a dry run."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What became of an order for one of many jobs."""

    job_id: str
    workflow_id: str
    status: JobStatus
    """After the order."""
    outcome: Literal["would_apply", "applied", "pending", "refused", "failed"]
    code: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class _Left:
    """An order that waits in the inbox of one of many jobs."""

    job: JobBrief
    order: Order
    command_id: int


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What became of an order for many jobs, oldest job first; `more` says that the filter means others too."""

    jobs: Sequence[JobOutcome]
    more: bool


class CommandService:
    """The use cases of operators; `on_ended` hears of the jobs that an order ended."""

    def __init__(
        self, pool: AsyncPool, advance: AdvanceService, on_ended: Callable[[Iterable[Job]], None] = lambda _: None
    ) -> None:
        self._pool = pool
        self._advance = advance
        self._on_ended = on_ended

    async def order(self, job_id: str, order: Order, *, dry_run: bool = False) -> Answer:
        """Obey an order for one job; with `dry_run` only say whether it would.

        Raises:
            NotFound: There is no such job, or it has no such node.
            Conflict: The state does not allow it; `value` is the state that won.
            ParameterInvalid: The arguments do not fit.
        """
        if dry_run:
            return await self._foresee(job_id, order)
        try:
            return await self._at_once(job_id, order)
        except DatabaseUnavailable as error:
            if not lost_to_a_lock(error):
                raise
        return await self._through_inbox(job_id, order)

    async def _foresee(self, job_id: str, order: Order) -> Answer:
        async with transaction(self._pool) as conn:
            refusal = (await self._refusals(conn, {job_id: order}))[job_id]
            job = await JobRepository(conn).get(job_id)
        if refusal is not None or job is None:
            raise refusal or unknown_job(job_id)
        return Answer("would_apply", job)

    async def _refusals(self, conn: Connection, orders: Mapping[str, Order]) -> Mapping[str, GeodagError | None]:
        """Return by job why it would not obey the order for it."""
        (moment,) = await (await CommandRepository(conn).moment([])).rows()
        commands = {job_id: _command(job_id, moment.now, order) for job_id, order in orders.items()}
        return await self._advance.foresee(conn, commands)

    async def _at_once(self, job_id: str, order: Order) -> Answer:
        async def attempt(scope: Scope) -> Step:
            async with pipelined(self._pool) as conn:
                if not await JobRepository(conn).wait_for_lock(job_id, LOCK_SECONDS):
                    raise unknown_job(job_id)
                locked = await lock_jobs(conn, [job_id], scope=scope)
                (step,) = await self._obey(conn, locked, {job_id: order})
                return step

        step = await with_all_children(attempt)
        self._tell([step])
        return Answer("applied", _after(step, _refusal(step)))

    async def _obey(self, conn: Connection, locked: Locked, orders: Mapping[str, Order]) -> Sequence[Step]:
        """Obey orders by job id."""
        for job_id, order in orders.items():
            locked = locked.ordered(_command(job_id, locked.now, order))
        return await self._advance.advance_locked(conn, locked, orders)

    async def _through_inbox(self, job_id: str, order: Order) -> Answer:
        """Leave the order where the next advance of the job finds it, and wait a little for its outcome."""
        async with pipelined(self._pool) as conn:
            command_id = await _leave(conn, job_id, order)
        outcome = (await self._wait_for_outcomes({job_id: command_id}, ANSWER_SECONDS)).get(job_id)
        async with transaction(self._pool) as conn:
            job = await JobRepository(conn).get(job_id)
            foreseen = (await self._refusals(conn, {job_id: order}))[job_id] if outcome not in {None, APPLIED} else None
        if job is None:
            raise unknown_job(job_id)
        if outcome is None:
            return Answer("pending", job)
        if outcome != APPLIED:
            raise _refusal_of_stored(job, outcome, foreseen)
        return Answer("applied", job)

    async def _wait_for_outcomes(self, numbers: Mapping[str, int], seconds: float) -> Mapping[str, str]:
        """Return by job what became of stored orders, as far as they are done in time."""
        deadline = time.monotonic() + seconds
        done: dict[str, str] = {}
        spoilt: set[str] = set()
        while True:
            for batch in _batches([job_id for job_id in numbers if job_id not in done and job_id not in spoilt]):
                spoilt |= await self._advance_free(batch)
            async with transaction(self._pool) as conn:
                outcomes = await CommandRepository(conn).outcomes(numbers.values())
            done = {job_id: outcomes[number] for job_id, number in numbers.items() if number in outcomes}
            if len(done) == len(numbers) or time.monotonic() >= deadline:
                return done
            await asyncio.sleep(LOOK_SECONDS)

    async def _advance_free(self, job_ids: Sequence[str]) -> set[str]:
        """Advance those of the jobs that nobody holds any more; return those that cannot be, which spoil no other."""

        async def attempt(scope: Scope) -> Sequence[Step]:
            async with pipelined(self._pool) as conn:
                return await self._advance.advance(conn, job_ids, scope=scope)

        try:
            self._tell(await with_all_children(attempt))
        except Exception as error:
            if (lost := isinstance(error, DatabaseUnavailable)) and not lost_to_a_lock(error):
                raise
            if len(job_ids) > 1:
                log.warning("stored orders go one by one", extra={"jobs": len(job_ids), "error": type(error).__name__})
                return {one for job_id in job_ids for one in await self._advance_free([job_id])}
            if not lost:
                log.exception("stored order not obeyed", extra={"job_id": job_ids[0]})
                return set(job_ids)
        return set()

    def _tell(self, steps: Iterable[Step]) -> None:
        self._on_ended(ended_jobs(steps))

    async def order_many(self, wanted: JobFilter, order: Order, *, limit: int, dry_run: bool) -> Outcomes:
        """Obey an order for every job that a filter means, in batches; with `dry_run` only say which those are.

        Raises:
            NotFound: There is no such order for many jobs.
            ParameterMissing: The filter says nothing, so it would mean every job.
            ParameterInvalid: The arguments do not fit.
        """
        statuses = statuses_meant(wanted, order.kind, order.args)
        check_order(order.kind, order.args)
        async with transaction(self._pool) as conn:
            found = await JobRepository(conn).matching(
                wanted, statuses, limit + 1, children=order.kind not in REOPENING
            )
        meant, more = found[:limit], len(found) > limit
        if dry_run:
            return Outcomes([one for batch in _batches(meant) for one in await self._foresee_batch(batch, order)], more)
        done = [one for batch in _batches(meant) for one in await self._order_batch(batch, order)]
        settled = await self._settled([one for one in done if isinstance(one, _Left)])
        return Outcomes([settled[one.job.job_id] if isinstance(one, _Left) else one for one in done], more)

    async def _settled(self, left: Sequence[_Left]) -> Mapping[str, JobOutcome]:
        """Return by job what has become, a moment later, of orders that others kept from being obeyed at once."""
        if not left:
            return {}
        numbers = {one.job.job_id: one.command_id for one in left}
        outcomes = await self._wait_for_outcomes(numbers, ANSWER_MANY_SECONDS)
        refused = {one.job.job_id: one.order for one in left if outcomes.get(one.job.job_id, APPLIED) != APPLIED}
        async with transaction(self._pool) as conn:
            foreseen = await self._refusals(conn, refused)
            jobs = {job.job_id: job for job in await (await JobRepository(conn).get_many(numbers)).rows()}
        briefs = {one.job.job_id: one.job for one in left}
        return {
            job_id: _of_left(brief, jobs.get(job_id), outcomes.get(job_id), foreseen.get(job_id))
            for job_id, brief in briefs.items()
        }

    async def _foresee_batch(self, jobs: Sequence[JobBrief], order: Order) -> list[JobOutcome]:
        async with transaction(self._pool) as conn:
            refusals = await self._refusals(conn, {job.job_id: order for job in jobs})
        return [_outcome(job, job.status, refusals[job.job_id], "would_apply") for job in jobs]

    async def _order_batch(self, jobs: Sequence[JobBrief], order: Order) -> Sequence[JobOutcome | _Left]:
        """Obey an order for some jobs in one transaction; when one of them spoils it, one by one."""
        if len(jobs) > 1:
            try:
                return await self._order_together(jobs, order)
            except Exception as error:
                if isinstance(error, DatabaseUnavailable) and not lost_to_a_lock(error):
                    raise
                log.warning("orders go one by one", extra={"jobs": len(jobs), "error": type(error).__name__})
        return [await self._order_one(job, order) for job in jobs]

    async def _order_together(self, jobs: Sequence[JobBrief], order: Order) -> Sequence[JobOutcome | _Left]:
        """Obey an order for those of the jobs that nobody holds; the others get it through their inboxes."""
        orders = {job.job_id: _meant(job, order) for job in jobs}

        async def attempt(scope: Scope) -> tuple[Sequence[Step], Mapping[str, int]]:
            async with pipelined(self._pool) as conn:
                locked = await lock_jobs(conn, orders, scope=scope)
                steps = await self._obey(conn, locked, {job_id: orders[job_id] for job_id in sorted(locked.jobs)})
                held = {job_id: one for job_id, one in orders.items() if job_id not in locked.jobs}
                return steps, {job_id: await _leave(conn, job_id, one) for job_id, one in held.items()}

        steps, left = await with_all_children(attempt)
        self._tell(steps)
        by_job = {step.state.job.job_id: step for step in steps}
        return [
            _Left(job, orders[job.job_id], left[job.job_id])
            if job.job_id in left
            else _of_many(job, by_job[job.job_id])
            for job in jobs
        ]

    async def _order_one(self, job: JobBrief, order: Order) -> JobOutcome:
        try:
            answer = await self.order(job.job_id, _meant(job, order))
        except CallerError as error:
            async with transaction(self._pool) as conn:
                found = await JobRepository(conn).get(job.job_id)
            return _outcome(job, found.status if found else job.status, error)
        except DatabaseUnavailable:
            raise
        except Exception:
            log.exception("order failed", extra={"job_id": job.job_id, "kind": order.kind})
            return JobOutcome(job.job_id, job.workflow_id, job.status, "failed", "INTERNAL")
        return JobOutcome(job.job_id, job.workflow_id, answer.job.status, answer.state)


def _meant(job: JobBrief, order: Order) -> Order:
    """Return the order for one job of many: a rerun means the run that the filter found, not one that began since."""
    return replace(order, args={**order.args, "run_no": job.run_no}) if order.kind == Kind.RERUN else order


async def _leave(conn: Connection, job_id: str, order: Order) -> int:
    """Store an order for the next advance of a job and wake its owner."""
    job = await JobRepository(conn).get(job_id)
    if job is None:
        raise unknown_job(job_id)
    command_id = await CommandRepository(conn).put(job_id, order.kind, order.args, order.actor, order.reason)
    await notify(conn, [UNOWNED_CHANNEL if job.owner_id is None else owner_channel(job.owner_id)])
    return command_id


def _refusal(step: Step) -> CallerError | None:
    """Return why the direct order of a step was refused; raise when the evaluation did not come so far."""
    for done in step.decision.commands_done:
        if done.command_id == DIRECT and (done.outcome == APPLIED or done.refusal is not None):
            return done.refusal
    raise unevaluated(step.state.job.job_id)


def _after(step: Step, refusal: CallerError | None) -> Job:
    if refusal is not None:
        raise refusal
    return step.job or step.state.job


def _command(job_id: str, now: datetime, order: Order) -> Command:
    return direct_command(job_id, now, order.kind, order.args, actor=order.actor, reason=order.reason)


def _batches(of: Sequence[Some]) -> Iterator[Sequence[Some]]:
    return (of[start : start + BATCH] for start in range(0, len(of), BATCH))


def _refusal_of_stored(job: Job, outcome: str, foreseen: GeodagError | None) -> GeodagError:
    """Return why a stored order was refused: in the words of one that is given now, while they still hold."""
    if outcome == GeodagError.code:
        return unevaluated(job.job_id)
    if foreseen is not None and foreseen.detail.code == outcome:
        return foreseen
    return Conflict(f"the job is {job.status}: {outcome}", code=outcome, value=job.status.value)


def _of_left(brief: JobBrief, job: Job | None, outcome: str | None, foreseen: GeodagError | None) -> JobOutcome:
    if job is None or outcome is None:
        return JobOutcome(brief.job_id, brief.workflow_id, brief.status, "pending")
    return _outcome(brief, job.status, None if outcome == APPLIED else _refusal_of_stored(job, outcome, foreseen))


def _of_many(job: JobBrief, step: Step) -> JobOutcome:
    status = (step.job or step.state.job).status
    try:
        return _outcome(job, status, _refusal(step))
    except GeodagError as error:
        return _outcome(job, status, error)


def _outcome(
    job: JobBrief, status: JobStatus, error: GeodagError | None, obeyed: Literal["would_apply", "applied"] = "applied"
) -> JobOutcome:
    if error is None:
        return JobOutcome(job.job_id, job.workflow_id, status, obeyed)
    if isinstance(error, CallerError):
        return JobOutcome(job.job_id, job.workflow_id, status, "refused", error.detail.code, error.detail.message)
    return JobOutcome(job.job_id, job.workflow_id, status, "failed", error.detail.code)
