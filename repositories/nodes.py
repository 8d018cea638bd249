"""Runtime state of the nodes of jobs."""

from collections.abc import Iterable, Sequence
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import scalar_row

from core.models.engine import Attempt, NodeState
from core.statuses import NodeStatus
from repositories.documents import Pending, document, model_row, send


class NodeRepository:
    """SQL on `dag_node_states`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def insert(self, nodes: Sequence[NodeState]) -> None:
        """Store the nodes of new jobs."""
        await self._conn.execute(
            """
            INSERT INTO dagapp.dag_node_states
                (job_id, node_id, status, task_id, attempt, retries_used, losses_used, not_before, skip_reason,
                 waiting_for, input_params, params_override, output, error, parent_node_id, fan_out_index, ready_at,
                 first_dispatched_at, dispatched_at, started_at, completed_at)
            SELECT job_id, node_id, status, task_id, attempt, retries_used, losses_used, not_before, skip_reason,
                waiting_for, input_params, params_override, output, error, parent_node_id, fan_out_index, ready_at,
                first_dispatched_at, dispatched_at, started_at, completed_at
            FROM jsonb_populate_recordset(NULL::dagapp.dag_node_states, %s::jsonb)
            """,
            (document(nodes),),
        )

    async def of_jobs(self, job_ids: Iterable[str]) -> Pending[NodeState]:
        """Return all nodes of these jobs."""
        return await send(
            self._conn,
            model_row(NodeState),
            "SELECT * FROM dagapp.dag_node_states WHERE job_id = ANY(%s)",
            (list(job_ids),),
        )

    async def update(self, nodes: Sequence[NodeState], sources: Sequence[NodeStatus]) -> Pending[str]:
        """Write changed nodes where the status is still `sources[i]`; return the ids written."""
        rows = [{**node.__dict__, "from_status": source} for node, source in zip(nodes, sources, strict=True)]
        return await send(
            self._conn,
            scalar_row,
            """
            UPDATE dagapp.dag_node_states AS n
            SET status = u.status, task_id = u.task_id, attempt = u.attempt, retries_used = u.retries_used,
                losses_used = u.losses_used, not_before = u.not_before, skip_reason = u.skip_reason,
                waiting_for = u.waiting_for, input_params = u.input_params, output = u.output, error = u.error,
                ready_at = u.ready_at, first_dispatched_at = u.first_dispatched_at, dispatched_at = u.dispatched_at,
                started_at = u.started_at, completed_at = u.completed_at
            FROM jsonb_to_recordset(%s::jsonb) AS u(
                job_id text, node_id text, from_status text, status text, task_id text, attempt integer,
                retries_used integer, losses_used integer, not_before timestamptz, skip_reason text, waiting_for jsonb,
                input_params jsonb, output jsonb, error jsonb, ready_at timestamptz, first_dispatched_at timestamptz,
                dispatched_at timestamptz, started_at timestamptz, completed_at timestamptz)
            WHERE n.job_id = ANY(%s) AND n.node_id = ANY(%s)
                AND n.job_id = u.job_id AND n.node_id = u.node_id AND n.status = u.from_status
            RETURNING n.node_id
            """,
            (document(rows), list({node.job_id for node in nodes}), list({node.node_id for node in nodes})),
        )

    async def start(self, attempts: Sequence[Attempt]) -> None:
        """Move the nodes of just leased attempts from DISPATCHED to RUNNING, in the transaction of the claim."""
        await self._conn.execute(
            """
            UPDATE dagapp.dag_node_states
            SET status = 'RUNNING', started_at = dagapp.clock(), waiting_for = NULL
            WHERE job_id = ANY(%s) AND node_id = ANY(%s) AND task_id = ANY(%s) AND status = 'DISPATCHED'
            """,
            (
                list({attempt.job_id for attempt in attempts}),
                list({attempt.node_id for attempt in attempts}),
                [attempt.task_id for attempt in attempts],
            ),
        )
