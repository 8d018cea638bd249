"""Runtime state of the nodes of jobs."""

from collections.abc import Iterable
from typing import Any

from psycopg import AsyncConnection

from core.models.engine import NodeState
from repositories.documents import Pending, model_row, send


class NodeRepository:
    """SQL on `dag_node_states`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def of_jobs(self, job_ids: Iterable[str]) -> Pending[NodeState]:
        """Return all nodes of these jobs."""
        return await send(
            self._conn,
            model_row(NodeState),
            "SELECT * FROM dagapp.dag_node_states WHERE job_id = ANY(%s)",
            (list(job_ids),),
        )
