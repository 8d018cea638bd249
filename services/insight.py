"""What operators ask about one job: why each of its nodes waits, how far it is, when it may be done."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.dag.progress import Facts, Progress, progress_of
from core.dag.why import Surroundings, told, waiting_for
from core.errors import NotFound
from core.models.engine import Attempt, Job, NodeState
from core.statuses import JOB_FINAL
from repositories.attempts import AttemptRepository
from repositories.commands import CommandRepository
from repositories.database import AsyncPool, transaction
from repositories.fan_outs import FanOutRepository
from repositories.history import HistoryRepository
from repositories.jobs import JobRepository
from repositories.nodes import NodeRepository
from repositories.workers import WorkerRepository
from services.definitions import Definitions

HEARD_SECONDS = 30.0
"""A worker that was silent for longer counts as gone."""


@dataclass(frozen=True, slots=True)
class NodeInsight:
    """A node, its newest attempt, and why it waits."""

    node: NodeState
    attempt: Attempt | None
    waiting_for: Mapping[str, Any] | None


class InsightService:
    """Reads; nothing here locks."""

    def __init__(self, pool: AsyncPool, definitions: Definitions) -> None:
        self._pool = pool
        self._definitions = definitions

    async def nodes(self, job_id: str) -> Sequence[NodeInsight]:
        """Return the vertices of a job with why each waits. Raises `NotFound`."""
        async with transaction(self._pool) as conn:
            job = await JobRepository(conn).get(job_id)
            if job is None:
                raise NotFound(f"there is no job {job_id}", field="job_id", value=job_id[:64])
            rows = await (await NodeRepository(conn).of_jobs([job_id])).rows()
            attempts = await self._attempts(conn, rows)
            (moment,) = await (await CommandRepository(conn).moment([])).rows()
            workers = Counter(one.queue for one in await WorkerRepository(conn).recent(HEARD_SECONDS))
            await self._definitions.fetch(conn, [job.definition_hash])
        nodes = {node.node_id: node for node in rows}
        workflow = self._definitions.get(job.definition_hash)
        around = Surroundings(moment.pauses, workers)
        noted = {key: told(node.waiting_for) for key, node in nodes.items()}
        reasons = noted if workflow is None else waiting_for(workflow, job, nodes, attempts, around)
        return [NodeInsight(node, attempts.get(key), reasons[key]) for key, node in nodes.items()]

    async def progress(self, job: Job) -> Progress | None:
        """Return how far a job is; None for one that has ended, or whose definition cannot be read."""
        if job.status in JOB_FINAL:
            return None
        async with transaction(self._pool) as conn:
            await self._definitions.fetch(conn, [job.definition_hash])
            workflow = self._definitions.get(job.definition_hash)
            if workflow is None:
                return None
            rows = await (await NodeRepository(conn).of_jobs([job.job_id])).rows()
            fan_outs = await (await FanOutRepository(conn).of_jobs([job.job_id])).rows()
            (moment,) = await (await CommandRepository(conn).moment([])).rows()
            pauses = moment.pauses
            facts = Facts(
                nodes={node.node_id: node for node in rows},
                attempts=await self._attempts(conn, rows),
                fan_outs={one.node_id: one for one in fan_outs},
                medians=await HistoryRepository(conn).median_seconds(job.workflow_id, workflow.nodes),
                paused=job.paused_at is not None or not pauses.isdisjoint({"all", f"workflow:{job.workflow_id}"}),
                paused_queues={one.removeprefix("queue:") for one in pauses if one.startswith("queue:")},
                now=moment.now,
            )
        return progress_of(workflow, facts)

    async def _attempts(self, conn: Any, nodes: Sequence[NodeState]) -> dict[str, Attempt]:
        tasks = [node.task_id for node in nodes if node.task_id is not None]
        return {one.node_id: one for one in await AttemptRepository(conn).of_tasks(tasks)} if tasks else {}
