"""What operators ask about one job: why each of its nodes waits, how far it is, when it may be done."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from core.dag.nodes import FanOutNode
from core.dag.progress import Facts, Progress, progress_of
from core.dag.tallies import child_id, parent_of
from core.dag.why import Children, Lost, Surroundings, children_of, told, waiting_for
from core.errors import NotFound, ParameterInvalid
from core.ids import message_id
from core.models.engine import Attempt, Job, NodeState
from core.models.fan_out import FanOut
from core.statuses import JOB_FINAL, AttemptState, JobStatus, NodeStatus
from repositories.attempts import AttemptRepository
from repositories.children import ChildRepository
from repositories.commands import CommandRepository
from repositories.database import AsyncPool, transaction
from repositories.dead_letters import DeadLetterRepository
from repositories.events import EventRepository
from repositories.fan_outs import FanOutRepository
from repositories.history import HistoryRepository
from repositories.jobs import JobRepository
from repositories.nodes import NodeRepository
from repositories.workers import WorkerRepository
from services.definitions import Definitions
from services.work import Connection

HEARD_SECONDS = 30.0
"""A worker that was silent for longer counts as gone."""
CANCEL_MARGIN = timedelta(minutes=1)
"""Before the end of a job in which its cancel is looked for: the two have one clock."""
LOOKED_AT = 10_000
"""Children that are looked at for one page of those in a status."""


@dataclass(frozen=True, slots=True)
class NodeInsight:
    """A node, its newest attempt, why it waits, and, of a fan-out, where it stands."""

    node: NodeState
    attempt: Attempt | None
    waiting_for: Mapping[str, Any] | None
    fan_out: FanOut | None = None
    children: Children | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Who cancelled a job, why and when; for operators alone, it names people."""

    by: str | None
    reason: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class ChildPage:
    """Some children of a fan-out, and behind which number others may follow."""

    children: Sequence[NodeInsight]
    next_after: int | None


class InsightService:
    """Reads; nothing here locks."""

    def __init__(self, pool: AsyncPool, definitions: Definitions) -> None:
        self._pool = pool
        self._definitions = definitions

    async def nodes(self, job_id: str) -> Sequence[NodeInsight]:
        """Return the vertices of a job in the order of its graph, with why each waits. Raises `NotFound`."""
        async with transaction(self._pool) as conn:
            return await self._vertices(conn, await _job(conn, job_id))

    async def node(self, job_id: str, node_id: str) -> NodeInsight:
        """Return a vertex or a child of a fan-out with why it waits. Raises `NotFound`."""
        async with transaction(self._pool) as conn:
            job = await _job(conn, job_id)
            node = await _node(conn, job_id, node_id)
            if node.parent_node_id is not None:
                return (await self._explained(conn, job, [node]))[0]
            return next(one for one in await self._vertices(conn, job) if one.node.node_id == node_id)

    async def children(
        self, job_id: str, node_id: str, *, status: NodeStatus | None, after: int, limit: int
    ) -> ChildPage:
        """Return children of a fan-out behind a number, in order; of so many at most that are looked at.

        Raises:
            NotFound: There is no such job, or it has no such node.
            ParameterInvalid: The node is no fan-out.
        """
        async with transaction(self._pool) as conn:
            job = await _job(conn, job_id)
            await _node(conn, job_id, node_id)
            workflow = self._definitions.get(job.definition_hash)
            if workflow is not None and not isinstance(workflow.nodes.get(node_id), FanOutNode):
                raise ParameterInvalid(f"{node_id} is not a fan_out", field="node_id", value=node_id)
            rows = await (await FanOutRepository(conn).of_jobs([job_id])).rows()
            made = next((one.next_child for one in rows if one.node_id == node_id), 0)
            last = after + LOOKED_AT
            found = await ChildRepository(conn).between(job_id, node_id, after, last, status, limit + 1)
            shown = await self._explained(conn, job, found[:limit])
        if len(found) > limit:
            return ChildPage(shown, found[limit - 1].fan_out_index)
        return ChildPage(shown, last if last < made - 1 else None)

    async def _vertices(self, conn: Connection, job: Job) -> Sequence[NodeInsight]:
        rows = await (await NodeRepository(conn).of_jobs([job.job_id])).rows()
        fan_outs = await (await FanOutRepository(conn).of_jobs([job.job_id])).rows()
        return await self._explained(conn, job, rows, fan_outs)

    async def _explained(
        self, conn: Connection, job: Job, rows: Sequence[NodeState], fan_outs: Sequence[FanOut] = ()
    ) -> Sequence[NodeInsight]:
        """Return nodes, all vertices of a job or some children, with why each waits."""
        attempts = await self._attempts(conn, rows)
        around, _ = await _surroundings(conn, attempts)
        live = await ChildRepository(conn).live(job.job_id) if fan_outs and job.status not in JOB_FINAL else ()
        await self._definitions.fetch(conn, [job.definition_hash])
        workflow = self._definitions.get(job.definition_hash)
        nodes, children = {node.node_id: node for node in rows}, children_of(job, live, around)
        noted = {key: told(node.waiting_for) for key, node in nodes.items()}
        reasons = noted if workflow is None else waiting_for(workflow, job, nodes, attempts, around, children)
        standing = {one.node_id: one for one in fan_outs}
        order = {} if workflow is None else {key: place for place, key in enumerate(workflow.graph.order)}
        return [
            NodeInsight(
                _now(node, attempts.get(key)), attempts.get(key), reasons[key], standing.get(key), children.get(key)
            )
            for key, node in sorted(nodes.items(), key=lambda one: order.get(one[0], len(order)))
        ]

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
            nodes, attempts = {node.node_id: node for node in rows}, await self._attempts(conn, rows)
            around, now = await _surroundings(conn, attempts)
            pauses, live = around.pauses, await ChildRepository(conn).live(job.job_id) if fan_outs else ()
            facts = Facts(
                nodes=nodes,
                attempts=attempts,
                fan_outs={one.node_id: one for one in fan_outs},
                medians=await HistoryRepository(conn).median_seconds(job.workflow_id, workflow.nodes),
                paused=job.paused_at is not None or not pauses.isdisjoint({"all", f"workflow:{job.workflow_id}"}),
                paused_queues={one.removeprefix("queue:") for one in pauses if one.startswith("queue:")},
                now=now,
                reasons=waiting_for(workflow, job, nodes, attempts, around, children_of(job, live, around)),
            )
        return progress_of(workflow, facts)

    async def cancelled(self, job: Job) -> Cancelled | None:
        """Return who cancelled a job, as its log has it; None for one that was not, or whose log is archived."""
        if job.status is not JobStatus.CANCELLED or job.completed_at is None:
            return None
        async with transaction(self._pool) as conn:
            event = await EventRepository(conn).cancel_of(job.job_id, job.completed_at - CANCEL_MARGIN)
        if event is None:
            return None
        said = event.event_data
        return Cancelled(said.get("actor"), said.get("reason") or None, event.created_at)

    async def _attempts(self, conn: Any, nodes: Sequence[NodeState]) -> dict[str, Attempt]:
        tasks = [node.task_id for node in nodes if node.task_id is not None]
        return {one.node_id: one for one in await AttemptRepository(conn).of_tasks(tasks)} if tasks else {}


async def _surroundings(conn: Connection, attempts: Mapping[str, Attempt]) -> tuple[Surroundings, datetime]:
    """Return what decides beside a job, and the clock."""
    (moment,) = await (await CommandRepository(conn).moment([])).rows()
    workers = Counter(one.queue for one in await WorkerRepository(conn).recent(HEARD_SECONDS))
    return Surroundings(moment.pauses, workers, await _lost(conn, attempts.values())), moment.now


async def _lost(conn: Connection, attempts: Iterable[Attempt]) -> Mapping[str, Lost]:
    """Return which messages of tasks in a queue became dead letters."""
    waiting = [message_id(one.task_id, one.dispatch_no) for one in attempts if one.state is AttemptState.QUEUED]
    found = await DeadLetterRepository(conn).lost(waiting) if waiting else ()
    return {one.message_id: one for one in found}


def _now(node: NodeState, attempt: Attempt | None) -> NodeState:
    """Return a node as it is now: a claim does not write the row of a child."""
    if attempt is None or attempt.state is not AttemptState.LEASED or node.status is not NodeStatus.DISPATCHED:
        return node
    return node.model_copy(update={"status": NodeStatus.RUNNING, "started_at": attempt.leased_at})


async def _job(conn: Connection, job_id: str) -> Job:
    job = await JobRepository(conn).get(job_id)
    if job is None:
        raise NotFound(f"there is no job {job_id}", field="job_id", value=job_id[:64])
    return job


async def _node(conn: Connection, job_id: str, node_id: str) -> NodeState:
    node = await NodeRepository(conn).get(job_id, node_id)
    if node is None:
        raise await missing_node(conn, job_id, node_id)
    return node


async def missing_node(conn: Connection, job_id: str, node_id: str) -> NotFound:
    """Return the refusal of a node that a job does not have; a child of a fan-out may only not be made yet."""
    parent = parent_of(node_id)
    fan_outs = await (await FanOutRepository(conn).of_jobs([job_id])).rows() if parent is not None else ()
    fan_out = next((one for one in fan_outs if one.node_id == parent), None)
    told = "" if fan_out is None else f"; {_extent(fan_out, node_id)}"
    return NotFound(f"there is no node {node_id} in job {job_id}{told}", field="node_id", value=node_id[:64])


def _extent(fan_out: FanOut, node_id: str) -> str:
    """Return how far a fan-out got with its children, of which one is not there."""
    name, made, all_of = fan_out.node_id, fan_out.next_child, fan_out.child_count
    number = int(node_id.rpartition("__")[2][:9])
    if node_id != child_id(name, number) or not made <= number < all_of:
        return f"{name} has {all_of} tasks, counted from {child_id(name, 0)}" if all_of else f"{name} has no tasks"
    if fan_out.completed_at is not None:
        return f"{name} ended after it had made {made} of its {all_of} tasks"
    return f"it is not made yet: {name} has made {made} of its {all_of} tasks"
