"""The restore drill: a backup taken under load comes back whole, and what is missing beside it is named."""

import asyncio
import contextlib
import json
from pathlib import Path

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb
from typer.testing import CliRunner

from cli.main import app
from cli.stack import backup as backups
from cli.stack.cluster import TEST_CONFIG, Cluster, ClusterError
from cli.stack.credentials import ensure_credentials
from core.wire import ClaimOutcome
from repositories import roles
from repositories.blobs_folder import FolderBlobRepository
from repositories.database import async_pool
from repositories.verification import Missing, missing
from tests.support.ageing import leave
from tests.support.business import Business
from tests.support.databases import Database, Server
from tests.support.gc_runs import collect, policy
from tests.support.storage import Folders
from tests.support.waiting import await_until


async def whole(database: Database, root: Path) -> list[Missing]:
    async with await AsyncConnection.connect(database.admin, autocommit=True) as conn:
        return await missing(conn, FolderBlobRepository(root))


async def test_a_backup_under_load_restores_into_a_consistent_platform(
    server: Server, database: Database, tmp_path: Path
) -> None:
    dump, root = tmp_path / "dump", tmp_path / "blobs"
    for zone in ("bronze", "silver", "external"):
        (root / zone).mkdir(parents=True)
    async with async_pool(database.conninfo(roles.ORCHESTRATOR), name="drill", min_size=1, max_size=4) as pool:
        business = Business(pool, Folders(root))
        published = await business.approved("ouo")
        row = await business.row(published)
        business.put(row["blob_path"].partition("/")[2], b"x" * row["blob_size_bytes"], "silver")
        assert await whole(database, root) == []

        async def load() -> None:
            while True:
                await business.engine.create("echo_test", {"message": "load"})

        async def loaded() -> bool:
            return bool(
                await business.engine.query("SELECT job_id FROM dagapp.dag_jobs WHERE workflow_id = 'echo_test'")
            )

        running = asyncio.create_task(load())
        await await_until(loaded, "the load has begun")
        await asyncio.to_thread(backups.backup, server.cluster, dump, database.name)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        late = await business.approved("ouo", version_label="V2")
        newer = leave(root, (await business.row(late))["blob_path"], 10)
        forgotten = await business.engine.message(await business.engine.create("echo_test", {"message": "late"}))
        with pytest.raises(ClusterError, match="connections use"):
            await asyncio.to_thread(backups.restore, server.cluster, dump, database.name)

    kept = await asyncio.to_thread(backups.restore, server.cluster, dump, database.name, f"{database.name}_old")
    assert kept == f"{database.name}_old"
    assert await whole(database, root) == []
    async with async_pool(database.conninfo(roles.ORCHESTRATOR), name="drill", min_size=1, max_size=4) as pool:
        again = Business(pool, Folders(root))
        versions = await again.engine.query("SELECT version_label FROM dagapp.asset_versions")
        assert versions == [{"version_label": "V1"}]
        jobs = await again.engine.query("SELECT job_id FROM dagapp.dag_jobs WHERE status NOT IN ('COMPLETED')")
        nodes = await again.engine.query(
            "SELECT DISTINCT job_id FROM dagapp.dag_node_states WHERE job_id = ANY(%s)", [one["job_id"] for one in jobs]
        )
        assert len(jobs) == len(nodes) > 0
        # What was written after the backup belongs to nobody, and goes; a task that nobody knows is refused for good.
        assert (await collect(database, root, policy=policy(events_days=0)))["files_of_attempts"][0] == 1
        assert not newer.exists()
        (answer,) = await again.worker.claim(forgotten)
        assert answer.outcome is ClaimOutcome.UNKNOWN
        assert (await again.approved("ouo", version_label="V2")).version_ordinal == late.version_ordinal
    with psycopg.connect(server.cluster.admin_conninfo(), autocommit=True) as admin:
        admin.execute(f'DROP DATABASE "{kept}"')


async def test_what_is_missing_beside_a_database_is_named(database: Database, tmp_path: Path) -> None:
    async with async_pool(database.conninfo(roles.ORCHESTRATOR), name="drill", min_size=1, max_size=4) as pool:
        business = Business(pool, Folders(tmp_path))
        published = await business.approved("ouo")
        row = await business.row(published)
    with psycopg.connect(database.admin) as admin:
        admin.execute("UPDATE dagapp.asset_versions SET external_blob_path = 'external/a/b/c.tif'")
        admin.execute("DELETE FROM pgstac.items")
    found = await whole(database, tmp_path)
    version = f"{published.asset_id} v0"
    assert found == [
        Missing("blob", "external/a/b/c.tif", f"{version}: FILE_NOT_FOUND"),
        Missing("blob", row["blob_path"], f"{version}: FILE_NOT_FOUND"),
        Missing("catalogue", row["stac_item_id"], "published, not in the catalogue"),
    ]
    business.put(row["blob_path"].partition("/")[2], b"short", "silver")
    assert (await whole(database, tmp_path))[1].detail == f"{version}: 5 bytes, expected 1234"
    path = row["blob_path"]
    tiles = {"tiles": [{"blob_path": f"{path}.1", "size_bytes": 3}, {"blob_path": path, "size_bytes": 5}]}
    business.put("tiles.json", json.dumps(tiles).encode(), "silver")
    business.put("no-tiles.json", b"[]", "silver")
    ref = Jsonb({"blob": "payloads/j/values/x.json", "size_bytes": 9, "sha256": "0" * 64})
    with psycopg.connect(database.admin) as admin:
        admin.execute("UPDATE dagapp.asset_versions SET tiles_path = 'silver/tiles.json', processing_state = 'queued'")
        admin.execute("UPDATE dagapp.dag_jobs SET status = 'RUNNING', input_refs = jsonb_build_object('a', %s)", (ref,))
        job_id = str(row["current_job_id"])
    source = f"{row['source']['container_name']}/{row['source']['blob_name']}"
    (tmp_path / source).unlink()
    named = {(one.name, one.detail) for one in await whole(database, tmp_path)}
    assert {
        (f"{path}.1", f"{version}: FILE_NOT_FOUND"),
        (source, f"{version}: FILE_NOT_FOUND"),
        ("silver/payloads/j/values/x.json", f"job {job_id}: FILE_NOT_FOUND"),
    } <= named
    with psycopg.connect(database.admin) as admin:
        admin.execute("UPDATE dagapp.asset_versions SET tiles_path = 'silver/no-tiles.json'")
    assert Missing("blob", "silver/no-tiles.json", f"{version}: not a list of tiles") in await whole(database, tmp_path)
    with psycopg.connect(database.admin) as admin:
        admin.execute("DELETE FROM dagapp.schema_migrations WHERE number = 27")
    assert (await whole(database, tmp_path))[0].kind == "schema"


def test_a_broken_dump_changes_nothing(server: Server, database: Database, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"PGDMP is not enough")
    with pytest.raises(ClusterError, match="pg_restore ended with 1"):
        backups.restore(server.cluster, broken, database.name)
    with psycopg.connect(database.admin) as admin:
        assert admin.execute("SELECT count(*) FROM dagapp.schema_migrations").fetchone()
    with pytest.raises(ClusterError, match="pg_dump ended with 1"):
        backups.backup(server.cluster, tmp_path / "out", "no_such_database")
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]


def test_the_commands_start_a_stopped_cluster_for_as_long_as_they_need_it(open_folder: Path, tmp_path: Path) -> None:
    home, dump = str(open_folder), str(tmp_path / "dump")
    cluster = Cluster(open_folder, config=TEST_CONFIG)
    cluster.start()
    try:
        cluster.deploy(ensure_credentials(open_folder).passwords)
        cluster.stop()
        for words in (("backup", dump), ("restore", dump), ("verify",)):
            done = CliRunner().invoke(app, ["db", *words, "--home", home, "--json"])
            assert done.exit_code == 0, (words, done.output)
            assert not cluster.is_running()
    finally:
        cluster.destroy()
