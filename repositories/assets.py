"""Assets and their versions. Lock order: asset, then version; a job, when one is locked, comes before both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection, sql
from psycopg.rows import class_row
from psycopg.types.json import Jsonb
from pydantic.dataclasses import dataclass as checked

from core.lifecycle import AssetState, VersionState
from core.models.business import ApprovalState, GeospatialAsset, ProcessingState
from core.status_view import AssetRow, VersionRow

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """What a submit writes into a version: of a new one everything, of a known one all but its label."""

    asset_id: str
    version_ordinal: int
    version_label: str
    revision: int
    title: str
    description: str | None
    tags: Sequence[str]
    access_level: str
    submitted_by: str
    request_id: str
    source: Mapping[str, Any]


@checked(frozen=True, slots=True, kw_only=True, config={"extra": "forbid"})
class Outputs:
    """What a finished ingest declares; columns of `asset_versions` by the same names."""

    blob_path: str | None = None
    blob_sha256: str | None = None
    blob_size_bytes: int | None = None
    content_hash: str | None = None
    table_name: str | None = None
    stac_item_id: str | None = None
    stac_collection_id: str | None = None
    stac_item: Json | None = None
    render: Json | None = None
    report: Json | None = None
    tiles_path: str | None = None


@checked(frozen=True, slots=True, kw_only=True)
class WorkingVersion:
    """The version a job works for, locked."""

    asset_id: str
    version_ordinal: int
    revision: int
    processing_state: ProcessingState
    current_request_id: str | None


@checked(frozen=True, slots=True, kw_only=True)
class RequestedVersion:
    """The version that a request asked for."""

    asset_id: str
    version_ordinal: int
    approval_state: ApprovalState
    purged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """What an approval publishes."""

    version_ordinal: int
    stac_item_id: str | None
    stac_collection_id: str | None
    stac_item: Json | None
    current_request_id: str | None
    tiles_path: str | None


class AssetRepository:
    """SQL on `geospatial_assets` and `asset_versions`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection) -> None:
        self._conn = conn

    async def ensure(self, asset_id: str, platform_id: str, refs: Mapping[str, str], data_type: str) -> bool:
        """Insert the asset unless it exists; return whether it was new."""
        cursor = await self._conn.execute(
            """
            INSERT INTO dagapp.geospatial_assets
                (asset_id, platform_id, platform_refs, data_type, created_at, updated_at)
            VALUES (%s, %s, %s, %s, dagapp.clock(), dagapp.clock())
            ON CONFLICT (asset_id) DO NOTHING
            """,
            (asset_id, platform_id, Jsonb(dict(refs)), data_type),
        )
        return cursor.rowcount == 1

    async def lock(self, asset_id: str) -> GeospatialAsset | None:
        """Lock the asset row, which orders everything that happens to its versions, and return it."""
        async with self._conn.cursor(row_factory=class_row(GeospatialAsset)) as cursor:
            await cursor.execute(
                """
                SELECT asset_id, platform_id, platform_refs, data_type, clearance_state, exposure, cleared_at,
                       cleared_by, made_public_at, made_public_by, latest_approved_version_ordinal, deleted_at,
                       deleted_by, created_at, updated_at
                FROM dagapp.geospatial_assets
                WHERE asset_id = %s
                FOR UPDATE
                """,
                (asset_id,),
            )
            return await cursor.fetchone()

    async def get(self, asset_id: str) -> AssetRow | None:
        """Return a live asset without a lock; the same columns as the gateway's view."""
        async with self._conn.cursor(row_factory=class_row(AssetRow)) as cursor:
            await cursor.execute(
                """
                SELECT asset_id, platform_id, platform_refs, data_type, clearance_state, exposure,
                       latest_approved_version_ordinal, created_at, updated_at
                FROM dagapp.geospatial_assets
                WHERE asset_id = %s AND deleted_at IS NULL
                """,
                (asset_id,),
            )
            return await cursor.fetchone()

    async def lock_versions(self, asset_id: str) -> list[VersionState]:
        """Lock every version of an asset in order and return them, deleted ones included; the asset is locked."""
        async with self._conn.cursor(row_factory=class_row(VersionState)) as cursor:
            await cursor.execute(
                """
                SELECT version_ordinal, version_label, revision, approval_state, processing_state, submitted_by,
                       deleted_at IS NOT NULL AS deleted, reviewer, rejection_reason AS reason,
                       purged_at IS NOT NULL AS purged
                FROM dagapp.asset_versions
                WHERE asset_id = %s
                ORDER BY version_ordinal
                FOR UPDATE
                """,
                (asset_id,),
            )
            return await cursor.fetchall()

    async def versions(self, asset_id: str) -> list[VersionRow]:
        """Return every live version of an asset, for reading."""
        async with self._conn.cursor(row_factory=class_row(VersionRow)) as cursor:
            await cursor.execute(
                """
                SELECT v.asset_id, a.platform_id, v.version_ordinal, v.version_label, v.revision, v.title,
                       v.description, v.tags, v.access_level, v.approval_state, v.processing_state,
                       v.rejection_reason, v.content_hash, v.blob_size_bytes, v.stac_item_id, v.stac_collection_id,
                       v.report, v.findings, v.error, v.submitted_by, v.created_at, v.updated_at, v.external_blob_path
                FROM dagapp.asset_versions AS v
                JOIN dagapp.geospatial_assets AS a ON a.asset_id = v.asset_id
                WHERE v.asset_id = %s AND v.deleted_at IS NULL AND a.deleted_at IS NULL
                ORDER BY v.version_ordinal
                """,
                (asset_id,),
            )
            return await cursor.fetchall()

    async def insert_version(self, revision: Revision) -> None:
        """Insert a new version, pending and queued."""
        await self._conn.execute(
            """
            INSERT INTO dagapp.asset_versions
                (asset_id, version_ordinal, version_label, revision, title, description, tags, access_level,
                 submitted_by, current_request_id, source, created_at, updated_at)
            VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, dagapp.clock(), dagapp.clock())
            """,
            (
                revision.asset_id,
                revision.version_ordinal,
                revision.version_label,
                revision.revision,
                revision.title,
                revision.description,
                Jsonb(list(revision.tags)),
                revision.access_level,
                revision.submitted_by,
                revision.request_id,
                Jsonb(dict(revision.source)),
            ),
        )

    async def start_revision(self, revision: Revision) -> None:
        """Turn a version back to pending and queued under its next revision; what the last one made is forgotten."""
        await self._conn.execute(
            """
            UPDATE dagapp.asset_versions
            SET revision = %s, title = %s, description = %s, tags = %s, access_level = %s, submitted_by = %s,
                current_job_id = NULL, current_request_id = %s, source = %s,
                approval_state = 'pending_review', processing_state = 'queued',
                reviewer = NULL, reviewed_at = NULL, rejection_reason = NULL,
                content_hash = NULL, blob_path = NULL, blob_sha256 = NULL, blob_size_bytes = NULL, table_name = NULL,
                tiles_path = NULL,
                stac_item_id = NULL, stac_collection_id = NULL, stac_item = NULL, render = NULL, report = NULL,
                findings = '[]'::jsonb, error = NULL, processed_at = NULL, review_due_at = NULL, reminded_at = NULL,
                updated_at = dagapp.clock()
            WHERE asset_id = %s AND version_ordinal = %s
            """,
            (
                revision.revision,
                revision.title,
                revision.description,
                Jsonb(list(revision.tags)),
                revision.access_level,
                revision.submitted_by,
                revision.request_id,
                Jsonb(dict(revision.source)),
                revision.asset_id,
                revision.version_ordinal,
            ),
        )

    async def lock_working_version(self, request_id: str) -> WorkingVersion | None:
        """Lock and return the version whose newest revision a request makes; None when it makes none (any more)."""
        async with self._conn.cursor(row_factory=class_row(WorkingVersion)) as cursor:
            await cursor.execute(
                """
                SELECT asset_id, version_ordinal, revision, processing_state, current_request_id
                FROM dagapp.asset_versions
                WHERE (asset_id, version_ordinal) = (
                    SELECT asset_id, version_ordinal FROM dagapp.platform_requests WHERE request_id = %(request)s)
                  AND current_request_id = %(request)s
                FOR UPDATE
                """,
                {"request": request_id},
            )
            return await cursor.fetchone()

    async def store_current_job(self, asset_id: str, ordinal: int, job_id: str) -> None:
        """Write which job works for a version now."""
        await self._conn.execute(
            """
            UPDATE dagapp.asset_versions SET current_job_id = %s, updated_at = dagapp.clock()
            WHERE asset_id = %s AND version_ordinal = %s
            """,
            (job_id, asset_id, ordinal),
        )

    async def requested_version(self, request_id: str, *, lock: bool) -> RequestedVersion | None:
        """Return the version that a request asked for, whatever revision it is at, and lock it when told to."""
        async with self._conn.cursor(row_factory=class_row(RequestedVersion)) as cursor:
            await cursor.execute(
                sql.SQL(
                    "SELECT asset_id, version_ordinal, approval_state, purged_at IS NOT NULL AS purged"
                    " FROM dagapp.asset_versions WHERE (asset_id, version_ordinal) = ("
                    "SELECT asset_id, version_ordinal FROM dagapp.platform_requests WHERE request_id = %s) {}"
                ).format(sql.SQL("FOR UPDATE" if lock else "")),
                (request_id,),
            )
            return await cursor.fetchone()

    async def store_restart(self, version: WorkingVersion) -> None:
        """Let the newest revision be made again from the beginning."""
        await self._conn.execute(
            """
            UPDATE dagapp.asset_versions
            SET processing_state = 'queued', error = NULL, processed_at = NULL, review_due_at = NULL,
                reminded_at = NULL, updated_at = dagapp.clock()
            WHERE asset_id = %s AND version_ordinal = %s
            """,
            (version.asset_id, version.version_ordinal),
        )

    async def store_outputs(self, version: WorkingVersion, outputs: Outputs, findings: Sequence[Any]) -> None:
        """Write what the ingest declared; the version is completed and waits for its review from here on."""
        await self._conn.execute(
            """
            UPDATE dagapp.asset_versions
            SET processing_state = 'completed', processed_at = dagapp.clock(),
                review_due_at = dagapp.clock() + make_interval(days => (
                    SELECT p.review_days
                    FROM dagapp.geospatial_assets AS a JOIN dagapp.platforms AS p USING (platform_id)
                    WHERE a.asset_id = asset_versions.asset_id)),
                blob_path = %s, blob_sha256 = %s, blob_size_bytes = %s,
                content_hash = %s, table_name = %s, stac_item_id = %s, stac_collection_id = %s, stac_item = %s,
                render = %s, report = %s, tiles_path = %s, findings = %s, error = NULL, updated_at = dagapp.clock()
            WHERE asset_id = %s AND version_ordinal = %s
            """,
            (
                outputs.blob_path,
                outputs.blob_sha256,
                outputs.blob_size_bytes,
                outputs.content_hash,
                outputs.table_name,
                outputs.stac_item_id,
                outputs.stac_collection_id,
                _json(outputs.stac_item),
                _json(outputs.render),
                _json(outputs.report),
                outputs.tiles_path,
                Jsonb(list(findings)),
                version.asset_id,
                version.version_ordinal,
            ),
        )

    async def store_failure(
        self, version: WorkingVersion, state: ProcessingState, error: Mapping[str, Any] | None, findings: Sequence[Any]
    ) -> None:
        """Write how the newest revision ended without outputs."""
        await self._conn.execute(
            """
            UPDATE dagapp.asset_versions
            SET processing_state = %s, error = %s, findings = %s, updated_at = dagapp.clock()
            WHERE asset_id = %s AND version_ordinal = %s
            """,
            (str(state), _json(error), Jsonb(list(findings)), version.asset_id, version.version_ordinal),
        )

    async def catalogue_entries(self, asset_id: str, ordinals: Sequence[int]) -> dict[int, CatalogueEntry]:
        """Return, by ordinal, the STAC documents that versions were finished with."""
        async with self._conn.cursor(row_factory=class_row(CatalogueEntry)) as cursor:
            await cursor.execute(
                """
                SELECT version_ordinal, stac_item_id, stac_collection_id, stac_item, current_request_id, tiles_path
                FROM dagapp.asset_versions
                WHERE asset_id = %s AND version_ordinal = ANY(%s)
                """,
                (asset_id, list(ordinals)),
            )
            return {entry.version_ordinal: entry for entry in await cursor.fetchall()}

    async def store_version(self, asset_id: str, version: VersionState, actor: str, *, decided: bool) -> None:
        """Write the states that a command gave a locked version; `decided` means that a reviewer decided about it."""
        await self._conn.execute(
            """
            UPDATE dagapp.asset_versions
            SET approval_state = %(approval)s, reviewer = %(reviewer)s, rejection_reason = %(reason)s,
                reviewed_at = CASE WHEN %(decided)s THEN dagapp.clock() ELSE reviewed_at END,
                deleted_at = CASE WHEN %(deleted)s THEN coalesce(deleted_at, dagapp.clock()) END,
                deleted_by = CASE WHEN %(deleted)s THEN coalesce(deleted_by, %(actor)s) END,
                updated_at = dagapp.clock()
            WHERE asset_id = %(asset_id)s AND version_ordinal = %(ordinal)s
            """,
            {
                "approval": str(version.approval_state),
                "reviewer": version.reviewer,
                "reason": version.reason,
                "decided": decided,
                "deleted": version.deleted,
                "actor": actor,
                "asset_id": asset_id,
                "ordinal": version.version_ordinal,
            },
        )

    async def store_asset(self, asset: AssetState, actor: str) -> None:
        """Write the states that a command gave a locked asset; who cleared it and made it public stay recorded."""
        await self._conn.execute(
            """
            UPDATE dagapp.geospatial_assets
            SET clearance_state = %(clearance)s, exposure = %(exposure)s, latest_approved_version_ordinal = %(latest)s,
                cleared_at = CASE WHEN %(clearance)s <> 'uncleared' THEN coalesce(cleared_at, dagapp.clock()) END,
                cleared_by = CASE WHEN %(clearance)s <> 'uncleared' THEN coalesce(cleared_by, %(actor)s) END,
                made_public_at = CASE WHEN %(clearance)s = 'public' THEN coalesce(made_public_at, dagapp.clock()) END,
                made_public_by = CASE WHEN %(clearance)s = 'public' THEN coalesce(made_public_by, %(actor)s) END,
                deleted_at = CASE WHEN %(deleted)s THEN coalesce(deleted_at, dagapp.clock()) END,
                deleted_by = CASE WHEN %(deleted)s THEN coalesce(deleted_by, %(actor)s) END,
                updated_at = dagapp.clock()
            WHERE asset_id = %(asset_id)s
            """,
            {
                "clearance": str(asset.clearance_state),
                "exposure": str(asset.exposure),
                "latest": asset.latest_approved_version_ordinal,
                "deleted": asset.deleted,
                "actor": actor,
                "asset_id": asset.asset_id,
            },
        )


def _json(value: Mapping[str, Any] | None) -> Jsonb | None:
    return None if value is None else Jsonb(dict(value))
