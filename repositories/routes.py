"""What serving may read: the routing view and the published catalogue, as geodag_serving, from threads."""

from collections.abc import Generator
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row
from pydantic import BaseModel, ConfigDict

from core.access import AssetFacts, VersionFacts
from core.models.business import ApprovalState, Clearance, Exposure, ProcessingState

_ROUTES: LiteralString = (
    "SELECT asset_id, version_ordinal, platform_id, data_type, clearance_state, exposure,"
    " latest_approved_version_ordinal, asset_deleted, version_deleted, approval_state, processing_state,"
    " revision, title, description, blob_path, blob_sha256, blob_size_bytes, content_hash, render,"
    " stac_item_id, stac_collection_id, stac_item, updated_at, tiles_path"
    " FROM dagserve.routes"
)


class Facts(BaseModel):
    """What decides who sees a version."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    asset_id: str
    version_ordinal: int
    platform_id: str
    clearance_state: Clearance
    exposure: Exposure
    latest_approved_version_ordinal: int | None
    asset_deleted: bool
    version_deleted: bool
    approval_state: ApprovalState
    processing_state: ProcessingState

    def asset_facts(self) -> AssetFacts:
        """Return what the access policy reads of the asset."""
        return AssetFacts(
            asset_id=self.asset_id,
            platform_id=self.platform_id,
            clearance_state=self.clearance_state,
            exposure=self.exposure,
            latest_approved_version_ordinal=self.latest_approved_version_ordinal,
            deleted=self.asset_deleted,
        )

    def version_facts(self) -> VersionFacts:
        """Return what the access policy reads of the version."""
        return VersionFacts(
            version_ordinal=self.version_ordinal,
            approval_state=self.approval_state,
            processing_state=self.processing_state,
            deleted=self.version_deleted,
        )


class Placed(Facts):
    """A version that is catalogued, with where and when it lies as its item says."""

    bbox: list[float] | None
    starts: str | None
    ends: str | None


class Route(Facts):
    """One row of dagserve.routes: a version with what decides who sees it and where its file lies."""

    data_type: str
    revision: int
    title: str
    description: str | None
    blob_path: str | None
    blob_sha256: str | None
    blob_size_bytes: int | None
    content_hash: str | None
    render: dict[str, Any] | None
    stac_item_id: str | None
    stac_collection_id: str | None
    stac_item: dict[str, Any] | None
    updated_at: datetime
    tiles_path: str | None


class VersionReport(BaseModel):
    """What validation said about a version."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version_label: str
    processing_state: ProcessingState
    report: dict[str, Any] | None
    error: dict[str, Any] | None
    created_at: datetime


def find_report(conn: Connection[Any], asset_id: str, ordinal: int) -> VersionReport | None:
    """Return the report of one version."""
    with conn.cursor(row_factory=class_row(VersionReport)) as cursor:
        cursor.execute(
            "SELECT version_label, processing_state, report, error, created_at FROM dagserve.reports"
            " WHERE asset_id = %s AND version_ordinal = %s",
            (asset_id, ordinal),
        )
        return cursor.fetchone()


def find_route(conn: Connection[Any], asset_id: str, ordinal: int | None) -> Route | None:
    """Return one version of an asset; without an ordinal the latest approved one. One read by primary key."""
    with conn.cursor(row_factory=class_row(Route)) as cursor:
        cursor.execute(
            _ROUTES + " WHERE asset_id = %s AND version_ordinal = coalesce(%s, latest_approved_version_ordinal)",
            (asset_id, ordinal),
        )
        return cursor.fetchone()


def placed_in_collection(conn: Connection[Any], collection_id: str) -> Generator[Placed, None, None]:
    """Yield the versions whose items belong to a collection, as they come."""
    with conn.cursor(row_factory=class_row(Placed)) as cursor:
        yield from cursor.stream(
            """
            SELECT asset_id, version_ordinal, platform_id, clearance_state, exposure, latest_approved_version_ordinal,
                asset_deleted, version_deleted, approval_state, processing_state, stac_item -> 'bbox' AS bbox,
                coalesce(stac_item #>> '{properties,start_datetime}', stac_item #>> '{properties,datetime}') AS starts,
                coalesce(stac_item #>> '{properties,end_datetime}', stac_item #>> '{properties,datetime}') AS ends
            FROM dagserve.routes WHERE stac_collection_id = %s
            """,
            (collection_id,),
        )


def published_collection(conn: Connection[Any], collection_id: str) -> dict[str, Any] | None:
    """Return a STAC collection as pgstac serves it, None when the catalogue does not have it."""
    row = conn.execute("SELECT pgstac.get_collection(%s)", (collection_id,)).fetchone()
    return row[0] if row else None


def published_item(conn: Connection[Any], collection_id: str, item_id: str) -> dict[str, Any] | None:
    """Return a STAC item as pgstac serves it, None when the catalogue does not have it."""
    row = conn.execute("SELECT pgstac.get_item(%s, %s)", (item_id, collection_id)).fetchone()
    return row[0] if row else None


def probe(conn: Connection[Any]) -> None:
    """Read the routing view; raises when this role or this database cannot."""
    conn.execute("SELECT count(*) FROM (SELECT FROM dagserve.routes LIMIT 1) AS found")
