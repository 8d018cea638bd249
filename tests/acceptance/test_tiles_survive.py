"""Tiles whose workers are killed at random moments come out, byte by byte, as if nothing had happened.

`SURVIVE_SIDE=32000` is the run by hand, 2 GB in 64 tiles, whose figures stand in docs/performance.md.
"""

import hashlib
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.transform import from_origin
from rasterio.windows import Window

from cli.stack.layout import BlobsKind
from tests.acceptance.conftest import SMALL_TILES
from tests.acceptance.platform import Json, Platform
from tests.acceptance.rasters import terrain
from tests.support.adapters import BLOBS
from tests.support.waiting import wait_until

SIDE = int(os.environ.get("SURVIVE_SIDE", "5000" if BLOBS is BlobsKind.FOLDERS else "2500"))
TILE = 4096 if SIDE > 5000 else 1024 if SIDE > 2500 else 512
TILES, KILLS = (-(-SIDE // TILE)) ** 2, 5
"""50 MB of int16 in 25 tiles unless the environment says otherwise; a far storage sends each task all of it."""
SECONDS = 120 if SIDE <= 5000 else 3600
SOURCE, BLOCK = "ddh/in-pieces.tif", 500


@pytest.fixture(scope="module")
def source(platform: Platform) -> str:
    """Return where the raster lies."""
    path = platform.stack.home.root / "in-pieces.tif"
    rows = np.tile(terrain(BLOCK, BLOCK), (1, 1, SIDE // BLOCK))
    profile = {"width": SIDE, "height": SIDE, "count": 1, "dtype": "int16", "crs": "EPSG:32633", "BIGTIFF": "IF_SAFER"}
    place = from_origin(500_000, 5_000_000, 1, 1)
    with rasterio.open(path, "w", driver="GTiff", transform=place, **profile) as dst:
        for top in range(0, SIDE, BLOCK):
            dst.write(rows, window=Window(0, top, SIDE, BLOCK))
    assert path.stat().st_size >= 2 * SIDE * SIDE
    platform.put_blob(f"bronze/{SOURCE}", path)
    return f"bronze/{SOURCE}"


def start(platform: Platform, source: str, name: str) -> str:
    """Start a tiled job and return its id; everything that comes out is the same but for the folder."""
    about = {"asset_id": "a" * 32, "version_ordinal": 0, "revision": 1, "request_id": "r", "platform_id": "ddh"}
    texts = {"version_label": "v1", "title": "t", "collection_id": "ddh-raster", "collection_title": "t"}
    place = {"item_id": "tiled-v0", "href": "http://127.0.0.1/download/a?version=0", "output_prefix": f"silver/{name}"}
    options = {"options": {"datetime": "2024-05-01T10:00:00Z", "raster_type": "elevation"}}
    given = {"source": source, "tile_pixels": TILE, **about, **texts, **place, **options}
    return platform.create_job(SMALL_TILES, given)


def tiles_done(platform: Platform, job_id: str) -> int:
    statement = "SELECT count(*) FROM dagapp.dag_node_states WHERE job_id = %s AND parent_node_id = 'tiles'"
    return int(platform.value(f"{statement} AND status = 'COMPLETED'", job_id))


def worker_at_a_tile(platform: Platform, job_id: str) -> str | None:
    """Return a part that holds the lease of a tile right now."""
    found = platform.rows(
        "SELECT w.pid FROM dagapp.dag_attempts AS a JOIN dagapp.dag_workers AS w ON w.worker_id = a.worker_id"
        " WHERE a.job_id = %s AND a.node_id LIKE 'tiles%%' AND a.state = 'leased'",
        job_id,
    )
    names = {platform.stack.pid(name): name for name in platform.stack.shape.worker_names}
    return next((names[row["pid"]] for row in found if row["pid"] in names), None)


def finished(platform: Platform, job_id: str) -> Json:
    """Return the outputs of a job once it is completed."""

    def final() -> Json | None:
        (row,) = platform.rows("SELECT status, outputs, error FROM dagapp.dag_jobs WHERE job_id = %s", job_id)
        return row if row["status"] in ("COMPLETED", "FAILED", "CANCELLED") else None

    row: Any = wait_until(final, f"job {job_id} final", SECONDS, every=0.1)
    assert row["status"] == "COMPLETED", row
    return dict(row["outputs"])


def result(platform: Platform, outputs: Json, scratch: Path) -> Json:
    """Return everything that came out but names of attempts: item, rendering, and digests of the tiles' bytes."""
    listed = json.loads(platform.blob(outputs.pop("tiles_path"), scratch).read_text())
    overview = digest(platform.blob(outputs.pop("blob_path"), scratch))
    tiles = [(one, digest(platform.blob(one.pop("blob_path"), scratch))) for one in listed["tiles"]]
    return {"outputs": outputs, "listed": listed, "overview": overview, "tiles": tiles}


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def test_five_kills_change_no_byte(platform: Platform, source: str, tmp_path: Path) -> None:
    undisturbed = result(platform, finished(platform, start(platform, source, "undisturbed")), tmp_path)
    job_id = start(platform, source, "killed")
    for threshold in sorted(random.Random(7).sample(range(TILES // 2), KILLS)):

        def victim(least: int = threshold) -> str | None:
            return worker_at_a_tile(platform, job_id) if tiles_done(platform, job_id) >= least else None

        platform.stack.kill(wait_until(victim, f"a worker at a tile after {threshold}", SECONDS, every=0.02) or "")
    found = result(platform, finished(platform, job_id), tmp_path)
    lost = "SELECT count(*) FROM dagapp.dag_attempts WHERE job_id = %s AND state = 'expired'"
    assert platform.value(lost, job_id) >= 1
    assert len(found["tiles"]) == TILES
    assert found == undisturbed
