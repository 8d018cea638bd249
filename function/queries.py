"""Read-only queries over the views of schema dagapi, as the role geodag_gateway."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from core.b2b import is_key
from core.decisions import DecisionRow
from core.models.business import ApprovalState, RequestState
from core.review_view import CommentRow, ReviewRow
from core.status_view import AssetFilter, AssetRow, RequestFacts, VersionRow
from repositories.database import AsyncPool, Dsn, async_pool, snapshot, transaction

POOL_SIZE: Final = 1
"""Azure starts instances of the app as it likes, each with a pool of its own; a read takes milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewFilter:
    """Which versions an inbox shows."""

    state: ApprovalState = ApprovalState.PENDING_REVIEW
    platform_id: str | None = None
    data_type: str | None = None
    overdue_at: datetime | None = None
    """Only those whose review was due before this time."""


async def _versions(conn: AsyncConnection[Any], asset_ids: Sequence[str]) -> list[VersionRow]:
    async with conn.cursor(row_factory=class_row(VersionRow)) as cursor:
        await cursor.execute(
            """
            SELECT asset_id, platform_id, version_ordinal, version_label, revision, title, description, tags,
                   access_level, approval_state, processing_state, rejection_reason, content_hash,
                   blob_size_bytes, stac_item_id, stac_collection_id, report, findings, error,
                   submitted_by, created_at, updated_at, external_blob_path
            FROM dagapi.versions
            WHERE asset_id = ANY(%s)
            ORDER BY asset_id, version_ordinal
            """,
            (list(asset_ids),),
        )
        return await cursor.fetchall()


class GatewayQueries:
    """Reads; the pool opens with the first one, on the event loop that serves it."""

    def __init__(self, dsn: Dsn) -> None:
        self._dsn = dsn
        self._pool: AsyncPool | None = None

    async def request(self, request_id: str) -> RequestFacts | None:
        """Return a request with the state of its version and asset."""
        if not is_key(request_id):
            return None
        async with transaction(await self._open()) as conn, conn.cursor(row_factory=class_row(RequestFacts)) as cursor:
            await cursor.execute(
                """
                SELECT request_id, platform_id, asset_id, version_ordinal, revision, state, progress, errors, warnings,
                       processing_state, review, reason, submitted_by, clearance_state, exposure,
                       latest_approved_version_ordinal, deleted, created_at,
                       greatest(updated_at, version_updated_at, asset_updated_at) AS updated_at
                FROM dagapi.requests
                WHERE request_id = %s
                """,
                (request_id,),
            )
            return await cursor.fetchone()

    async def asset(self, asset_id: str) -> tuple[AssetRow | None, list[VersionRow]]:
        """Return a live asset and its live versions, oldest first."""
        if not is_key(asset_id):
            return None, []
        async with snapshot(await self._open()) as conn:
            async with conn.cursor(row_factory=class_row(AssetRow)) as cursor:
                await cursor.execute(
                    """
                    SELECT asset_id, platform_id, platform_refs, data_type, clearance_state, exposure,
                           latest_approved_version_ordinal, created_at, updated_at
                    FROM dagapi.assets
                    WHERE asset_id = %s
                    """,
                    (asset_id,),
                )
                asset = await cursor.fetchone()
            return asset, await _versions(conn, [asset_id])

    async def assets(
        self, wanted: AssetFilter, *, after: tuple[datetime, str] | None, limit: int
    ) -> list[tuple[AssetRow, list[VersionRow]]]:
        """Return live assets with their live versions, the newest assets first."""
        after_time, after_id = after or (None, None)
        refs = None if wanted.refs is None else Jsonb(dict(wanted.refs))
        async with snapshot(await self._open()) as conn:
            async with conn.cursor(row_factory=class_row(AssetRow)) as cursor:
                await cursor.execute(
                    """
                    SELECT asset_id, platform_id, platform_refs, data_type, clearance_state, exposure,
                           latest_approved_version_ordinal, created_at, updated_at
                    FROM dagapi.find_assets(%s, %s, %s, %s, %s, %s, %s)
                    """,
                    (wanted.platform_id, refs, wanted.data_type, wanted.published, after_time, after_id, limit),
                )
                assets = await cursor.fetchall()
            versions = await _versions(conn, [asset.asset_id for asset in assets])
        return [(asset, [v for v in versions if v.asset_id == asset.asset_id]) for asset in assets]

    async def requests(
        self,
        *,
        platform_id: str | None,
        state: RequestState | None,
        asset_id: str | None,
        after: tuple[datetime, str] | None,
        limit: int,
    ) -> list[RequestFacts]:
        """Return requests with the state of their versions and assets, the newest first."""
        after_time, after_id = after or (None, None)
        async with transaction(await self._open()) as conn, conn.cursor(row_factory=class_row(RequestFacts)) as cursor:
            await cursor.execute(
                """
                SELECT request_id, platform_id, asset_id, version_ordinal, revision, state, progress, errors, warnings,
                       processing_state, review, reason, submitted_by, clearance_state, exposure,
                       latest_approved_version_ordinal, deleted, created_at,
                       greatest(updated_at, version_updated_at, asset_updated_at) AS updated_at
                FROM dagapi.find_requests(%s, %s, %s, %s, %s, %s)
                """,
                (platform_id, None if state is None else str(state), asset_id, after_time, after_id, limit),
            )
            return await cursor.fetchall()

    async def reviews(
        self, wanted: ReviewFilter, *, after: tuple[datetime, str, int] | None, limit: int
    ) -> list[ReviewRow]:
        """Return finished versions in one state of approval, the oldest first."""
        since, asset_id, ordinal = after or (None, None, None)
        async with transaction(await self._open()) as conn, conn.cursor(row_factory=class_row(ReviewRow)) as cursor:
            await cursor.execute(
                """
                SELECT asset_id, version_ordinal, version_label, revision, title, access_level, submitted_by,
                       approval_state, rejection_reason, processed_at, review_due_at, reminded_at, verdict,
                       finding_count, platform_id, data_type, clearance_state, exposure, previous_ordinal,
                       previous_label, comment_count
                FROM dagapi.find_reviews(%s, %s, %s, %s, %s, %s, %s, %s)
                """,
                (
                    str(wanted.state),
                    wanted.platform_id,
                    wanted.data_type,
                    wanted.overdue_at,
                    since,
                    asset_id,
                    ordinal,
                    limit,
                ),
            )
            return await cursor.fetchall()

    async def decisions(self, asset_ids: Sequence[str]) -> list[DecisionRow]:
        """Return what was decided about the live versions of assets, the oldest first."""
        async with transaction(await self._open()) as conn, conn.cursor(row_factory=class_row(DecisionRow)) as cursor:
            await cursor.execute(
                """
                SELECT asset_id, platform_id, version_ordinal, revision, action, actor, actor_role, reason, created_at
                FROM dagapi.decisions
                WHERE asset_id = ANY(%s)
                ORDER BY audit_id
                """,
                (list(asset_ids),),
            )
            return await cursor.fetchall()

    async def comments(self, asset_id: str, ordinal: int) -> list[CommentRow]:
        """Return what was said about a version, the oldest first."""
        async with transaction(await self._open()) as conn, conn.cursor(row_factory=class_row(CommentRow)) as cursor:
            await cursor.execute(
                """
                SELECT comment_id, revision, author, author_role, text, created_at
                FROM dagapi.comments
                WHERE asset_id = %s AND version_ordinal = %s
                ORDER BY comment_id
                """,
                (asset_id, ordinal),
            )
            return await cursor.fetchall()

    async def ping(self) -> None:
        """Make one round trip to the views; raises `DatabaseUnavailable` when that fails."""
        async with transaction(await self._open(), timeout_seconds=2.0) as conn:
            await conn.execute("SELECT 1 FROM dagapi.platforms LIMIT 1")

    async def close(self) -> None:
        """Close the pool; the next query opens a new one."""
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    async def _open(self) -> AsyncPool:
        if self._pool is None:
            self._pool = async_pool(self._dsn, name="geodag-gateway", min_size=1, max_size=POOL_SIZE)
            await self._pool.open(wait=False)
        return self._pool
