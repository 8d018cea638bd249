"""Locks jobs and reads everything that an evaluation may read, all of it after the lock."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from core.dag.state import JobState
from core.models.engine import Attempt, Job, NodeState, TaskResultRow
from repositories.attempts import AttemptRepository
from repositories.jobs import JobRepository
from repositories.nodes import NodeRepository
from repositories.notifications import clock
from repositories.results import ResultRepository
from services.work import Connection

Row = TypeVar("Row", Attempt, NodeState, TaskResultRow)

MAX_RESULTS = 1000
"""Inbox rows that one transaction consumes at most."""


@dataclass(frozen=True, slots=True)
class Locked:
    """Jobs that this transaction holds, with what belongs to them; attempts are locked too."""

    now: datetime
    jobs: Mapping[str, Job]
    attempts: Mapping[str, Sequence[Attempt]]
    """By job; also of jobs that somebody else holds."""
    nodes: Mapping[str, Sequence[NodeState]]
    inbox: Mapping[str, Sequence[TaskResultRow]]

    def state(self, job_id: str, may_expire_leases: bool) -> JobState:
        """Return the evaluator's view of one locked job."""
        results = self.inbox.get(job_id, ())
        reported = {result.task_id for result in results}
        nodes = {node.node_id: node for node in self.nodes[job_id]}
        return JobState(
            job=self.jobs[job_id],
            nodes=nodes,
            attempts=_newest(self.attempts.get(job_id, ()), nodes, reported),
            results=results,
            may_expire_leases=may_expire_leases,
        )


def _newest(attempts: Iterable[Attempt], nodes: Mapping[str, NodeState], reported: set[str]) -> Mapping[str, Attempt]:
    found: dict[str, Attempt] = {}
    for attempt in attempts:
        node = nodes.get(attempt.node_id)
        if node is None:
            continue
        if attempt.task_id == node.task_id or (attempt.task_id in reported and attempt.node_id not in found):
            found[attempt.node_id] = attempt
    return found


async def lock_jobs(conn: Connection, job_ids: Iterable[str], task_ids: Iterable[str] = ()) -> Locked:
    """Lock jobs (never waiting), then attempts, then read nodes, inbox and clock; in pipeline mode one round trip."""
    wanted = list(job_ids)
    jobs = await JobRepository(conn).lock(wanted)
    attempts = await AttemptRepository(conn).lock_of_jobs(wanted, task_ids)
    nodes = await NodeRepository(conn).of_jobs(wanted)
    inbox = await ResultRepository(conn).inbox(wanted, MAX_RESULTS)
    now = await clock(conn)
    return Locked(
        jobs={job.job_id: job for job in await jobs.rows()},
        attempts=_by_job(await attempts.rows()),
        nodes=_by_job(await nodes.rows()),
        inbox=_by_job(await inbox.rows()),
        now=(await now.rows())[0],
    )


def _by_job(rows: Sequence[Row]) -> Mapping[str, Sequence[Row]]:
    grouped: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row.job_id].append(row)
    return grouped
