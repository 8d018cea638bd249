"""The raster workflows of the specification run: small rasters one way, large ones the other."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

from tests.acceptance.conftest import LARGE_ABOVE_MB
from tests.acceptance.platform import Json, Platform
from tests.acceptance.rasters import geotiff
from tests.support.waiting import wait_until

HEIGHT, WIDTH = 600, 700
LARGE_MB = LARGE_ABOVE_MB + 1
"""Of the file that is large; what follows the raster in it is a hole."""
PIXELS = np.random.default_rng(3).normal(0, 1, (8, HEIGHT, WIDTH))


@pytest.fixture(scope="module")
def sources(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Json:
    """Return blob names of a small raster, and of one in a file that seems to be large."""
    folder = tmp_path_factory.mktemp("spec")
    content = geotiff(PIXELS, crs="EPSG:3857")
    for name in ("small", "large"):
        (folder / f"{name}.tif").write_bytes(content)
    os.truncate(folder / "large.tif", LARGE_MB * 1_000_000)
    for name in ("small", "large"):
        platform.put_blob(f"bronze/spec/{name}.tif", folder / f"{name}.tif")
    return {"container_name": "bronze", "small": "spec/small.tif", "large": "spec/large.tif"}


def run(platform: Platform, workflow_id: str, inputs: Json) -> tuple[Json, Json]:
    """Return the outputs of a job and the status of each of its nodes."""
    job_id = platform.create_job(workflow_id, inputs)

    def final() -> Json | None:
        (row,) = platform.rows("SELECT status, outputs, error FROM dagapp.dag_jobs WHERE job_id = %s", job_id)
        return row if row["status"] in ("COMPLETED", "FAILED", "CANCELLED") else None

    row: Any = wait_until(final, f"job {job_id} final", 90, every=0.1)
    assert row["status"] == "COMPLETED", row
    nodes = platform.rows(
        "SELECT node_id, status FROM dagapp.dag_node_states WHERE job_id = %s AND parent_node_id IS NULL", job_id
    )
    return row["outputs"], {node["node_id"]: node["status"] for node in nodes}


FA, DOCKER = "process_fa", "process_docker"


@pytest.mark.parametrize(("size", "way", "other"), [("small", FA, DOCKER), ("large", DOCKER, FA)])
def test_raster_processing_takes_the_way_of_the_size(
    platform: Platform, sources: Json, tmp_path: Path, size: str, way: str, other: str
) -> None:
    inputs = {"container_name": "bronze", "blob_name": sources[size], "output_prefix": f"silver/spec/{size}"}
    outputs, nodes = run(platform, "raster_processing", inputs)
    assert (nodes[way], nodes[other], outputs[other]) == ("COMPLETED", "SKIPPED", None)
    with rasterio.open(platform.blob(outputs[way], tmp_path)) as cog:
        np.testing.assert_array_equal(cog.read(), PIXELS)


@pytest.mark.parametrize(("size", "tiles"), [("small", None), ("large", 4)])
def test_raster_tiled_processing_cuts_what_is_large(
    platform: Platform, sources: Json, size: str, tiles: int | None
) -> None:
    inputs = {
        "container_name": "bronze", "blob_name": sources[size], "output_prefix": f"silver/spec-tiled/{size}",
        "collection_id": "spec", "item_id": f"spec-{size}", "href": "http://127.0.0.1/download/a?version=0",
    }  # fmt: skip
    outputs, nodes = run(platform, "raster_tiled_processing", inputs)
    cut, direct = ("process_tiles", "process_direct") if tiles else ("process_direct", "process_tiles")
    assert (nodes[cut], nodes[direct], nodes["finalize"]) == ("COMPLETED", "SKIPPED", "COMPLETED")
    assert outputs["item"]["properties"]["proj:shape"] == [HEIGHT, WIDTH]
    assert outputs["item"]["properties"].get("geodag:tile_count") == tiles
