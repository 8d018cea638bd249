"""Several files of one kind, submitted at once, become one version: one review, one map, an item for each file."""

import numpy as np
import pytest
from rasterio.transform import from_origin

from tests.acceptance.platform import Answer, Json, Platform, http
from tests.acceptance.rasters import geotiff, png, terrain
from tests.acceptance.test_tiled import tile_at

SIZE, STEP = 200, 0.001
WEST, NORTH = 10.0, 50.0
PIXELS = terrain(2 * SIZE, 2 * SIZE)
PLACES = [(0, 0), (1, 0), (0, 1)]
"""Columns and rows of the files in sizes of a file; the south east is missing."""


def part(column: int, row: int, **changes: str) -> bytes:
    """Return one of the files."""
    rows, columns = slice(row * SIZE, (row + 1) * SIZE), slice(column * SIZE, (column + 1) * SIZE)
    place = from_origin(WEST + column * SIZE * STEP, NORTH - row * SIZE * STEP, STEP, STEP)
    return geotiff(PIXELS[:, rows, columns], transform=place, **changes)


def submit(platform: Platform, dataset: str, files: list[bytes], **options: object) -> Answer:
    """Upload files and submit them as one."""
    sources = [platform.upload(content, f"part-{number}.tif") for number, content in enumerate(files)]
    source = {"container_name": sources[0]["container_name"], "blob_names": [one["blob_name"] for one in sources]}
    options = {"datetime": "2024-05-01T10:00:00Z", "raster_type": "elevation", **options}
    return platform.submit(source, dataset, workflow_id="raster_collection", options=options)


@pytest.fixture(scope="module")
def answers(platform: Platform) -> dict[str, Answer]:
    """Submit all collections of this module at once."""
    files = [part(*place) for place in PLACES]
    odd = part(1, 1, crs="EPSG:4258")
    return {
        "alike": submit(platform, "collection-alike", files),
        "odd": submit(platform, "collection-odd", [*files, odd]),
        "tolerated": submit(platform, "collection-tolerated", [*files, odd], tolerate_files=1),
    }


def ended(platform: Platform, answer: Answer) -> Json:
    assert answer.status == 202, answer.body
    return platform.finished(answer.json["request_id"])


def test_files_that_are_alike_become_one_map(platform: Platform, answers: dict[str, Answer]) -> None:
    status = ended(platform, answers["alike"])
    assert (status["state"], status["errors"]) == ("completed", [])
    asset = answers["alike"].json["asset_id"]
    assert platform.approve(asset, 0).status == 200
    items = http("GET", f"{platform.serving}/stac/{asset}/tiles").json["features"]
    assert len(items) == len(platform.rows("SELECT id FROM items WHERE starts_with(id, %s)", f"{asset}-v0-tile-")) == 3
    titles = [item["properties"]["title"] for item in items]
    assert [title.endswith(f"part-{n}.tif") for n, title in enumerate(titles)] == [True] * 3
    for item, place in zip(items, PLACES, strict=True):
        stored = http("GET", item["assets"]["data"]["href"])
        rows, columns = (slice(n * SIZE, (n + 1) * SIZE) for n in reversed(place))
        np.testing.assert_array_equal(png(stored.body), PIXELS[:, rows, columns])
    x, y = tile_at(2 * SIZE, SIZE, 12)  # of another raster of half the step: the seam in the north
    seam = png(http("GET", f"{platform.serving}/tiles/{asset}/12/{x}/{y}.png").body)
    assert (seam[-1] > 0).mean() > 0.7


def test_a_file_unlike_the_others_fails_the_request_by_name(platform: Platform, answers: dict[str, Answer]) -> None:
    status = ended(platform, answers["odd"])
    (error,) = status["errors"]
    assert (status["state"], error["code"], error["field"]) == ("failed", "COLLECTION_MISMATCH", "crs")
    assert "part-3.tif" in error["message"]


def test_what_is_tolerated_is_left_out_with_a_warning(platform: Platform, answers: dict[str, Answer]) -> None:
    status = ended(platform, answers["tolerated"])
    assert status["state"] == "completed", status
    assert [warning["code"] for warning in status["warnings"]] == ["FILE_LEFT_OUT"]
    asset = answers["tolerated"].json["asset_id"]
    report = platform.value("SELECT report FROM dagapp.asset_versions WHERE asset_id = %s", asset)
    assert [one["verdict"] for one in report["files"]] == ["accept", "accept", "accept", "reject"]
