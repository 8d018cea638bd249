"""What is past its time goes, what is needed stays, and a dry run only counts."""

import gzip
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection
from typer.testing import CliRunner

from cli.main import app
from repositories import roles
from repositories.retention import ArchiveFailed, Policy, Retention, storage
from tests.support.databases import Database

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
KINDS = {"webhook_deliveries": 2, "dead_letters": 1, "submit_batches": 1, "superseded_results": 0}


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


async def sweep(database: Database, **options: Any) -> dict[str, int]:
    policy = options.pop("policy", Policy())
    dsn = database.conninfo(roles.DEPLOY)
    async with await AsyncConnection.connect(dsn, autocommit=True) as conn:
        return {one.kind: one.rows for one in await Retention(conn, policy, **options).sweep()}


async def test_a_dry_run_counts_and_the_same_then_goes(old: Database, tmp_path: Path) -> None:
    whole = {**KINDS, "dag_job_events_202001": 2}
    assert await sweep(old, dry_run=True) == whole
    assert counts(old) == (3, 3, 2, 2)
    forever = dict.fromkeys(("events_days", "deliveries_days", "dead_letters_days", "batches_days", "results_days"), 0)
    assert await sweep(old, dry_run=False, policy=Policy(**forever)) == {}
    assert await sweep(old, dry_run=False, archive=tmp_path) == whole
    assert counts(old) == (1, 1, 1, 1)
    with gzip.open(tmp_path / "dag_job_events_202001.csv.gz", "rt") as file:
        lines = file.read().splitlines()
    assert len(lines) == 2
    assert all('""event_type"":""job_created""' in line for line in lines)
    assert await sweep(old, dry_run=False) == dict.fromkeys(KINDS, 0)


async def test_a_month_that_was_not_written_whole_stays(
    old: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.sum", lambda numbers: 1)
    with pytest.raises(ArchiveFailed, match="1 of 2 events of dag_job_events_202001"):
        await sweep(old, dry_run=False, archive=tmp_path)
    monkeypatch.undo()
    assert counts(old)[0] == 3


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
    async with await AsyncConnection.connect(old.conninfo(roles.DEPLOY), autocommit=True) as conn:
        (one,) = await storage(conn)
    assert (one.platform_id, one.versions, one.published_bytes, one.other_bytes, one.deleted_bytes) == (
        "ddh",
        3,
        1,
        10,
        100,
    )


def test_the_command_counts_unless_it_is_told_to_remove(old: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in old.environment(roles.DEPLOY).items():
        monkeypatch.setenv(name, value)
    assert '"rows": 2' in CliRunner().invoke(app, ["gc", "--json"]).output
    assert counts(old) == (3, 3, 2, 2)
    assert CliRunner().invoke(app, ["gc", "--really", "--json"]).exit_code == 0
    assert counts(old) == (1, 1, 1, 1)
    assert CliRunner().invoke(app, ["storage", "--json"]).exit_code == 0
