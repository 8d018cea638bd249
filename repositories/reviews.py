"""What reviewers say about versions, and which ones they were reminded of."""

from dataclasses import dataclass
from datetime import datetime

from psycopg import AsyncConnection
from psycopg.rows import class_row

from core.models.business import VersionComment


@dataclass(frozen=True, slots=True)
class Overdue:
    """A version whose review is overdue and of which reviewers were reminded just now."""

    asset_id: str
    version_ordinal: int
    current_request_id: str | None
    review_due_at: datetime


class ReviewRepository:
    """SQL on `version_comments` and the reminders of `asset_versions`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection) -> None:
        self._conn = conn

    async def add_comment(
        self, asset_id: str, ordinal: int, revision: int, *, author: str, author_role: str, text: str
    ) -> VersionComment:
        """Append a comment and return it."""
        async with self._conn.cursor(row_factory=class_row(VersionComment)) as cursor:
            await cursor.execute(
                """
                INSERT INTO dagapp.version_comments
                    (asset_id, version_ordinal, revision, author, author_role, text, created_at)
                VALUES (%s, %s, %s, %s, %s, %s, dagapp.clock())
                RETURNING comment_id, asset_id, version_ordinal, revision, author, author_role, text, created_at
                """,
                (asset_id, ordinal, revision, author, author_role, text),
            )
            (comment,) = await cursor.fetchall()
            return comment

    async def remind(self, every_seconds: float, limit: int) -> list[Overdue]:
        """Mark versions whose review is overdue as reminded, each at most once in a period, and return them."""
        async with self._conn.cursor(row_factory=class_row(Overdue)) as cursor:
            await cursor.execute(
                """
                UPDATE dagapp.asset_versions AS v SET reminded_at = dagapp.clock()
                FROM (
                    SELECT o.asset_id, o.version_ordinal
                    FROM dagapp.asset_versions AS o
                    JOIN dagapp.geospatial_assets AS a ON a.asset_id = o.asset_id AND a.deleted_at IS NULL
                    WHERE o.approval_state = 'pending_review' AND o.processed_at IS NOT NULL AND o.deleted_at IS NULL
                      AND o.review_due_at <= dagapp.clock()
                      AND (o.reminded_at IS NULL OR o.reminded_at <= dagapp.clock() - make_interval(secs => %s))
                    ORDER BY o.processed_at LIMIT %s
                    FOR UPDATE OF o SKIP LOCKED
                ) AS due
                WHERE v.asset_id = due.asset_id AND v.version_ordinal = due.version_ordinal
                RETURNING v.asset_id, v.version_ordinal, v.current_request_id, v.review_due_at
                """,
                (every_seconds, limit),
            )
            return await cursor.fetchall()
