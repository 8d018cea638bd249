"""Bugs that the simulation must find: mistakes that engines of this kind have made, planted here and nowhere else."""

import contextvars
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import core.dag.reopening
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
from core.statuses import JOB_FINAL, NODE_FINAL, AttemptState, NodeStatus
from orchestrator.loop import Loop
from repositories.database import AsyncPool
from repositories.decisions import DecisionRepository
from repositories.jobs import DueJob
from services.claims import ClaimService
from services.loading import EVERYTHING_DUE, Locked, lock_jobs
from services.loading_fan_outs import Scope
from services.reports import Told
from services.results import ResultService
from services.work import Connection, pipelined

_seen: contextvars.ContextVar[Locked | None] = contextvars.ContextVar("seen", default=None)
_CONDITION = "AND a.state IS NOT DISTINCT FROM 'queued'"


@contextmanager
def read_before_lock() -> Iterator[None]:
    """Decide from nodes, attempts and results that were read in an earlier transaction than the one with the lock."""
    advance_together: Any = Loop._advance_together
    report: Any = ResultService._report

    async def advance_from_memory(self: Loop, due: Sequence[DueJob], *how: Any) -> int:
        async with _remembering(self.pool, [job.job_id for job in due], ()):
            return int(await advance_together(self, due, *how))

    async def report_from_memory(self: ResultService, worker_id: str, told: Sequence[Told], **how: Any) -> Any:
        tasks = [one.report.task_id for one in told]
        jobs = {parts[0] for task in tasks if (parts := split_task_id(task))}
        async with _remembering(self._pool, sorted(jobs), tasks):
            return await report(self, worker_id, told, **how)

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
        async with _rewriting(self._conn, _CONDITION, "") as conn:
            await start(DecisionRepository(conn), *arguments)

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


@contextmanager
def rerun_without_followers() -> Iterator[None]:
    """Start anew only the nodes that an order means: what follows keeps the end that it had in the run before."""

    def start_alone(run: Run, roots: Iterable[str], event: str, by: Mapping[str, Any]) -> None:
        begun = [node_id for node_id in roots if run.nodes[node_id].status is not NodeStatus.PENDING]
        run.reopen(event, {**by, "nodes": begun})
        for node_id in begun:
            run.reset_node(node_id)

    with replaced((core.dag.reopening, "_start_anew", start_alone)):
        yield


BUGS: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "read_before_lock": read_before_lock,
    "rerun_without_followers": rerun_without_followers,
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


@asynccontextmanager
async def _rewriting(conn: Any, condition: str, other: str) -> AsyncIterator[Any]:
    """Yield a connection that says something else in place of a condition, which one of its statements has to have."""
    rewriting = _Rewriting(conn, condition, other)
    yield rewriting
    if not rewriting.found:
        raise AssertionError("the statement looks otherwise now: plant the bug anew")


class _Rewriting:
    def __init__(self, conn: Any, condition: str, other: str) -> None:
        self._conn = conn
        self._condition = condition
        self._other = other
        self.found = False

    async def execute(self, query: str, values: Any) -> Any:
        self.found = self.found or self._condition in query
        return await self._conn.execute(query.replace(self._condition, self._other), values)
