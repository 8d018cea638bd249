"""The append-only record of who did what, when, why, from what to what."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, LiteralString

from psycopg import AsyncConnection, sql
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from core.decisions import ACTIONS, DecisionRow
from core.models.business import AuditEntry
from repositories.webhooks import WebhookRepository


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAuditEntry:
    """One action about to be recorded."""

    asset_id: str | None
    """None for what concerns a platform as a whole."""
    version_ordinal: int | None
    action: str
    actor: str
    actor_role: str
    reason: str | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    request_id: str | None = None
    platform_id: str | None = None
    """Default: the asset's platform."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which rows are asked for; None means any."""

    asset_id: str | None = None
    version_ordinal: int | None = None
    platform_id: str | None = None
    actor: str | None = None
    action: str | None = None
    request_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


_CONDITIONS: Final[Mapping[str, LiteralString]] = {
    "asset_id": "asset_id = %s",
    "version_ordinal": "version_ordinal = %s",
    "platform_id": "platform_id = %s",
    "actor": "actor = %s",
    "action": "action = %s",
    "request_id": "request_id = %s",
    "since": "created_at >= %s",
    "until": "created_at < %s",
}


class AuditRepository:
    """Writes and reads `dagapp.asset_audit`; rows are never changed."""

    def __init__(self, conn: AsyncConnection) -> None:
        self._conn = conn

    async def add(self, entry: NewAuditEntry) -> None:
        """Append one row; of what partners are told, the telling is stored with it."""
        await self._conn.execute(
            """
            INSERT INTO dagapp.asset_audit
                (asset_id, version_ordinal, action, actor, actor_role, reason, before, after, request_id, platform_id,
                 created_at)
            VALUES (%(asset_id)s::varchar, %(ordinal)s, %(action)s, %(actor)s, %(role)s, %(reason)s, %(before)s,
                    %(after)s, %(request_id)s,
                    coalesce(%(platform_id)s, (SELECT a.platform_id FROM dagapp.geospatial_assets AS a
                                               WHERE a.asset_id = %(asset_id)s::varchar)),
                    dagapp.clock())
            """,
            {
                "asset_id": entry.asset_id,
                "ordinal": entry.version_ordinal,
                "action": entry.action,
                "actor": entry.actor,
                "role": entry.actor_role,
                "reason": entry.reason,
                "before": _json(entry.before),
                "after": _json(entry.after),
                "request_id": entry.request_id,
                "platform_id": entry.platform_id,
            },
        )
        if entry.request_id is not None:
            await WebhookRepository(self._conn).announce(entry.request_id, entry.action)

    async def find(self, wanted: AuditFilter, *, before_id: int | None = None, limit: int = 50) -> list[AuditEntry]:
        """Return rows, the newest first; `before_id` starts behind a row that was seen."""
        given = [(name, getattr(wanted, name)) for name in _CONDITIONS if getattr(wanted, name) is not None]
        conditions: list[LiteralString] = [_CONDITIONS[name] for name, _ in given]
        values = [value for _, value in given]
        if before_id is not None:
            conditions.append("audit_id < %s")
            values.append(before_id)
        statement = sql.SQL(
            "SELECT audit_id, asset_id, version_ordinal, action, actor, actor_role, reason, before, after, request_id,"
            " created_at, platform_id FROM dagapp.asset_audit WHERE {} ORDER BY audit_id DESC LIMIT %s"
        ).format(sql.SQL(" AND ").join(map(sql.SQL, conditions or ["true"])))
        async with self._conn.cursor(row_factory=class_row(AuditEntry)) as cursor:
            await cursor.execute(statement, [*values, limit])
            return await cursor.fetchall()

    async def decisions(self, asset_id: str) -> list[DecisionRow]:
        """Return what was decided about the versions of an asset, the oldest first."""
        async with self._conn.cursor(row_factory=class_row(DecisionRow)) as cursor:
            await cursor.execute(
                """
                SELECT d.asset_id, d.platform_id, d.version_ordinal, r.revision, d.action, d.actor, d.actor_role,
                       d.reason, d.created_at
                FROM dagapp.asset_audit AS d
                LEFT JOIN dagapp.platform_requests AS r ON r.request_id = d.request_id
                WHERE d.asset_id = %s AND d.version_ordinal IS NOT NULL AND d.action = ANY(%s)
                ORDER BY d.audit_id
                """,
                (asset_id, list(ACTIONS)),
            )
            return await cursor.fetchall()


def _json(value: Mapping[str, Any] | None) -> Jsonb | None:
    return None if value is None else Jsonb(dict(value))
