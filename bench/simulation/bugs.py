"""Bugs that the simulation must find: mistakes that engines of this kind have made, planted here and nowhere else."""

import contextvars
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import core.dag.results
import core.dag.tallies
import services.advance
import services.reports
import services.results
from bench.simulation.faults import LATE, Profile
from bench.simulation.patching import replaced
from core.dag.run import Run
from core.ids import split_task_id
from core.models.engine import Attempt, NodeState, TaskResultRow
from core.statuses import JOB_FINAL, NODE_FINAL, AttemptState
from core.wire import TaskResult
from orchestrator.loop import Loop
from repositories.database import AsyncPool
from repositories.decisions import DecisionRepository
from repositories.jobs import DueJob
from services.claims import ClaimService
from services.loading import EVERYTHING_DUE, Locked, lock_jobs
from services.loading_fan_outs import Scope
from services.results import ResultService
from services.work import Connection, pipelined

_seen: contextvars.ContextVar[Locked | None] = contextvars.ContextVar("seen", default=None)
_CONDITION = "AND a.state IS NOT DISTINCT FROM 'queued'"


@contextmanager
def read_before_lock() -> Iterator[None]:
    """Decide from nodes, attempts and results that were read in an earlier transaction than the one with the lock."""
    advance_together: Any = Loop._advance_together
    report: Any = ResultService._report

    async def advance_from_memory(self: Loop, due: Sequence[DueJob]) -> int:
        async with _remembering(self.pool, [job.job_id for job in due], ()):
            return int(await advance_together(self, due))

    async def report_from_memory(self: ResultService, worker_id: str, reports: Sequence[TaskResult], **how: Any) -> Any:
        jobs = {parts[0] for one in reports if (parts := split_task_id(one.task_id))}
        async with _remembering(self._pool, sorted(jobs), [one.task_id for one in reports]):
            return await report(self, worker_id, reports, **how)

    async def lock_only(
        conn: Connection, job_ids: Iterable[str], task_ids: Iterable[str] = (), scope: Scope = EVERYTHING_DUE
    ) -> Locked:
        fresh = await lock_jobs(conn, job_ids, task_ids, scope)
        seen = _seen.get()
        return fresh if seen is None or scope.whole else replace(seen, now=fresh.now, jobs=fresh.jobs)

    with replaced(
        (Loop, "_advance_together", advance_from_memory),
        (ResultService, "_report", report_from_memory),
        (services.advance, "lock_jobs", lock_only),
        (services.results, "lock_jobs", lock_only),
    ):
        yield


@asynccontextmanager
async def _remembering(pool: AsyncPool, job_ids: Sequence[str], task_ids: Sequence[str]) -> AsyncIterator[None]:
    async with pipelined(pool) as conn:
        _seen.set(await lock_jobs(conn, job_ids, task_ids))
    try:
        yield
    finally:
        _seen.set(None)


@contextmanager
def claim_without_state() -> Iterator[None]:
    """Grant an attempt whatever its state: a second delivery of its message is a second lease."""
    answer: Any = ClaimService._answer
    start = DecisionRepository.start

    def answer_blindly(self: ClaimService, request: Any, found: Mapping[str, Any], room: Any) -> Any:
        return answer(self, request, {task: _as(AttemptState.QUEUED, one) for task, one in found.items()}, room)

    async def start_blindly(self: DecisionRepository, *arguments: Any) -> None:
        await start(DecisionRepository(_Rewriting(self._conn)), *arguments)  # type: ignore[arg-type]

    with replaced((ClaimService, "_answer", answer_blindly), (DecisionRepository, "start", start_blindly)):
        yield


@contextmanager
def unfenced_result() -> Iterator[None]:
    """Apply a result to its node whichever attempt it comes from."""
    judge: Any = services.reports._judge

    def judge_blindly(report: Any, attempt: Attempt | None, *arguments: Any) -> Any:
        return judge(report, attempt and _as(AttemptState.LEASED, attempt), *arguments)

    def no_fence(run: Run, row: TaskResultRow) -> str | None:
        node = run.find(row.node_id)
        return "it has ended" if node is None or run.job.status in JOB_FINAL or node.status in NODE_FINAL else None

    with replaced((services.reports, "_judge", judge_blindly), (core.dag.results, "_fence", no_fence)):
        yield


@contextmanager
def fan_in_by_results() -> Iterator[None]:
    """Let a fan-out be over when each of its children has a result, be it one that is to be tried again."""

    def lacks_result(child: NodeState | None) -> bool:
        tried = child is not None and child.retries_used + child.losses_used > 0
        return child is not None and child.status not in NODE_FINAL and not tried

    with replaced((core.dag.tallies, "_is_live", lacks_result)):
        yield


BUGS: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "read_before_lock": read_before_lock,
    "claim_without_state": claim_without_state,
    "fan_in_by_results": fan_in_by_results,
    "unfenced_result": unfenced_result,
}

PROFILES: Mapping[str, Profile] = {"unfenced_result": LATE}
"""Under which a bug is found soon; others under `HARSH`."""


def _as(state: AttemptState, attempt: Any) -> Any:
    """Return the attempt as if it were in a state, when it was granted before."""
    granted = {AttemptState.LEASED, AttemptState.RELEASED, AttemptState.EXPIRED, AttemptState.REVOKED}
    return attempt.model_copy(update={"state": state}) if attempt.state in granted else attempt


class _Rewriting:
    """A connection that leaves the condition out of the claiming statement."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    async def execute(self, query: str, values: Any) -> Any:
        if _CONDITION not in query:
            raise AssertionError("the statement that claims looks otherwise now: plant the bug anew")
        return await self._conn.execute(query.replace(_CONDITION, ""), values)
