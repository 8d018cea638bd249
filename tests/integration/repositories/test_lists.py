"""Lists are read page by page from indexes, and assets are found by refs through the GIN index, among many others."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from repositories import roles
from tests.support.databases import Database, Server

ASSETS = 20_000
SPECIFIED = """
    SELECT * FROM dagapp.geospatial_assets
    WHERE platform_id = 'ddh' AND platform_refs @> '{"dataset_id": "D777"}' AND deleted_at IS NULL
"""
"""The query of specification 003 §13.4."""
FIND = "SELECT asset_id FROM dagapi.find_assets(%s, %s, %s, %s, %s, %s, %s)"


@pytest.fixture(scope="module")
def crowded(server: Server) -> Iterator[Database]:
    """Return a database with many assets, ten to a dataset; every hundredth is deleted."""
    database = server.clone()
    with psycopg.connect(database.conninfo(roles.ORCHESTRATOR)) as conn:
        conn.execute(
            "INSERT INTO dagapp.geospatial_assets (asset_id, platform_id, platform_refs, data_type, clearance_state,"
            " latest_approved_version_ordinal, created_at, deleted_at)"
            " SELECT md5(n::text), CASE WHEN n %% 3 = 0 THEN 'arcgis' ELSE 'ddh' END,"
            " jsonb_build_object('dataset_id', 'D' || n / 10, 'resource_id', 'R' || n), 'raster',"
            " CASE WHEN n %% 2 = 0 THEN 'ouo' ELSE 'uncleared' END, CASE WHEN n %% 2 = 0 THEN 0 END,"
            " dagapp.clock() + make_interval(secs => n), CASE WHEN n %% 100 = 0 THEN dagapp.clock() END"
            " FROM generate_series(1, %s) AS n",
            (ASSETS,),
        )
        conn.execute(
            "INSERT INTO dagapp.asset_versions (asset_id, version_ordinal, version_label, title, access_level,"
            " submitted_by, source, processing_state, approval_state, processed_at)"
            " SELECT asset_id, 0, 'V1', 't', 'ouo', 'sue', '{}', 'completed',"
            " CASE WHEN clearance_state = 'ouo' THEN 'approved' ELSE 'pending_review' END, created_at"
            " FROM dagapp.geospatial_assets"
        )
    with psycopg.connect(database.admin, autocommit=True) as admin:
        admin.execute("ANALYZE dagapp.geospatial_assets, dagapp.asset_versions")
    yield database
    server.drop(database)


def found(conn: "psycopg.Connection[Any]", **wanted: Any) -> list[str]:
    names = ("platform", "refs", "kind", "published", "after_time", "after_id", "row_limit")
    defaults: dict[str, Any] = dict.fromkeys(names) | {"published": False, "row_limit": 50}
    given = defaults | wanted
    values = [Jsonb(given[name]) if name == "refs" and given[name] else given[name] for name in names]
    return [row[0] for row in conn.execute(FIND.encode(), values).fetchall()]


def scans(conn: "psycopg.Connection[Any]", table: str = "geospatial_assets") -> dict[str, int]:
    """Return how often this transaction scanned a table in sequence and each of its indexes; reads by key are free."""
    rows = conn.execute(
        "SELECT c.relname::text, pg_stat_get_xact_numscans(c.oid) FROM pg_class AS c"
        " LEFT JOIN pg_index AS i ON i.indexrelid = c.oid"
        " WHERE coalesce(i.indrelid, c.oid) = (SELECT oid FROM pg_class WHERE relname = %s)",
        (table,),
    ).fetchall()
    return {name: count for name, count in rows if count and not name.endswith("_pkey")}


def test_the_specified_query_is_planned_with_the_gin_index(crowded: Database) -> None:
    with psycopg.connect(crowded.conninfo(roles.ORCHESTRATOR)) as conn:
        plan = "\n".join(row[0] for row in conn.execute(f"EXPLAIN {SPECIFIED}".encode()).fetchall())
        assert "Bitmap Index Scan on geospatial_assets_refs_idx" in plan, plan
        assert "Seq Scan" not in plan, plan
        assert len(conn.execute(SPECIFIED.encode()).fetchall()) == 6


def test_the_gateway_finds_by_refs_with_the_gin_index_and_without_a_scan(crowded: Database) -> None:
    with psycopg.connect(crowded.conninfo(roles.GATEWAY)) as conn:
        assert len(found(conn, platform="ddh", refs={"dataset_id": "D777"})) == 6
        assert scans(conn) == {"geospatial_assets_refs_idx": 1}
        assert len(found(conn, refs={"dataset_id": "D777", "resource_id": "R7771"})) == 1


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        ({"platform": "arcgis"}, "geospatial_assets_platform_idx"),
        ({"platform": "ddh", "published": True}, "geospatial_assets_platform_idx"),
        ({}, "geospatial_assets_created_idx"),
        ({"kind": "raster"}, "geospatial_assets_created_idx"),
    ],
)
def test_a_page_of_a_list_is_read_from_an_index_in_order(crowded: Database, wanted: dict[str, Any], index: str) -> None:
    with psycopg.connect(crowded.conninfo(roles.GATEWAY)) as conn:
        first = found(conn, **wanted)
        assert len(first) == 50
        assert scans(conn) == {index: 1}


def test_pages_follow_each_other_without_gap_or_repetition(crowded: Database) -> None:
    with psycopg.connect(crowded.conninfo(roles.GATEWAY)) as conn:
        seen: list[str] = []
        key: tuple[Any, str | None] = (None, None)
        while page := found(conn, platform="ddh", after_time=key[0], after_id=key[1], row_limit=500):
            seen += page
            row = conn.execute("SELECT created_at, asset_id FROM dagapi.assets WHERE asset_id = %s", (page[-1],))
            key = row.fetchone() or (None, None)
    with psycopg.connect(crowded.conninfo(roles.ORCHESTRATOR)) as conn:
        everything = conn.execute(
            "SELECT asset_id FROM dagapp.geospatial_assets WHERE platform_id = 'ddh' AND deleted_at IS NULL"
            " ORDER BY created_at DESC, asset_id DESC"
        ).fetchall()
    assert seen == [row[0] for row in everything]


def test_what_is_deleted_or_has_no_live_version_is_not_found(crowded: Database) -> None:
    with psycopg.connect(crowded.conninfo(roles.ORCHESTRATOR)) as conn:
        conn.execute("UPDATE dagapp.asset_versions SET deleted_at = dagapp.clock() WHERE asset_id = md5('8001')")
    with psycopg.connect(crowded.conninfo(roles.GATEWAY)) as conn:
        assert found(conn, refs={"resource_id": "R8000"}) == []
        assert found(conn, refs={"resource_id": "R8001"}) == []
        assert len(found(conn, refs={"resource_id": "R8002"})) == 1


def test_a_page_of_the_inbox_is_read_from_its_index_in_order(crowded: Database) -> None:
    statement = "SELECT asset_id FROM dagapi.find_reviews('pending_review', %s, NULL, NULL, %s, '', 0, 51)"
    with psycopg.connect(crowded.conninfo(roles.GATEWAY)) as conn:
        for platform, since in ((None, None), ("ddh", "2000-01-01T00:00:00Z")):
            assert len(conn.execute(statement.encode(), (platform, since)).fetchall()) == 51
        assert scans(conn, "asset_versions").keys() == {"asset_versions_inbox_idx"}
        assert scans(conn) == {}
