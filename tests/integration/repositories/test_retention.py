"""What is past its time goes, what is needed stays, and a dry run only counts."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection
from pyarrow import parquet
from typer.testing import CliRunner

from cli.main import app, main
from repositories import event_archive, roles
from repositories.event_archive import ArchiveFailed
from repositories.storage import storage
from tests.support.ageing import storage as storage_in
from tests.support.databases import Database
from tests.support.gc_runs import EVERYTHING, collect, policy

ROWS = """
SET session_replication_role = replica;
CREATE TABLE dagapp.dag_job_events_202001 PARTITION OF dagapp.dag_job_events
    FOR VALUES FROM ('2020-01-01Z') TO ('2020-02-01Z');
ALTER TABLE dagapp.dag_job_events_202001 OWNER TO geodag_owner;
INSERT INTO dagapp.dag_job_events (job_id, event_type, created_at)
    SELECT 'j', 'job_created', t FROM unnest(ARRAY['2020-01-05Z', '2020-01-06Z', now()::text]::timestamptz[]) AS t;
INSERT INTO dagapp.webhook_deliveries (delivery_id, platform_id, request_id, asset_id, version_ordinal, url, type,
        request_state, state, created_at, expires_at)
    SELECT 'd' || n, 'ddh', 'r', 'a', 0, 'https://x', 't', 'completed', state, '2020-01-01Z', '2020-01-04Z'
    FROM unnest(ARRAY['delivered', 'expired', 'pending']) WITH ORDINALITY AS x (state, n);
INSERT INTO dagapp.dag_dead_letters (message_id, queue, body, reason, classification, dead_at, resolved_at)
    SELECT 'm', 'q', '{}', 'r', 'unreadable', '2020-01-01Z', t
    FROM unnest(ARRAY['2020-01-02Z', NULL]::timestamptz[]) AS t;
INSERT INTO dagapp.submit_batches (platform_id, idempotency_key, body_hash, created_at)
    SELECT 'ddh', 'k' || n, 'h', t
    FROM unnest(ARRAY['2020-01-02Z', now()::text]::timestamptz[]) WITH ORDINALITY AS x (t, n);
"""
KINDS = {
    "webhook_deliveries": 2,
    "dead_letters": 1,
    "submit_batches": 1,
    "superseded_results": 0,
    "jobs": 0,
    "deleted_versions": 0,
}


@pytest.fixture
def old(database: Database) -> Database:
    with psycopg.connect(database.admin) as admin:
        admin.execute(ROWS)
    return database


def counts(database: Database) -> tuple[Any, ...]:
    with psycopg.connect(database.admin) as admin:
        row = admin.execute(
            "SELECT (SELECT count(*) FROM dagapp.dag_job_events), (SELECT count(*) FROM dagapp.webhook_deliveries),"
            " (SELECT count(*) FROM dagapp.dag_dead_letters), (SELECT count(*) FROM dagapp.submit_batches)"
        ).fetchone()
    assert row is not None
    return row


async def test_a_dry_run_counts_and_the_same_then_goes(old: Database, tmp_path: Path) -> None:
    whole = {**KINDS, "dag_job_events_202001": 2}
    assert await rows(old, tmp_path, dry_run=True) == whole
    assert counts(old) == (3, 3, 2, 2)
    forever = dict.fromkeys((n for n in type(EVERYTHING).model_fields if n.endswith("_days")), 0)
    assert await rows(old, tmp_path, policy=EVERYTHING.model_copy(update=forever)) == {
        "jobs": 0,
        "deleted_versions": 0,
    }
    assert await rows(old, tmp_path) == whole
    assert counts(old) == (1, 1, 1, 1)
    path = tmp_path / "silver/archives/events/dag_job_events_202001.parquet"
    with parquet.ParquetFile(path) as file:
        table = file.read()
    assert str(table.schema.field("created_at").type) == "timestamp[us, tz=UTC]"
    assert table.to_pylist()[0] == {
        "event_id": 1,
        "job_id": "j",
        "node_id": None,
        "task_id": None,
        "event_type": "job_created",
        "event_status": None,
        "event_data": "{}",
        "checkpoint_name": None,
        "created_at": datetime(2020, 1, 5, tzinfo=UTC),
    }
    assert await rows(old, tmp_path) == dict.fromkeys(KINDS, 0)


async def test_a_month_whose_file_holds_something_else_stays(old: Database, tmp_path: Path) -> None:
    month = "UPDATE dagapp.dag_job_events SET event_status = %s WHERE event_id = 1"
    async with await AsyncConnection.connect(old.admin, autocommit=True) as admin:
        async with admin.transaction():
            found = await event_archive.write(admin, "dag_job_events_202001", tmp_path / "other")
        blobs = storage_in(tmp_path)
        await event_archive.put(blobs, "dag_job_events_202001", tmp_path / "other", found)
        await admin.execute(month, ("changed",))
        with pytest.raises(ArchiveFailed, match="holds 2 events and the table 2, or others"):
            await rows(old, tmp_path)
        assert counts(old)[0] == 3
        await admin.execute(month, (None,))
    assert (await rows(old, tmp_path))["dag_job_events_202001"] == 2
    assert counts(old)[0] == 1


async def test_a_month_that_grows_while_it_is_archived_stays(
    old: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = event_archive.put

    async def late(*args: Any) -> event_archive.Contents:
        with psycopg.connect(old.admin) as admin:
            admin.execute(
                "INSERT INTO dagapp.dag_job_events (job_id, event_type, created_at) VALUES ('j', 'late', '2020-01-09Z')"
            )
        return await put(*args)

    monkeypatch.setattr(event_archive, "put", late)
    with pytest.raises(ArchiveFailed, match="changed after it was archived"):
        await rows(old, tmp_path)
    assert counts(old)[0] == 4


async def test_months_go_without_an_archive_when_told_so_and_else_need_what_writes_it(
    old: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ArchiveFailed, match="pyarrow is not installed"):
        await rows(old, tmp_path)
    assert counts(old) == (3, 3, 2, 2)
    await rows(old, tmp_path, policy=policy(archive_events=False))
    assert counts(old) == (1, 1, 1, 1)
    assert not (tmp_path / "silver/archives").exists()


async def rows(database: Database, root: Path, **options: Any) -> dict[str, int]:
    storage_in(root)
    return {kind: count for kind, (count, _) in (await collect(database, root, **options)).items()}


async def test_storage_is_told_for_each_platform(old: Database) -> None:
    with psycopg.connect(old.admin) as admin:
        admin.execute("SET session_replication_role = replica")
        admin.execute(
            "INSERT INTO dagapp.geospatial_assets (asset_id, platform_id, platform_refs, data_type)"
            " VALUES ('a', 'ddh', '{}', 'raster')"
        )
        admin.execute(
            "INSERT INTO dagapp.asset_versions (asset_id, version_ordinal, version_label, title, access_level,"
            " approval_state, submitted_by, source, blob_size_bytes, deleted_at)"
            " SELECT 'a', n, 'v' || n, 't', 'ouo', s, 'x', '{}', 10 ^ n, d FROM (VALUES (0, 'approved', NULL),"
            " (1, 'rejected', NULL), (2, 'approved', now())) AS v (n, s, d)"
        )
    async with await AsyncConnection.connect(old.conninfo(roles.ORCHESTRATOR), autocommit=True) as conn:
        (one,) = await storage(conn)
    assert (one.platform_id, one.versions, one.published_bytes, one.other_bytes, one.deleted_bytes) == (
        "ddh",
        3,
        1,
        10,
        100,
    )


def test_the_command_counts_unless_it_is_told_to_remove(
    old: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    storage_in(tmp_path)
    for name, value in {**old.environment(roles.DEPLOY), "BLOB_ROOT": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    assert '"rows": 2' in CliRunner().invoke(app, ["gc", "--json"]).output
    assert counts(old) == (3, 3, 2, 2)
    monkeypatch.setenv("RETENTION_DELIVERIES_DAYS", "0")
    assert CliRunner().invoke(app, ["gc", "--really", "--dead-letters", "0", "--json"]).exit_code == 0
    assert counts(old) == (1, 3, 2, 1)
    monkeypatch.setattr(sys, "argv", ["geodag", "gc"])
    with psycopg.connect(old.admin) as admin:
        admin.execute("SELECT pg_advisory_lock(hashtextextended('geodag.gc', 0))")
        with pytest.raises(SystemExit) as ended:
            main()
    assert (ended.value.code, "GC_RUNNING" in capsys.readouterr().err) == (1, True)
    assert CliRunner().invoke(app, ["storage", "--json"]).exit_code == 0
