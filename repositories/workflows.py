"""Workflow definitions, immutable, by content hash."""

from collections.abc import Iterable, Sequence
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row

from core.models.engine import WorkflowRow


class WorkflowRepository:
    """SQL on `dag_workflows`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def insert(self, definition_hash: str, workflow_id: str, version: int, definition: str) -> None:
        """Store a definition, as JSON text, unless its hash is known: then the text is not even looked at."""
        await self._conn.execute(
            """
            INSERT INTO dagapp.dag_workflows (definition_hash, workflow_id, version, definition)
            SELECT %(hash)s, %(workflow)s, %(version)s, %(definition)s::text::jsonb
            WHERE NOT EXISTS (SELECT FROM dagapp.dag_workflows WHERE definition_hash = %(hash)s)
            ON CONFLICT (definition_hash) DO NOTHING
            """,
            {"hash": definition_hash, "workflow": workflow_id, "version": version, "definition": definition},
        )

    async def get_many(self, definition_hashes: Iterable[str]) -> Sequence[WorkflowRow]:
        """Return the definitions of these hashes."""
        async with self._conn.cursor(row_factory=class_row(WorkflowRow)) as cursor:
            await cursor.execute(
                """
                SELECT definition_hash, workflow_id, version, definition, created_at
                FROM dagapp.dag_workflows WHERE definition_hash = ANY(%s)
                """,
                (list(definition_hashes),),
            )
            return await cursor.fetchall()

    async def is_stored(self, workflow_id: str) -> bool:
        """Return whether any version of a workflow was ever stored."""
        cursor = await self._conn.execute(
            "SELECT FROM dagapp.dag_workflows WHERE workflow_id = %s LIMIT 1", (workflow_id,)
        )
        return await cursor.fetchone() is not None

    async def other_hashes(self, workflow_id: str, version: int, definition_hash: str) -> Sequence[str]:
        """Return hashes under which the same id and version was stored with other content."""
        cursor = await self._conn.execute(
            """
            SELECT definition_hash FROM dagapp.dag_workflows
            WHERE workflow_id = %s AND version = %s AND definition_hash <> %s
            """,
            (workflow_id, version, definition_hash),
        )
        return [row[0] for row in await cursor.fetchall()]
