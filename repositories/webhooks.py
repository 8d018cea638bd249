"""Webhook deliveries and signing secrets, in the caller's transaction."""

import secrets
from collections.abc import Sequence
from datetime import datetime

from psycopg import AsyncConnection
from psycopg.rows import class_row, scalar_row

from core.models.business import WebhookDelivery, WebhookSecret
from core.webhooks import EXPIRY, TYPES_OF_ACTION, WebhookType

WEBHOOK_CHANNEL = "dag_webhooks"

_STATE_OF_TYPE = {
    WebhookType.COMPLETED: "completed",
    WebhookType.PENDING_REVIEW: "completed",
    WebhookType.FAILED: "failed",
}
_REVIEW_OF_TYPE = {
    WebhookType.COMPLETED: "pending_review",
    WebhookType.FAILED: None,
}


class WebhookRepository:
    """SQL on `webhook_deliveries`, `webhook_secrets` and the address of a platform."""

    def __init__(self, conn: AsyncConnection) -> None:
        self._conn = conn

    async def announce(self, request_id: str, action: str) -> None:
        """Store what an audited action tells the platform of a request, if it has an address; it leaves on commit."""
        types = TYPES_OF_ACTION.get(action, ())
        if not types:
            return
        cancelled = action == "processing_cancelled"
        await self._conn.execute(
            """
            WITH told AS (
                INSERT INTO dagapp.webhook_deliveries
                    (delivery_id, platform_id, request_id, asset_id, version_ordinal, url, type, request_state, review,
                     next_attempt_at, created_at, expires_at)
                SELECT t.delivery_id, r.platform_id, r.request_id, r.asset_id, r.version_ordinal,
                    coalesce(r.body ->> 'callback_url', p.webhook_url), t.type, coalesce(t.state, r.state), t.review,
                    dagapp.clock(), dagapp.clock(), dagapp.clock() + %(expiry)s
                FROM dagapp.platform_requests AS r
                JOIN dagapp.platforms AS p USING (platform_id)
                CROSS JOIN unnest(%(ids)s::text[], %(types)s::text[], %(states)s::text[], %(reviews)s::text[])
                    AS t(delivery_id, type, state, review)
                WHERE r.request_id = %(request)s AND coalesce(r.body ->> 'callback_url', p.webhook_url) IS NOT NULL
                RETURNING delivery_id
            )
            SELECT pg_notify(%(channel)s, '') WHERE EXISTS (SELECT FROM told)
            """,
            {
                "request": request_id,
                "expiry": EXPIRY,
                "channel": WEBHOOK_CHANNEL,
                "ids": [f"msg_{secrets.token_hex(16)}" for _ in types],
                "types": [str(kind) for kind in types],
                "states": ["cancelled" if cancelled else _STATE_OF_TYPE.get(kind) for kind in types],
                "reviews": [_REVIEW_OF_TYPE.get(kind, str(kind)) for kind in types],
            },
        )

    async def take_due(self, limit: int, hold_seconds: float) -> list[WebhookDelivery]:
        """Return deliveries that are due, held back from others for a while; those too old are given up."""
        await self._conn.execute(
            """
            UPDATE dagapp.webhook_deliveries SET state = 'expired'
            WHERE delivery_id = ANY(ARRAY(
                SELECT delivery_id FROM dagapp.webhook_deliveries
                WHERE state = 'pending' AND next_attempt_at <= dagapp.clock() AND expires_at <= dagapp.clock()
                FOR UPDATE SKIP LOCKED))
            """
        )
        async with self._conn.cursor(row_factory=class_row(WebhookDelivery)) as cursor:
            await cursor.execute(
                """
                UPDATE dagapp.webhook_deliveries
                SET next_attempt_at = dagapp.clock() + make_interval(secs => %s), attempts = attempts + 1
                WHERE delivery_id = ANY(ARRAY(
                    SELECT delivery_id FROM dagapp.webhook_deliveries
                    WHERE state = 'pending' AND next_attempt_at <= dagapp.clock()
                    ORDER BY next_attempt_at LIMIT %s FOR UPDATE SKIP LOCKED))
                RETURNING delivery_id, platform_id, request_id, asset_id, version_ordinal, url, type, request_state,
                    review, state, attempts, next_attempt_at, last_status, last_error, created_at,
                    delivered_at, expires_at
                """,
                (hold_seconds, limit),
            )
            return sorted(await cursor.fetchall(), key=lambda one: (one.created_at, one.delivery_id))

    async def note(
        self, delivery: WebhookDelivery, *, status: int | None, error: str | None, again_at: datetime | None
    ) -> None:
        """Record one attempt: delivered when nothing is to be tried again. A newer attempt's word stands."""
        await self._conn.execute(
            """
            UPDATE dagapp.webhook_deliveries
            SET state = CASE WHEN %(again)s::timestamptz IS NULL THEN 'delivered' ELSE 'pending' END,
                next_attempt_at = coalesce(%(again)s, next_attempt_at), last_status = %(status)s,
                last_error = %(error)s,
                delivered_at = CASE WHEN %(again)s::timestamptz IS NULL THEN dagapp.clock() END
            WHERE delivery_id = %(id)s AND attempts = %(attempts)s AND state = 'pending'
            """,
            {
                "id": delivery.delivery_id,
                "attempts": delivery.attempts,
                "again": again_at,
                "status": status,
                "error": error,
            },
        )

    async def seconds_to_next(self) -> float | None:
        """Return when the next delivery is due, None when none waits."""
        async with self._conn.cursor(row_factory=scalar_row) as cursor:
            await cursor.execute(
                """
                SELECT extract(epoch FROM (
                    SELECT next_attempt_at FROM dagapp.webhook_deliveries WHERE state = 'pending'
                    ORDER BY next_attempt_at LIMIT 1) - dagapp.clock())::float8
                """
            )
            found: float | None = await cursor.fetchone()
            return found

    async def newest(self, platform_id: str | None, state: str | None, limit: int) -> list[WebhookDelivery]:
        """Return the newest deliveries, of one platform or state or of all."""
        async with self._conn.cursor(row_factory=class_row(WebhookDelivery)) as cursor:
            await cursor.execute(
                """
                SELECT delivery_id, platform_id, request_id, asset_id, version_ordinal, url, type, request_state,
                    review, state, attempts, next_attempt_at, last_status, last_error, created_at,
                    delivered_at, expires_at
                FROM dagapp.webhook_deliveries
                WHERE (%(platform)s::text IS NULL OR platform_id = %(platform)s)
                    AND (%(state)s::text IS NULL OR state = %(state)s)
                ORDER BY created_at DESC, delivery_id LIMIT %(limit)s
                """,
                {"platform": platform_id, "state": state, "limit": limit},
            )
            return await cursor.fetchall()

    async def replay(self, delivery_id: str) -> WebhookDelivery | None:
        """Send one again under its own id, whatever became of it."""
        async with self._conn.cursor(row_factory=class_row(WebhookDelivery)) as cursor:
            await cursor.execute(
                """
                UPDATE dagapp.webhook_deliveries
                SET state = 'pending', attempts = 0, next_attempt_at = dagapp.clock(), delivered_at = NULL,
                    expires_at = dagapp.clock() + %s
                WHERE delivery_id = %s
                RETURNING delivery_id, platform_id, request_id, asset_id, version_ordinal, url, type, request_state,
                    review, state, attempts, next_attempt_at, last_status, last_error, created_at,
                    delivered_at, expires_at
                """,
                (EXPIRY, delivery_id),
            )
            found = await cursor.fetchone()
        if found is not None:
            await self._conn.execute("SELECT pg_notify(%s, '')", (WEBHOOK_CHANNEL,))
        return found

    async def secrets_of(self, platform_ids: Sequence[str]) -> list[WebhookSecret]:
        """Return the valid secrets of platforms, newest first."""
        async with self._conn.cursor(row_factory=class_row(WebhookSecret)) as cursor:
            await cursor.execute(
                """
                SELECT platform_id, secret_id, sealed, created_by, created_at, expires_at
                FROM dagapp.webhook_secrets
                WHERE platform_id = ANY(%s) AND (expires_at IS NULL OR expires_at > dagapp.clock())
                ORDER BY created_at DESC, secret_id
                """,
                (list(platform_ids),),
            )
            return await cursor.fetchall()

    async def add_secret(
        self, platform_id: str, secret_id: str, sealed: str, actor: str, keep_seconds: float
    ) -> datetime:
        """Store a new secret; the newest one before stays valid for a while, older ones are removed."""
        await self._conn.execute(
            """
            DELETE FROM dagapp.webhook_secrets
            WHERE platform_id = %(platform)s AND (expires_at IS NOT NULL)
            """,
            {"platform": platform_id},
        )
        await self._conn.execute(
            """
            UPDATE dagapp.webhook_secrets SET expires_at = dagapp.clock() + make_interval(secs => %s)
            WHERE platform_id = %s
            """,
            (keep_seconds, platform_id),
        )
        async with self._conn.cursor(row_factory=scalar_row) as cursor:
            await cursor.execute(
                """
                INSERT INTO dagapp.webhook_secrets (platform_id, secret_id, sealed, created_by)
                VALUES (%s, %s, %s, %s) RETURNING created_at
                """,
                (platform_id, secret_id, sealed, actor),
            )
            created: datetime | None = await cursor.fetchone()
        assert created is not None
        return created

    async def set_url(self, platform_id: str, url: str | None) -> bool:
        """Store where a platform is told; return whether there is such a platform."""
        cursor = await self._conn.execute(
            "UPDATE dagapp.platforms SET webhook_url = %s WHERE platform_id = %s RETURNING platform_id",
            (url, platform_id),
        )
        return await cursor.fetchone() is not None
