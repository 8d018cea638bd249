"""A worker that dies, or sleeps through its lease, in the middle of a COG: there is one result, and it is right."""

import hashlib
import signal

import numpy as np
import pytest
import rasterio

from tests.acceptance.platform import Json, Platform, http
from tests.acceptance.rasters import geotiff, noise
from tests.support.waiting import wait_until

SIZE = 3000


@pytest.fixture(scope="module")
def content() -> bytes:
    """Return a raster whose COG takes long enough to be interrupted."""
    return geotiff(noise(SIZE))


def worker_making_cog(platform: Platform, request_id: str) -> str:
    """Return the worker that is writing the COG of a request, once its file has begun to grow."""

    def found() -> str | None:
        name = platform.worker_of(request_id, "create_cog")
        scratch = platform.stack.home.root / "workers" / str(name) / "scratch"
        writing = name is not None and any(p.is_file() and p.stat().st_size > 0 for p in scratch.rglob("*"))
        return name if writing else None

    return wait_until(found, "a worker in the middle of the COG", 60, every=0.005) or ""


def attempts(platform: Platform, request_id: str) -> list[Json]:
    """Return the attempts at a request's COG in order."""
    return platform.rows(
        "SELECT a.task_id, a.state, a.attempt FROM dagapp.dag_attempts AS a"
        " JOIN dagapp.platform_request_jobs AS r ON r.job_id = a.job_id"
        " WHERE r.request_id = %s AND a.node_id = 'create_cog' ORDER BY a.attempt",
        request_id,
    )


def version_row(platform: Platform, asset_id: str) -> Json:
    """Return everything the platform stores of the first version."""
    (row,) = platform.rows("SELECT * FROM dagapp.asset_versions WHERE asset_id = %s AND version_ordinal = 0", asset_id)
    return row


def check_result(platform: Platform, accepted: Json) -> Json:
    """Check the pixels of the stored COG against those that were submitted; return the version."""
    version = version_row(platform, accepted["asset_id"])
    path = platform.blob(version["blob_path"], platform.stack.home.root)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == version["blob_sha256"]
    with rasterio.open(path) as dataset:
        np.testing.assert_array_equal(dataset.read(), noise(SIZE))
    return version


def test_a_worker_killed_in_the_middle_of_a_cog_is_replaced(platform: Platform, content: bytes) -> None:
    accepted = platform.accepted(content, "killed")
    request_id = accepted["request_id"]
    platform.stack.kill(worker_making_cog(platform, request_id))
    assert platform.finished(request_id)["state"] == "completed"
    lost, won = attempts(platform, request_id)
    assert (lost["state"], won["state"]) == ("expired", "reported")
    version = check_result(platform, accepted)
    assert won["task_id"] in version["blob_path"]
    scratches = (platform.stack.home.root / "workers").glob("worker-heavy-*/scratch/*")
    wait_until(
        lambda: not [path for path in scratches if lost["task_id"] in str(path)], "the scratch of the dead removed", 20
    )


def test_a_worker_that_slept_through_its_lease_changes_nothing_when_it_wakes(
    platform: Platform, content: bytes
) -> None:
    accepted = platform.accepted(content, "overtaken")
    request_id, asset_id = accepted["request_id"], accepted["asset_id"]
    sleeper = worker_making_cog(platform, request_id)
    platform.stack.kill(sleeper, signal.SIGSTOP)
    try:
        assert platform.finished(request_id)["state"] == "completed"
        lost, won = attempts(platform, request_id)
        assert (lost["state"], won["state"]) == ("expired", "reported")
        before = check_result(platform, accepted)
        assert platform.approve(asset_id, 0).status == 200
        item = platform.catalogued(asset_id, 0)
        bytes_before = http("GET", f"{platform.serving}/download/{asset_id}").body
    finally:
        platform.stack.kill(sleeper, signal.SIGCONT)

    late = f"{lost['task_id']} finished"
    wait_until(lambda: answered(platform, lost["task_id"], late), "the sleeper's late result answered", 60, every=0.1)
    after = version_row(platform, asset_id)
    stored = ("blob_path", "blob_sha256", "content_hash", "stac_item", "render", "report", "processing_state")
    assert {key: after[key] for key in stored} == {key: before[key] for key in stored}
    assert won["task_id"] in after["blob_path"]
    assert platform.catalogued(asset_id, 0) == item
    assert http("GET", f"{platform.serving}/download/{asset_id}").body == bytes_before
    assert [row["state"] for row in attempts(platform, request_id)] == ["expired", "reported"]


def answered(platform: Platform, task_id: str, line: str) -> bool:
    """Return whether a late worker was told what became of its attempt: its result is superseded, or it was revoked."""
    result = platform.rows("SELECT disposition FROM dagapp.dag_task_results WHERE task_id = %s", task_id)
    if result:
        assert result[0]["disposition"] == "superseded"
        return True
    states = (platform.stack.home.root / "workers").glob("worker-heavy-*/state/**/*")
    waking = not any(task_id in path.name for path in states)
    scratches = (platform.stack.home.root / "workers").glob("worker-heavy-*/scratch/*")
    return waking and not any(task_id in str(path) for path in scratches)
