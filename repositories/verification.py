"""Whether a database is whole beside its blobs, as after a restore: what it names and what is not there.

And whether every job in it will go on (`repositories.stalls`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import class_row

from core.errors import DataError
from core.ports import BlobRef, BlobRepository
from repositories import migrate
from repositories.stalls import stalled
from repositories.tile_lists import TileListInvalid, read_tiles

Connection = AsyncConnection[Any]
AT_A_TIME: Final = 16


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that the database names and that is not there, or not as it says; or a job that nothing moves."""

    kind: str
    """schema, blob, catalogue or job."""
    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class Named:
    """A blob that a version names, or a job that is not over."""

    whose: str
    path: str
    size_bytes: int | None
    is_list: bool = False
    """True: it is a list of tiles, which names more."""


async def missing(conn: Connection, blobs: BlobRepository) -> list[Missing]:
    """Return everything that is missing: a schema of this build, files and tiles of versions, what jobs that are not
    over will read, items of what is published; and jobs that wait for something that will not come.
    """
    found = await _schema(conn)
    if found:
        return found
    named = [*await _named(conn), *await _awaited(conn)]
    found += await _absent(blobs, named)
    absent = {one.name for one in found}
    for one in named:
        if one.is_list and one.path not in absent:
            found += await _absent_tiles(blobs, one)
    jobs = [Missing("job", one.job_id, one.detail) for one in await stalled(conn)]
    return [*found, *await _catalogue(conn), *jobs]


async def _absent(blobs: BlobRepository, named: Sequence[Named]) -> list[Missing]:
    found: list[Missing] = []
    for start in range(0, len(named), AT_A_TIME):
        looks = (_look(blobs, one) for one in named[start : start + AT_A_TIME])
        found += [one for one in await asyncio.gather(*looks) if one is not None]
    return found


async def _absent_tiles(blobs: BlobRepository, one: Named) -> list[Missing]:
    try:
        tiles = await read_tiles(blobs, one.path)
    except TileListInvalid:
        return [Missing("blob", one.path, f"{one.whose}: not a list of tiles")]
    return await _absent(blobs, [Named(one.whose, tile["blob_path"], tile["size_bytes"]) for tile in tiles])


async def _schema(conn: Connection) -> list[Missing]:
    state = await migrate.status(conn)
    wrong = [*(("pending", name) for name in state.pending), *(("changed", name) for name in state.changed)]
    if state.pgstac_installed != state.pgstac_wanted:
        wrong.append((f"pgstac {state.pgstac_installed}, expected {state.pgstac_wanted}", "pgstac"))
    return [Missing("schema", name, detail) for detail, name in wrong]


async def _named(conn: Connection) -> Sequence[Named]:
    async with conn.cursor(row_factory=class_row(Named)) as cursor:
        await cursor.execute(
            """
            SELECT v.asset_id || ' v' || v.version_ordinal AS whose, p.path,
                   CASE WHEN p.path = v.tiles_path THEN NULL ELSE v.blob_size_bytes END AS size_bytes,
                   p.path IS NOT DISTINCT FROM v.tiles_path AS is_list
            FROM dagapp.asset_versions AS v JOIN dagapp.geospatial_assets AS a USING (asset_id)
            CROSS JOIN LATERAL unnest(ARRAY[v.blob_path, v.tiles_path, v.external_blob_path]) AS p (path)
            WHERE v.deleted_at IS NULL AND a.deleted_at IS NULL AND p.path IS NOT NULL
            ORDER BY 1, 2
            """
        )
        return await cursor.fetchall()


async def _awaited(conn: Connection) -> Sequence[Named]:
    """Return what jobs that are not over will read: sources of versions, stored values."""
    async with conn.cursor(row_factory=class_row(Named)) as cursor:
        await cursor.execute(
            """
            SELECT v.asset_id || ' v' || v.version_ordinal AS whose,
                   (v.source->>'container_name') || '/' || s.name AS path,
                   CASE WHEN s.name = v.source->>'blob_name' THEN (v.source->>'size_bytes')::bigint END AS size_bytes
            FROM dagapp.asset_versions AS v
            CROSS JOIN LATERAL (
                SELECT v.source->>'blob_name' UNION
                SELECT jsonb_array_elements_text(v.source->'blob_names')
                WHERE jsonb_typeof(v.source->'blob_names') = 'array') AS s (name)
            WHERE v.processing_state IN ('queued', 'processing') AND s.name IS NOT NULL
            UNION ALL
            SELECT 'job ' || j.job_id, 'silver/' || (r.ref->>'blob'), (r.ref->>'size_bytes')::bigint
            FROM dagapp.dag_jobs AS j
            CROSS JOIN LATERAL (
                SELECT value FROM jsonb_each(coalesce(j.input_refs, '{}'::jsonb)) UNION ALL
                SELECT unnest(ARRAY[n.input_ref, n.output_ref]) FROM dagapp.dag_node_states AS n
                WHERE n.job_id = j.job_id) AS r (ref)
            WHERE j.status IN ('PENDING', 'RUNNING') AND r.ref IS NOT NULL
            ORDER BY 1, 2
            """
        )
        return await cursor.fetchall()


async def _look(blobs: BlobRepository, one: Named) -> Missing | None:
    try:
        info = await blobs.stat(BlobRef.parse(one.path))
    except DataError as error:
        return Missing("blob", one.path, f"{one.whose}: {error.detail.code}")
    if one.size_bytes is not None and info.size_bytes != one.size_bytes:
        return Missing("blob", one.path, f"{one.whose}: {info.size_bytes} bytes, expected {one.size_bytes}")
    return None


async def _catalogue(conn: Connection) -> list[Missing]:
    """Return published versions without an item, and items of versions that are not published."""
    cursor = await conn.execute(
        """
        WITH published AS (
            SELECT v.stac_item_id AS id
            FROM dagapp.asset_versions AS v JOIN dagapp.geospatial_assets AS a USING (asset_id)
            WHERE v.approval_state = 'approved' AND a.clearance_state <> 'uncleared'
              AND v.deleted_at IS NULL AND a.deleted_at IS NULL AND v.stac_item_id IS NOT NULL),
        ours AS (
            SELECT i.id FROM pgstac.items AS i JOIN dagapp.asset_versions AS v ON v.stac_item_id = i.id)
        SELECT coalesce(p.id, o.id),
               CASE WHEN o.id IS NULL THEN 'published, not in the catalogue' ELSE 'in the catalogue, not published' END
        FROM published AS p FULL JOIN ours AS o ON o.id = p.id
        WHERE p.id IS NULL OR o.id IS NULL ORDER BY 1
        """
    )
    return [Missing("catalogue", str(row[0]), str(row[1])) for row in await cursor.fetchall()]
