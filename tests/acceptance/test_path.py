"""The main job, from outside: submit, review, publish, look; and nothing shows before the review."""

import json
from pathlib import Path

import numpy as np
import pystac
import rasterio
from rio_cogeo.cogeo import cog_validate

from scripts.demo_check import tile_of
from scripts.make_demo_raster import load_grid, write_raster
from tests.acceptance import rasters
from tests.acceptance.platform import Json, Platform, http
from tests.support.stac_schemas import stac_errors
from tests.support.waiting import wait_until

PNG = b"\x89PNG\r\n\x1a\n"


def test_a_real_raster_goes_from_submit_to_every_public_door(platform: Platform, tmp_path: Path) -> None:
    grid = load_grid()
    write_raster(grid, tmp_path / "dem.tif")
    accepted = platform.accepted((tmp_path / "dem.tif").read_bytes(), "path", title="Jacksboro fault")
    asset, ordinal = accepted["asset_id"], accepted["version_ordinal"]
    status = platform.finished(accepted["request_id"])
    assert (status["state"], status["review"], status["services"]) == ("completed", "pending_review", None)
    assert "job" not in json.dumps(status)

    west, south, east, north = grid.bounds
    x, y = tile_of((west + east) / 2, (south + north) / 2, 11)
    doors = platform.doors(asset, f"11/{x}/{y}")
    for name, url in doors.items():
        for suffix in ("", "?version=latest", f"?version={ordinal}"):
            assert http("GET", url + suffix).status == 404, name
            assert http("GET", url + suffix, headers=platform.as_("submitter-ddh")).status == 404, name
    assert platform.catalogued(asset, ordinal) is None

    assert platform.approve(asset, ordinal).status == 200
    answers = {name: http("GET", url) for name, url in doors.items()}
    assert {name: answer.status for name, answer in answers.items()} == dict.fromkeys(doors, 200)
    assert answers["preview"].body.startswith(PNG)
    check_item(platform, answers["stac"].json, asset, ordinal, grid.bounds, tmp_path)
    check_cog(answers["download"].body, grid.elevation, tmp_path / "cog.tif")
    check_tile(answers["tile"].body)


def check_item(
    platform: Platform, item: Json, asset: str, ordinal: int, bounds: tuple[float, ...], folder: Path
) -> None:
    """Check the item against the STAC specification, the file's own bounds, and what pgstac has."""
    assert item["id"] == f"{asset}-v{ordinal}"
    np.testing.assert_allclose(item["bbox"], bounds, atol=1e-6)
    catalogued = platform.catalogued(asset, ordinal)
    assert catalogued is not None
    assert catalogued["properties"] == item["properties"]
    assert catalogued["assets"] == item["assets"]
    parsed = pystac.Item.from_dict(item)
    assert parsed.collection_id == catalogued["collection"]
    assert stac_errors(item, folder) == []


def check_cog(body: bytes, elevation: np.ndarray, path: Path) -> None:  # type: ignore[type-arg]
    """Check the file strictly, and its pixels against those that were submitted."""
    path.write_bytes(body)
    valid, errors, warnings = cog_validate(str(path), strict=True, quiet=True)
    assert valid, (errors, warnings)
    with rasterio.open(path) as dataset:
        assert dataset.crs.to_epsg() == 4326
        np.testing.assert_array_equal(dataset.read(1), elevation)


def check_tile(body: bytes) -> None:
    """Check that the tile in the middle of the data is a whole, varied picture."""
    assert body.startswith(PNG)
    pixels = rasters.png(body)
    assert pixels.shape[1:] in {(256, 256), (512, 512)}
    assert (pixels[-1] == 255).all()
    assert len(np.unique(pixels[0])) > 50


def test_latest_changes_only_when_the_second_version_is_approved(platform: Platform, tmp_path: Path) -> None:
    grid = load_grid()
    write_raster(grid, tmp_path / "one.tif")
    write_raster(grid, tmp_path / "two.tif", level=1)
    first = platform.accepted((tmp_path / "one.tif").read_bytes(), "twice")
    asset = first["asset_id"]
    assert platform.finished(first["request_id"])["state"] == "completed"
    assert platform.approve(asset, 0).status == 200

    second = platform.accepted((tmp_path / "two.tif").read_bytes(), "twice", version_label="v2")
    assert (second["asset_id"], second["version_ordinal"]) == (asset, 1)
    assert platform.finished(second["request_id"])["state"] == "completed"
    latest = f"{platform.serving}/stac/{asset}?version=latest"
    assert http("GET", latest).json["id"] == f"{asset}-v0"
    assert http("GET", f"{platform.serving}/stac/{asset}?version=1").status == 404
    assert platform.catalogued(asset, 1) is None

    assert platform.approve(asset, 1).status == 200
    assert http("GET", latest).json["id"] == f"{asset}-v1"
    body = http("GET", f"{platform.serving}/download/{asset}").body
    check_cog(body, grid.elevation + 1, tmp_path / "cog.tif")
    assert platform.catalogued(asset, 1) is not None


def test_a_rejected_version_stays_hidden_and_tells_the_partner_why(platform: Platform) -> None:
    accepted = platform.accepted(rasters.geotiff(rasters.terrain()), "rejected")
    assert platform.finished(accepted["request_id"])["state"] == "completed"
    url = f"{platform.gateway}/api/assets/{accepted['asset_id']}/versions/0/reject"
    answer = http("POST", url, headers=platform.as_("reviewer"), body={"reason": "wrong year"})
    assert answer.status == 200, answer.body
    status = platform.finished(accepted["request_id"])
    assert (status["review"], status["reason"]) == ("rejected", "wrong year")
    for address in platform.doors(accepted["asset_id"], "10/540/346").values():
        assert http("GET", address).status == 404
    assert platform.catalogued(accepted["asset_id"], 0) is None


def test_forty_long_tasks_hold_no_connection(platform: Platform) -> None:
    """D35: who waits for work to end waits outside of any transaction, and calls are answered meanwhile."""
    jobs = [platform.create_job("sleep_test", {"seconds": 2}) for _ in range(40)]
    seen = 0

    def over() -> bool:
        nonlocal seen
        idle = "state LIKE 'idle in transaction%%' AND state_change < clock_timestamp() - interval '1 second'"
        assert platform.rows(f"SELECT pid, query FROM pg_stat_activity WHERE {idle}") == []
        assert http("GET", f"{platform.orchestrator}/readyz", timeout_seconds=2).status == 200
        seen += 1
        return (
            platform.value(
                "SELECT count(*) FROM dagapp.dag_jobs WHERE job_id = ANY(%s) AND status <> 'COMPLETED'", jobs
            )
            == 0
        )

    wait_until(over, "all forty completed", 60, every=0.1)
    assert seen > 1
