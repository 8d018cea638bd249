"""The append-only record of who did what to an asset."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from core.models.business import AuditEntry
from repositories.webhooks import WebhookRepository


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAuditEntry:
    """One action about to be recorded."""

    asset_id: str
    version_ordinal: int | None
    action: str
    actor: str
    actor_role: str
    reason: str | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    request_id: str | None = None


class AuditRepository:
    """Writes and reads `dagapp.asset_audit`; rows are never changed."""

    def __init__(self, conn: AsyncConnection) -> None:
        self._conn = conn

    async def add(self, entry: NewAuditEntry) -> None:
        """Append one row; of what partners are told, the telling is stored with it."""
        await self._conn.execute(
            """
            INSERT INTO dagapp.asset_audit
                (asset_id, version_ordinal, action, actor, actor_role, reason, before, after, request_id, created_at)
            VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, dagapp.clock())
            """,
            (
                entry.asset_id,
                entry.version_ordinal,
                entry.action,
                entry.actor,
                entry.actor_role,
                entry.reason,
                _json(entry.before),
                _json(entry.after),
                entry.request_id,
            ),
        )
        if entry.request_id is not None:
            await WebhookRepository(self._conn).announce(entry.request_id, entry.action)

    async def of_asset(self, asset_id: str) -> list[AuditEntry]:
        """Return an asset's whole history, oldest first."""
        async with self._conn.cursor(row_factory=class_row(AuditEntry)) as cursor:
            await cursor.execute(
                """
                SELECT audit_id, asset_id, version_ordinal, action, actor, actor_role, reason, before, after,
                       request_id, created_at
                FROM dagapp.asset_audit
                WHERE asset_id = %s
                ORDER BY audit_id
                """,
                (asset_id,),
            )
            return await cursor.fetchall()


def _json(value: Mapping[str, Any] | None) -> Jsonb | None:
    return None if value is None else Jsonb(dict(value))
