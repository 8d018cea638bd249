"""The real raster handlers inside the real jail."""

import asyncio
import json
import os
import shutil
import warnings
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import rasterio
from rasterio.crs import CRS
from rasterio.errors import NotGeoreferencedWarning
from rasterio.io import MemoryFile
from rasterio.transform import from_origin

from core.handlers_catalog import CATALOG, HEAVY_QUEUE
from core.ids import digest
from core.outgoing import OutgoingPolicy
from core.ports import BlobRef, BlobRepository
from core.wire import TaskResult, TaskStatus
from edge.fetching import SourceClient
from repositories.blobs_folder import FolderBlobRepository
from tests.integration.worker.conftest import Dispatcher
from tests.integration.worker.running import running
from tests.support.gribs import field
from tests.support.range_host import range_host
from tests.support.raster_cases import everything
from tests.support.storage import Storage

REUSABLE = CATALOG["raster.process_tile"].reusable
HEIGHT = np.add.outer(np.arange(300, dtype="float32"), np.arange(400, dtype="float32"))


@pytest.fixture
async def source(environment: dict[str, str], tmp_path: Path, blobs: BlobRepository) -> str:
    path = tmp_path / "dem.tif"
    profile = {"driver": "GTiff", "width": 400, "height": 300, "count": 1, "dtype": "float32", "nodata": -9999.0}
    with rasterio.open(path, "w", crs="EPSG:32631", transform=from_origin(5e5, 5e6, 30, 30), **profile) as dst:
        dst.write(HEIGHT, 1)
    await blobs.upload(path, BlobRef("bronze", "in/dem.tif"))
    return "bronze/in/dem.tif"


def output(result: TaskResult) -> dict[str, Any]:
    assert result.status is TaskStatus.COMPLETED, result.error
    assert result.output is not None
    return result.output


async def test_a_raster_is_validated_and_becomes_a_cog_in_the_jail(
    dispatch: Dispatcher, source: str, environment: dict[str, str], storage: Storage
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
    content = storage.read(cog["blob_path"])
    assert content is not None
    with MemoryFile(content) as file, file.open() as stored:
        assert np.array_equal(stored.read(1), HEIGHT)
        assert stored.crs.to_epsg() == 32631


async def test_hostile_files_are_refused_and_the_next_job_finds_a_clean_worker(
    dispatch: Dispatcher, source: str, environment: dict[str, str], tmp_path: Path, blobs: BlobRepository
) -> None:
    """D55, hostile-archives: a huge header, entities in a sidecar, an archive that swells, a text; then a good job."""
    for case in ("A45", "A89"):
        (tmp_path / case).mkdir()
        for path in everything.build(case, tmp_path / case).source.parent.iterdir():
            await blobs.upload(path, BlobRef("bronze", f"{case}/{'a' + ''.join(path.suffixes)}"))
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.tif", (tmp_path / "dem.tif").read_bytes()[:100] + bytes(150_000_000))
    await blobs.upload(tmp_path / "bomb.zip", BlobRef("bronze", "bomb.zip"))
    (tmp_path / "text.tif").write_text("no raster at all")
    await blobs.upload(tmp_path / "text.tif", BlobRef("bronze", "text.tif"))
    refused = {
        "A45/a.tif": "RASTER_TOO_LARGE",
        "A89/a.tif": "SIDECAR_INVALID",
        "bomb.zip": "ARCHIVE_TOO_LARGE",
        "text.tif": "RASTER_UNREADABLE",
    }
    async with running():
        for number, (name, code) in enumerate(refused.items()):
            await dispatch(f"job_bad_{number}", "raster.validate", {"source": f"bronze/{name}"}, timeout_seconds=60)
            error = (await dispatch.result(f"job_bad_{number}", 60)).error
            assert error is not None, name
            assert (error.code, error.user_fixable) == (code, True)
            assert os.listdir(environment["WORKER_SCRATCH_DIR"]) == [".lock"]
        await dispatch("job_good_0", "raster.validate", {"source": source}, timeout_seconds=60)
        assert output(await dispatch.result("job_good_0", 60))["raster"]["width"] == 400
        assert os.listdir(environment["WORKER_SCRATCH_DIR"]) == [".lock"]


async def test_a_large_file_behind_a_url_is_inspected_without_being_copied(
    dispatch: Dispatcher, environment: dict[str, str], tmp_path: Path, blobs: BlobRepository
) -> None:
    """The jail gets a sparse copy of the header, neither network nor credential; scratch is left empty."""
    place = {"crs": "EPSG:32631", "transform": from_origin(5e5, 5e6, 30, 30)}
    profile = {"width": 40_000, "height": 30_000, "count": 1, "dtype": "float32", "tiled": True}
    with rasterio.open(tmp_path / "far.tif", "w", driver="GTiff", BIGTIFF="YES", **profile, **place):
        pass
    client = SourceClient(OutgoingPolicy(allow_loopback=True), blobs, 10 << 30)
    async with range_host(tmp_path / "far.tif") as host, running(sources=client):
        params = {"url": host.url, "file_name": "far_dsm.tif"}
        await dispatch("job_inspect_0", "raster.inspect", params, timeout_seconds=60)
        found = output(await dispatch.result("job_inspect_0", 60))
        assert (len(host.seen) < 10, host.sent_bytes < 1_000_000) == (True, True)
        host.mood = "without_ranges"
        host.file = tmp_path / "small.tif"
        host.file.write_bytes(b"II*\0broken")
        await dispatch("job_inspect_1", "raster.inspect", params, timeout_seconds=60)
        refused = await dispatch.result("job_inspect_1", 60)
    assert (found["source"], found["raster"]["width"], found["content_hash"]) == ("far_dsm.tif", 40_000, None)
    assert (found["report"]["read"], found["raster"]["raster_type"]) == ("header", "elevation")
    assert refused.error is not None
    assert refused.error.code == "RASTER_UNREADABLE"
    assert [path.name for path in (tmp_path / "work").rglob("*.tif")] == []


async def test_a_worker_without_a_client_inspects_nothing(dispatch: Dispatcher, environment: dict[str, str]) -> None:
    async with running():
        params = {"url": "https://data.example.org/a.tif", "file_name": "a.tif"}
        await dispatch("job_inspect_0", "raster.inspect", params, timeout_seconds=60)
        refused = await dispatch.result("job_inspect_0", 60)
    assert refused.error is not None
    assert "fetches nothing" in refused.error.message


async def test_a_tile_that_is_there_and_whole_is_not_made_again(
    dispatch: Dispatcher, source: str, environment: dict[str, str], storage: Storage
) -> None:
    """Tiles of one raster, twice; then one is damaged; then another build noted more of it than this one knows; then
    they are put together from what lies in the storage.
    """
    prefix = "silver/asset/0/r1"
    async with running():
        await dispatch("job_validate_0", "raster.validate", {"source": source}, timeout_seconds=60)
        common = {"source": source, "raster": output(await dispatch.result("job_validate_0", 60))["raster"]}
        await dispatch("job_scheme_0", "raster.generate_tiling_scheme", common, timeout_seconds=60)
        scheme = output(await dispatch.result("job_scheme_0", 60))
    tile = {**common, "grid": scheme["grid"], "tile": scheme["tile_list"][0], "output_prefix": prefix}
    made = []
    async with running(worker_queue=HEAVY_QUEUE, worker_type="heavy"):
        for attempt in range(5):
            if attempt == 4:
                note = f"{prefix}/notes/{digest(['raster.process_tile', REUSABLE, tile])}.json"
                known = json.loads(storage.read(note) or b"")
                storage.put(note, json.dumps({**known, "output": {**known["output"], "novel": 1}}).encode())
            if attempt == 2:
                stored = storage.read(made[0]["blob_path"])
                assert stored is not None
                storage.put(made[0]["blob_path"], stored[:-1] + b"x")
            name = f"job_tile_{attempt}"
            await dispatch(name, "raster.process_tile", tile, queue=HEAVY_QUEUE, timeout_seconds=60)
            made.append(output(await dispatch.result(name, 60)))
    first, again, mended, still, last = made
    assert first["blob_path"].startswith(f"{prefix}/job_tile_0/")
    assert again == first
    assert mended["blob_path"].startswith(f"{prefix}/job_tile_2/")
    assert mended["sha256"] == first["sha256"]
    assert still == mended
    assert last["blob_path"].startswith(f"{prefix}/job_tile_4/")
    whole = {
        "tiles": [last], "grid": scheme["grid"], "raster": common["raster"], "output_prefix": prefix,
        "collection_id": "ddh-raster", "item_id": "asset-v0", "title": "Heights", "version_label": "v1",
        "href": "http://127.0.0.1/download/asset?version=0",
    }  # fmt: skip
    async with running():
        await dispatch("job_item_0", "raster.stac_register_item", whole, timeout_seconds=60)
        item = output(await dispatch.result("job_item_0", 60))
    assert {Path(item[name]).name for name in ("blob_path", "tiles_path")} == {"overview.tif", "tiles.json"}
    assert item["stac_item"]["properties"]["geodag:tile_count"] == 1


class Remote(FolderBlobRepository):
    """Blobs that are not on this machine: what is staged is copied to scratch under its own name."""

    async def stage(self, ref: BlobRef, scratch: Path) -> Path:
        found = await super().stage(ref, scratch)
        return Path(await asyncio.to_thread(shutil.copyfile, found, scratch / found.name))


async def test_sidecars_of_a_blob_come_to_the_jail_from_wherever_blobs_are(
    dispatch: Dispatcher, environment: dict[str, str], tmp_path: Path, blobs: BlobRepository
) -> None:
    """World file and .prj give the place; what is not named after the raster stays where it is."""
    if isinstance(blobs, FolderBlobRepository):
        blobs = Remote(tmp_path / "blobs")
    plain = {"driver": "GTiff", "width": 400, "height": 300, "count": 1, "dtype": "float32"}
    with (
        warnings.catch_warnings(action="ignore", category=NotGeoreferencedWarning),
        rasterio.open(tmp_path / "dem.tif", "w", **plain) as dst,
    ):
        dst.write(HEIGHT, 1)
    (tmp_path / "dem.TFW").write_text("30\n0\n0\n-30\n500015\n4999985\n")
    (tmp_path / "dem.prj").write_text(CRS.from_epsg(32631).to_wkt())
    (tmp_path / "other.prj").write_text("no CRS at all")
    for name in ("dem.tif", "dem.TFW", "dem.prj", "other.prj"):
        await blobs.upload(tmp_path / name, BlobRef("bronze", f"in/{name}"))
    async with running(blobs):
        await dispatch("job_validate_0", "raster.validate", {"source": "bronze/in/dem.tif"}, timeout_seconds=60)
        validated = output(await dispatch.result("job_validate_0", 60))
    raster = validated["raster"]
    assert (raster["crs_code"], raster["sidecars"]) == ("EPSG:32631", ["prj", "world"])
    assert raster["bounds"] == [5e5, 5e6 - 9000, 5e5 + 12000, 5e6]


async def test_a_variable_of_a_netcdf_and_a_field_of_a_grib_are_validated_in_the_jail(
    dispatch: Dispatcher, environment: dict[str, str], tmp_path: Path, blobs: BlobRepository
) -> None:
    with h5py.File(tmp_path / "a.nc", "w") as file:
        for name, size, unit in (("lat", 30, "degrees_north"), ("lon", 40, "degrees_east")):
            file[name] = np.arange(size, dtype=float)
            file[name].attrs["units"] = unit
            file[name].make_scale(name)
        file.create_dataset("t", data=HEIGHT[:30, :40], chunks=True, compression="gzip")
        for place, name in enumerate(("lat", "lon")):
            file["t"].dims[place].attach_scale(file[name])
    (tmp_path / "a.grib").write_bytes(field(np.arange(1200.0).reshape(30, 40)))
    found = {}
    async with running():
        for number, name in enumerate(("a.nc", "a.grib")):
            await blobs.upload(tmp_path / name, BlobRef("bronze", name))
            task = f"job_validate_{number}"
            await dispatch(task, "raster.validate", {"source": f"bronze/{name}"}, timeout_seconds=60)
            found[name] = output(await dispatch.result(task, 60))["raster"]
    assert (found["a.nc"]["member"], found["a.nc"]["crs_code"]) == ("t", "EPSG:4326")
    assert (found["a.grib"]["member"], found["a.grib"]["width"]) == ("1", 40)
