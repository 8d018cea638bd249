"""Advances jobs: lock, read, evaluate, write, in the caller's transaction (architecture §3.2 and §3.4).

The first statement locks the jobs, never waiting; everything that is decided comes from what is read after that lock.
A caller that holds no job (SKIP LOCKED passed over it) has to leave it to whoever does.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from core.dag.commands import refusal_of
from core.dag.orders import REOPENING
from core.dag.state import JobState
from core.errors import GeodagError, NotFound
from core.models.engine import Command, Job
from core.ports import TaskQueue
from repositories.database import AsyncPool
from repositories.fan_outs import FanOutRepository
from repositories.jobs import DueJob, JobRepository
from repositories.nodes import NodeRepository
from repositories.resets import ResetRepository
from services.definitions import Definitions
from services.evaluation import Step, ended_jobs, evaluate
from services.loading import EVERYTHING_DUE, Locked, Past, by_job, lock_jobs
from services.loading_fan_outs import Scope
from services.payload_desk import PayloadDesk
from services.reopening import NOBODYS, Reopening
from services.starting import all_born, with_children
from services.work import Connection, after_commit, pipelined
from services.writing import DecisionWriter, OnJobEnded

MayExpire = Callable[[], bool]
"""Asked after the locks were taken: a process that was stopped in between must not believe an older answer."""


Result = TypeVar("Result")


class ChildrenNeeded(GeodagError):
    """A decision reaches children of a fan-out that are not loaded: it needs all live ones, locked with the rest."""

    code = "CHILDREN_NEEDED"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"all children of job {job_id} are needed")
        self.job_id = job_id


async def with_all_children(attempt: Callable[[Scope], Awaitable[Result]]) -> Result:
    """Run a transaction, again with all children of each job that turns out to need them."""
    scope = EVERYTHING_DUE
    while True:
        try:
            return await attempt(scope)
        except ChildrenNeeded as needed:
            if needed.job_id in scope.whole:
                raise
            scope = Scope(whole={*scope.whole, needed.job_id})


@dataclass(frozen=True, slots=True)
class Ownership:
    """Under whose name, and under which epochs, the loop found its jobs."""

    owner_id: str
    epochs: Mapping[str, int]

    @classmethod
    def of(cls, owner_id: str, due: Iterable[DueJob]) -> "Ownership":
        """Return the ownership under which jobs were found due."""
        return cls(owner_id, {job.job_id: job.owner_epoch for job in due})

    def holds(self, job: Job) -> bool:
        """Return whether a locked job still belongs to the owner under the same epoch."""
        return job.owner_id == self.owner_id and job.owner_epoch == self.epochs[job.job_id]


class AdvanceService:
    """The advance transaction, for the loop, for commands and for callbacks."""

    def __init__(
        self,
        queue: TaskQueue,
        definitions: Definitions,
        desk: PayloadDesk,
        *,
        on_job_ended: OnJobEnded,
        may_expire_leases: MayExpire = lambda: True,
        reopening: Reopening = NOBODYS,
    ) -> None:
        self._definitions = definitions
        self._desk = desk
        self._may_expire_leases = may_expire_leases
        self._reopening = reopening
        self.writer = DecisionWriter(queue, on_job_ended, reopening)

    async def advance(
        self,
        conn: Connection,
        job_ids: Iterable[str],
        ownership: Ownership | None = None,
        scope: Scope = EVERYTHING_DUE,
        unwritable: Exception | None = None,
    ) -> Sequence[Step]:
        """Advance those of the jobs that nobody else holds, the loop's only while they are still its own.

        With `unwritable`, the error of a write of theirs, they are not evaluated: it counts as a failed evaluation.

        Raises:
            StaleWrite: The database is not as the locks promise; roll back.
            ChildrenNeeded: Roll back and call again as `with_all_children` does.
        """
        locked = await lock_jobs(conn, job_ids, scope=scope)
        mine = [job_id for job_id, job in locked.jobs.items() if ownership is None or ownership.holds(job)]
        return await self.advance_locked(conn, locked, mine, unwritable)

    async def advance_locked(
        self, conn: Connection, locked: Locked, job_ids: Iterable[str], unwritable: Exception | None = None
    ) -> Sequence[Step]:
        """Evaluate and write jobs that this transaction has locked and read."""
        steps = await self.evaluate_locked(conn, locked, job_ids, unwritable)
        await self.writer.update(conn, steps, locked.now)
        return steps

    async def evaluate_locked(
        self, conn: Connection, locked: Locked, job_ids: Iterable[str], unwritable: Exception | None = None
    ) -> Sequence[Step]:
        """Decide about locked jobs without writing anything; what they need made is asked for."""
        jobs = [locked.jobs[job_id] for job_id in job_ids]
        locked = await self._with_pasts(conn, locked, jobs)
        await self._definitions.fetch(conn, (job.definition_hash for job in jobs))
        may_expire = self._may_expire_leases()
        steps = [self._evaluate(job, locked, may_expire, unwritable) for job in jobs]
        if chores := [chore for step in steps for one in (step, *all_born([step])) for chore in one.decision.chores]:
            after_commit(conn, lambda: self._desk.want_done(chores))  # they read what this transaction writes
        return steps

    def _evaluate(self, job: Job, locked: Locked, may_expire: bool, unwritable: Exception | None) -> Step:
        state = locked.state(job.job_id, may_expire, self._desk.answers, self._definitions.known)
        step = evaluate(self._definitions.get(job.definition_hash), state, locked.now, unwritable)
        step = with_children(step, locked.now, self._definitions)
        if step.decision.needs_children:
            raise ChildrenNeeded(job.job_id)
        for one in (step, *all_born([step])):
            self._desk.want(one.state.job.job_id, one.decision.needs)
        return step

    async def foresee(self, conn: Connection, commands: Mapping[str, Command]) -> Mapping[str, GeodagError | None]:
        """Return by job why it would not obey a command, as far as its rows tell; locks and writes nothing."""
        jobs = {job.job_id: job for job in await (await JobRepository(conn).get_many(commands)).rows()}
        nodes = by_job(await (await NodeRepository(conn).of_jobs(jobs)).rows())
        fan_outs = by_job(await (await FanOutRepository(conn).of_jobs(jobs)).rows())
        await self._definitions.fetch(conn, (job.definition_hash for job in jobs.values()))
        found: dict[str, GeodagError | None] = {}
        for job_id, command in commands.items():
            job = jobs.get(job_id)
            if job is None:
                found[job_id] = unknown_job(job_id)
            elif (workflow := self._definitions.get(job.definition_hash)) is None:
                found[job_id] = unevaluated(job_id)
            else:
                state = JobState(
                    job=job,
                    nodes={node.node_id: node for node in nodes.get(job_id, ())},
                    fan_outs={row.node_id: row for row in fan_outs.get(job_id, ())},
                    reopen_refusal=await self._reopening.foreseen(conn, job) if command.kind in REOPENING else None,
                )
                found[job_id] = refusal_of(workflow, state, command)
        return found

    async def _with_pasts(self, conn: Connection, locked: Locked, jobs: Sequence[Job]) -> Locked:
        """Read what orders to start a job anew have to know; other jobs cost nothing."""
        pasts = {
            job.job_id: Past(
                await self._reopening.refusal(conn, job), await ResetRepository(conn).child_attempts(job.job_id)
            )
            for job in jobs
            if locked.may_reopen(job.job_id)
        }
        return replace(locked, pasts=pasts) if pasts else locked


def unknown_job(job_id: str) -> NotFound:
    """Return what is told of a job that is not there."""
    return NotFound(f"there is no job {job_id}", field="job_id", value=job_id[:64])


def unevaluated(job_id: str) -> GeodagError:
    """Return what is told of an order for a job whose evaluation did not come so far."""
    return GeodagError(f"job {job_id} could not be evaluated; the order was not obeyed")


def advance_one(
    pool: AsyncPool, advance: AdvanceService, on_ended: Callable[[Iterable[Job]], None]
) -> Callable[[str], Awaitable[bool]]:
    """Return a function that advances one job in a transaction of its own; it says whether it could."""

    async def run(job_id: str) -> bool:
        async def attempt(scope: Scope) -> Sequence[Step]:
            async with pipelined(pool) as conn:
                return await advance.advance(conn, [job_id], scope=scope)

        steps = await with_all_children(attempt)
        on_ended(ended_jobs(steps))
        return bool(steps)

    return run
