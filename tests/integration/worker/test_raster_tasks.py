"""The real raster handlers inside the real jail."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.transform import from_origin

from core.handlers_catalog import HEAVY_QUEUE
from core.ports import BlobRef
from core.wire import TaskResult, TaskStatus
from repositories.blobs_folder import FolderBlobRepository
from tests.integration.worker.conftest import Dispatcher
from tests.integration.worker.running import running

HEIGHT = np.add.outer(np.arange(300, dtype="float32"), np.arange(400, dtype="float32"))


@pytest.fixture
async def source(environment: dict[str, str], tmp_path: Path) -> str:
    path = tmp_path / "dem.tif"
    profile = {"driver": "GTiff", "width": 400, "height": 300, "count": 1, "dtype": "float32", "nodata": -9999.0}
    with rasterio.open(path, "w", crs="EPSG:32631", transform=from_origin(5e5, 5e6, 30, 30), **profile) as dst:
        dst.write(HEIGHT, 1)
    await FolderBlobRepository(Path(environment["BLOB_ROOT"])).upload(path, BlobRef("bronze", "in/dem.tif"))
    return "bronze/in/dem.tif"


def output(result: TaskResult) -> dict[str, Any]:
    assert result.status is TaskStatus.COMPLETED, result.error
    assert result.output is not None
    return result.output


async def test_a_raster_is_validated_and_becomes_a_cog_in_the_jail(
    dispatch: Dispatcher, source: str, environment: dict[str, str]
) -> None:
    async with running():
        await dispatch("job_validate_0", "raster.validate", {"source": source}, timeout_seconds=60)
        validated = output(await dispatch.result("job_validate_0", 60))
    params = {"source": source, "raster": validated["raster"], "output_prefix": "silver/asset/0/r1"}
    async with running(worker_queue=HEAVY_QUEUE, worker_type="heavy"):
        await dispatch("job_cog_0", "raster.create_cog", params, queue=HEAVY_QUEUE, timeout_seconds=60)
        result = await dispatch.result("job_cog_0", 60)
    cog = output(result)
    assert cog["blob_path"].startswith("silver/asset/0/r1/job_cog_0/")
    assert result.peak_rss_bytes is not None
    with rasterio.open(Path(environment["BLOB_ROOT"]) / cog["blob_path"]) as stored:
        assert np.array_equal(stored.read(1), HEIGHT)
        assert stored.crs.to_epsg() == 32631


async def test_a_text_that_is_called_tif_is_refused_with_its_code(
    dispatch: Dispatcher, environment: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "a.tif"
    path.write_text("no raster at all")
    await FolderBlobRepository(Path(environment["BLOB_ROOT"])).upload(path, BlobRef("bronze", "a.tif"))
    async with running():
        await dispatch("job_validate_0", "raster.validate", {"source": "bronze/a.tif"}, timeout_seconds=60)
        result = await dispatch.result("job_validate_0", 60)
    assert result.error is not None
    assert (result.error.code, result.error.user_fixable) == ("RASTER_UNREADABLE", True)
