"""What is past its time goes with its files, whatever happens meanwhile; what anybody needs stays."""

from pathlib import Path

import psycopg
import pytest
from psycopg import AsyncConnection

from core.b2b import SubmitAccepted
from core.b2b_assets import SupersedeRequest
from core.errors import Conflict, InvalidTransition
from core.ports import BlobRef
from repositories import roles
from repositories.database import AsyncPool
from repositories.expiry import Expiry, as_owner
from services.leftovers import Leftovers, StorageForeign
from tests.support.ageing import World, age, leave, names
from tests.support.business import ADMIN, SUBMITTER, Business, fresh_refs
from tests.support.databases import Database
from tests.support.gc_runs import collect, policy

UPLOAD = "bronze/uploads/ddh/{}/a.tif"
EMPTY = {
    "webhook_deliveries": (0, 0),
    "dead_letters": (0, 0),
    "submit_batches": (0, 0),
    "superseded_results": (0, 0),
    "jobs": (0, 0),
    "deleted_versions": (0, 0),
}


@pytest.fixture
def world(business: Business, database: Database, blob_root: Path) -> World:
    """Return files in folders: no storage account lets anybody set how old a file is."""
    return World(business, database, blob_root)


async def test_a_dry_run_says_what_goes_then_it_goes_and_a_second_run_finds_nothing(
    world: World, database: Database
) -> None:
    business, root = world.business, world.root
    published, rejected = await world.processed(), await world.processed()
    await business.approve(published)
    deleted = await world.processed(source={"container_name": "bronze", "blob_name": _upload(root, "b", 200)})
    gone = await business_path(world, deleted)
    await business.delete(deleted)
    waiting = await world.processed(source={"container_name": "bronze", "blob_name": _upload(root, "c", 200)})
    await business.reject(rejected)
    lost = await world.lost(published)
    leave(root, UPLOAD.format("d" * 32), 40)
    leave(root, "silver/payloads/nobody/values/x.json", 2)
    leave(root, "silver/by-hand/x.tif", 999)
    fresh = [await world.lost(rejected, days=1), UPLOAD.format("e" * 32), "silver/payloads/soon/values/x.json"]
    for name in fresh[1:]:
        leave(root, name)
    world.age_all()
    before = names(root)
    expected = EMPTY | {
        "jobs": (4, 0),
        "deleted_versions": (1, 0),
        "files_of_attempts": (2, 1234 + 4),
        "uploads": (2, 8),
        "stored_values": (1, 4),
    }
    assert await collect(database, root, dry_run=True) == expected
    assert names(root) == before
    assert await collect(database, root) == expected
    assert await collect(database, root) == EMPTY
    assert before - names(root) == {
        lost,
        gone,
        UPLOAD.format("b" * 32),
        UPLOAD.format("d" * 32),
        "silver/payloads/nobody/values/x.json",
    }
    assert await world.missing() == []
    assert (await business.counts())["jobs"] == 0
    (left,) = await business.engine.query(
        "SELECT (SELECT count(*) FROM dagapp.dag_task_results) AS results,"
        " (SELECT count(*) FROM dagapp.dag_node_states) AS nodes,"
        " (SELECT count(*) FROM dagapp.dag_attempts) AS attempts"
    )
    assert left == {"results": 0, "nodes": 0, "attempts": 0}
    view = await business.status.request(SUBMITTER, published.request_id)
    assert (view.state, view.review, view.progress) == ("completed", "approved", {})
    assert [row[:2] for row in await business.audit(deleted)][-2:] == [("deleted", "sue"), ("purged", "retention")]
    await business.approve(waiting)


async def test_what_was_purged_does_not_come_back_and_its_asset_comes_back_empty(
    world: World, database: Database
) -> None:
    business = world.business
    refs = fresh_refs()
    one = await business.approved(platform_refs=refs)
    await world.files(one)
    await business.approvals.delete_asset(ADMIN, one.asset_id, "not ours")
    world.age_all()
    assert (await collect(database, world.root, policy=policy(jobs_days=0)))["deleted_versions"] == (1, 0)
    job_id = await business.job_of(one)
    with pytest.raises(Conflict) as refused:
        await business.engine.order(job_id, "rerun")
    assert refused.value.detail.code == "VERSION_PURGED"
    await business.approvals.restore_asset(ADMIN, one.asset_id, SupersedeRequest())
    with pytest.raises(InvalidTransition) as caught:
        await business.approvals.restore(ADMIN, one.asset_id, 0, SupersedeRequest())
    assert (caught.value.detail.code, caught.value.detail.next_actions) == ("VERSION_PURGED", ())
    asset = await business.asset(one)
    assert (asset["deleted_at"], asset["latest_approved_version_ordinal"]) == (None, None)
    assert await world.missing() == []
    again = await business.processed(platform_refs=refs)
    assert (again.version_ordinal, again.revision) == (1, 1)


async def test_whoever_comes_between_the_look_and_the_removal_is_seen(world: World, business: Business) -> None:
    failed = await business.submit(platform_refs=fresh_refs())
    await business.fail(await business.job_of(failed))
    await world.processed()
    lost, upload = await world.lost(failed), _upload(world.root, "f", 40)

    async def race(_expiry: Expiry, files: Leftovers) -> tuple[int, int]:
        going = await files.find()
        await business.engine.query("DELETE FROM dagqueue.messages")
        await business.engine.order(await business.job_of(failed), "retry")
        await business.submit(
            platform_refs=fresh_refs(), source={"container_name": "bronze", "blob_name": upload}, version_label="V9"
        )
        return len(going), len(await files.remove(going))

    assert await world.with_expiry(race) == (2, 0)
    assert {lost, f"bronze/{upload}"} <= names(world.root)


async def test_what_is_restored_or_held_in_the_last_moment_stays(
    world: World, business: Business, pool: AsyncPool, database: Database
) -> None:
    restored, held = await world.processed(), await world.processed()
    for one in (restored, held):
        await business.delete(one)
    world.age_all()

    async def race(expiry: Expiry, _files: Leftovers) -> list[int]:
        groups = await expiry.spent_jobs(180)
        assert len(await expiry.spent_versions(90)) == 2
        await business.approvals.restore(ADMIN, restored.asset_id, 0, SupersedeRequest())
        async with pool.connection() as conn, conn.transaction(force_rollback=True):
            await conn.execute("SELECT FROM dagapp.geospatial_assets WHERE asset_id = %s FOR UPDATE", (held.asset_id,))
            await conn.execute("SELECT FROM dagapp.dag_jobs WHERE job_id = %s FOR UPDATE", (groups[0].job_ids[0],))
            went = [len(await expiry.purge(one.asset_id, 90)) for one in (restored, held)]
            jobs = await expiry.remove_jobs(groups, 180)
        return [*went, len(groups), len(jobs)]

    assert await world.with_expiry(race) == [0, 0, 2, 1]
    assert await collect(database, world.root) == EMPTY | {
        "jobs": (1, 0),
        "deleted_versions": (1, 0),
        "files_of_attempts": (1, 1234),
    }
    assert await world.missing() == []


async def test_jobs_that_belong_together_go_together(world: World, business: Business) -> None:
    engine = business.engine
    parent = await engine.create("echo_test", {"message": "parent"})
    child = await engine.create("echo_test", {"message": "child"})
    done = await world.processed()
    open_request = await world.processed()
    world.admin(
        "UPDATE dagapp.dag_jobs SET status = 'COMPLETED', completed_at = dagapp.clock()",
        f"UPDATE dagapp.dag_jobs SET parent_task_id = '{parent}_run_0', status = 'RUNNING', completed_at = NULL"
        f" WHERE job_id = '{child}'",
        f"UPDATE dagapp.platform_requests SET state = 'queued' WHERE request_id = '{open_request.request_id}'",
    )
    world.age_all()

    async def spent(expiry: Expiry, _files: Leftovers) -> list[list[str]]:
        return [list(group.job_ids) for group in await expiry.spent_jobs(180)]

    assert await world.with_expiry(spent) == [[await business.job_of(done)]]
    world.admin(f"UPDATE dagapp.dag_jobs SET status = 'FAILED', completed_at = '2020-01-01Z' WHERE job_id = '{child}'")
    assert sorted([parent, child]) in await world.with_expiry(spent)


async def test_a_storage_of_somebody_else_is_left_alone(world: World, database: Database) -> None:
    mine = await world.processed()
    for digit in "12":
        leave(world.root, f"silver/{digit * 32}/0/r1/j_create_cog_0/cog.tif", 999)
    before = names(world.root)
    with pytest.raises(StorageForeign, match="2 of 3 assets"):
        await collect(database, world.root)
    assert names(world.root) == before
    await world.processed()
    assert (await collect(database, world.root))["files_of_attempts"] == (2, 8)
    assert (world.root / (await business_path(world, mine))).is_file()


async def test_tiles_are_kept_by_the_list_that_names_them(world: World, database: Database) -> None:
    tiled = await world.processed()
    folder = f"silver/{tiled.asset_id}/0/r1"
    job_id = await world.business.job_of(tiled)
    kept = [f"{folder}/{job_id}_tile-1_0/t1.tif", f"{folder}/{job_id}_tile-1_0/coarse.tif"]
    for name in (*kept, f"{folder}/{job_id}_tile-1_1/t1.tif", f"{folder}/notes/n.json"):
        leave(world.root, name, 200)
    tiles = leave(world.root, f"{folder}/{job_id}_finalize_0/tiles.json", 200, b"not a list")
    world.admin(f"UPDATE dagapp.asset_versions SET tiles_path = '{folder}/{job_id}_finalize_0/tiles.json'")
    assert "files_of_attempts" not in await collect(database, world.root)
    tiles.write_text(f'{{"tiles": [{{"blob_path": "{kept[0]}", "size_bytes": 4}}]}}')
    age(tiles, 200)
    assert (await collect(database, world.root))["files_of_attempts"] == (2, 8)
    assert {*kept, f"{folder}/{job_id}_finalize_0/tiles.json"} <= names(world.root)


async def test_only_one_run_works_at_a_time(world: World, database: Database) -> None:
    async with await AsyncConnection.connect(database.conninfo(roles.DEPLOY), autocommit=True) as conn:
        await conn.execute("SELECT pg_advisory_lock(hashtextextended('geodag.gc', 0))")
        with pytest.raises(Conflict) as caught:
            await collect(database, world.root)
    assert caught.value.detail.code == "GC_RUNNING"


@pytest.mark.parametrize("role", roles.PROCESS_ROLES)
async def test_no_process_may_run_it(shared_database: Database, role: str) -> None:
    dsn = shared_database.conninfo(role)
    async with await AsyncConnection.connect(dsn, autocommit=True) as conn:
        if role == roles.ORCHESTRATOR:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await conn.execute("DELETE FROM dagapp.dag_job_events")
            return
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            async with as_owner(conn):
                pass


def _upload(root: Path, digit: str, days: int) -> str:
    name = UPLOAD.format(digit * 32)
    leave(root, name, days)
    return BlobRef.parse(name).name


async def business_path(world: World, accepted: SubmitAccepted) -> str:
    return str((await world.business.row(accepted))["blob_path"])


async def test_the_end_of_a_job_takes_its_own_nodes_and_attempts_along_and_no_others(business: Business) -> None:
    """Nothing else removes them: no key ties them to their job."""
    engine = business.engine
    gone, stays = [await engine.create("echo_test", {"message": name}) for name in ("gone", "stays")]
    count = (
        "SELECT (SELECT count(*) FROM dagapp.dag_node_states WHERE job_id = %s) AS nodes,"
        " (SELECT count(*) FROM dagapp.dag_attempts WHERE job_id = %s) AS attempts"
    )
    before = await engine.query(count, stays, stays)
    assert await engine.query(count, gone, gone) == before != [{"nodes": 0, "attempts": 0}]
    await engine.query("DELETE FROM dagapp.dag_jobs WHERE job_id = %s", gone)
    assert await engine.query(count, gone, gone) == [{"nodes": 0, "attempts": 0}]
    assert await engine.query(count, stays, stays) == before
