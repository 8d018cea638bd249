"""`geodag gc` is killed, really, before many of its steps; what it leaves is whole each time, and the last run ends."""

import asyncio
import sys
from pathlib import Path

from repositories import roles
from repositories.blobs_folder import FolderBlobRepository
from repositories.database import AsyncPool
from repositories.event_archive import read_back
from tests.support.ageing import World, leave, names
from tests.support.business import Business
from tests.support.databases import Database
from tests.support.gc_runs import collect
from tests.support.storage import Folders

STEPS = (1, 15, 22, 29, 36, 43, 46, 49, 52, 55, 58, 61, 64, 68, 10_000)
"""Of a run; each run is killed before one of them, and goes on from where the one before came."""
UPLOAD = "bronze/uploads/ddh/{}/a.tif"
EVENTS = """
CREATE TABLE dagapp.dag_job_events_202001 PARTITION OF dagapp.dag_job_events
    FOR VALUES FROM ('2020-01-01Z') TO ('2020-02-01Z');
ALTER TABLE dagapp.dag_job_events_202001 OWNER TO geodag_owner;
INSERT INTO dagapp.dag_job_events (job_id, event_type, event_data, created_at)
    SELECT 'j', 'job_created', '{"n": 1.50, "s": "ä"}', '2020-01-05Z' FROM generate_series(1, 3);
"""


async def test_a_run_that_is_killed_anywhere_leaves_nothing_half_gone(
    pool: AsyncPool, tmp_path: Path, database: Database
) -> None:
    business = Business(pool, Folders(tmp_path / "blobs"))
    root = tmp_path / "blobs"
    world = World(business, database, root)
    kept = []
    for number in range(2):
        published, deleted = await world.processed(), await world.processed()
        await business.approve(published)
        kept.append((await business.row(published))["blob_path"])
        await business.delete(deleted)
        for part in range(2):
            leave(root, f"{await world.lost(published)}.{part}", 200)
        leave(root, UPLOAD.format(f"{number}" * 32), 40)
        leave(root, f"silver/payloads/{await business.job_of(published)}/values/x.json", 200)
    world.admin(EVENTS)
    world.age_all()
    command = ("-m", "tests.support.gc_runs", database.conninfo(roles.DEPLOY), str(root))
    runs = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert runs.stdin is not None
    assert runs.stdout is not None
    ends = []
    for step in STEPS:
        runs.stdin.write(f"{step}\n".encode())
        ends.append((await runs.stdout.readline()).decode().strip())
        assert await world.missing() == [], step
        (jobs,) = await business.engine.query("SELECT array_agg(job_id) AS ids FROM dagapp.dag_jobs")
        for job_id in jobs["ids"] or []:
            folder = root / "silver/payloads" / job_id
            assert not folder.exists() or list(folder.rglob("*.json")), step
        (events,) = await business.engine.query("SELECT count(*) FROM dagapp.dag_job_events WHERE job_id = 'j'")
        assert events["count"] in (0, 3)
        if events["count"] == 0:
            assert (await read_back(FolderBlobRepository(root), "dag_job_events_202001")).rows == 3
    runs.stdin.close()
    assert await runs.wait() == 0
    assert set(ends) == {"killed", "done"}
    assert (ends[-1], ends.count("killed") >= 8) == ("done", True), ends
    assert names(root) == {*kept, "bronze/ddh/dem.tif", "silver/archives/events/dag_job_events_202001.parquet"}
    assert not any(rows for rows, _ in (await collect(database, root)).values())
