"""A raster that is cut into tiles is published like one that is not: the same pictures, the same rules, one entry."""

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from psycopg.types.json import Jsonb
from rasterio.transform import from_origin

from tests.acceptance.conftest import SMALL_TILES
from tests.acceptance.platform import Json, Platform, http
from tests.acceptance.rasters import geotiff, png, terrain

HEIGHT, WIDTH = 1100, 1300
STEP = 0.0005
WEST, NORTH = 10.0, 50.0
DETAILED, COARSE = 13, 9


@pytest.fixture(scope="module")
def both(platform: Platform) -> Iterator[tuple[Json, Json]]:
    """Yield one raster, published twice: cut into tiles, and whole."""
    (row,) = platform.rows("SELECT allowed_workflows FROM dagapp.platforms WHERE platform_id = 'ddh'")
    statement = "UPDATE dagapp.platforms SET allowed_workflows = %s WHERE platform_id = 'ddh' RETURNING platform_id"
    platform.rows(statement, Jsonb([*row["allowed_workflows"], SMALL_TILES]))
    content = geotiff(terrain(HEIGHT, WIDTH), transform=from_origin(WEST, NORTH, STEP, STEP))
    options = {"datetime": "2024-05-01T10:00:00Z"}
    tiled = platform.accepted(content, "in-tiles", workflow_id=SMALL_TILES, options=options)
    whole = platform.accepted(content, "in-one", options=options)
    for accepted in (tiled, whole):
        status = platform.finished(accepted["request_id"])
        assert status["state"] == "completed", status
        assert platform.approve(accepted["asset_id"], 0).status == 200
    yield tiled, whole
    platform.rows(statement, Jsonb(row["allowed_workflows"]))


def tile_at(column: float, row: float, z: int) -> tuple[int, int]:
    """Return x and y of the tile over a pixel of the raster."""
    longitude, latitude = WEST + column * STEP, NORTH - row * STEP
    y = (1 - math.asinh(math.tan(math.radians(latitude))) / math.pi) / 2
    return int((longitude + 180) / 360 * 2**z), int(y * 2**z)


def document(platform: Platform, path: str) -> Any:
    answer = http("GET", f"{platform.serving}/{path}")
    assert answer.status == 200, answer.body[:300]
    return answer.json


@pytest.mark.parametrize(
    ("column", "row", "z"),
    [(512, 512, DETAILED), (1024, 300, DETAILED), (100, 100, DETAILED), (650, 550, COARSE), (512, 1024, 11)],
)
def test_a_picture_over_seams_is_that_of_the_whole(
    platform: Platform, both: tuple[Json, Json], column: int, row: int, z: int
) -> None:
    x, y = tile_at(column, row, z)
    cut, whole = (http("GET", f"{platform.serving}/tiles/{one['asset_id']}/{z}/{x}/{y}.png") for one in both)
    assert (cut.status, whole.status) == (200, 200)
    difference = np.abs(png(cut.body).astype(int) - png(whole.body).astype(int))
    assert (difference == 0).mean() > (0.999 if z == DETAILED else 0.5), z
    assert np.percentile(difference, 99) <= 3


def test_outside_its_data_a_tiled_version_answers_like_any_other(platform: Platform, both: tuple[Json, Json]) -> None:
    for path, status in {"13/0/0": 204, "3/8/0": 404, "3/0/x": 422, "99/0/0": 404}.items():
        answers = [http("GET", f"{platform.serving}/tiles/{one['asset_id']}/{path}.png").status for one in both]
        assert answers == [status, status], path


def test_maps_find_the_same_place_and_levels(platform: Platform, both: tuple[Json, Json]) -> None:
    cut, whole = (document(platform, f"tiles/{one['asset_id']}/tilejson.json") for one in both)
    assert cut["maxzoom"] == whole["maxzoom"]
    assert np.allclose(cut["bounds"], whole["bounds"], atol=2 * STEP)
    sizes = [png(http("GET", f"{platform.serving}/preview/{one['asset_id']}.png").body).shape for one in both]
    assert np.allclose(sizes[0][1:], [HEIGHT / 2, WIDTH / 2], atol=1)


def test_the_item_of_the_whole_has_items_of_tiles_beside_it(platform: Platform, both: tuple[Json, Json]) -> None:
    item, of_whole = (document(platform, f"stac/{one['asset_id']}") for one in both)
    tiles = document(platform, f"stac/{both[0]['asset_id']}/tiles")["features"]
    same = ("proj:shape", "proj:transform", "proj:code", "datetime", "geodag:raster_type")
    assert {key: item["properties"][key] for key in same} == {key: of_whole["properties"][key] for key in same}
    assert item["bbox"] == of_whole["bbox"]
    ours, theirs = (one["properties"]["renders"]["default"] for one in (item, of_whole))
    assert ours == theirs | {"assets": ["overview"]}
    assert list(item["assets"]) == ["overview"]
    assert item["properties"]["geodag:tile_count"] == len(tiles) == 9
    assert sum(math.prod(tile["properties"]["proj:shape"]) for tile in tiles) == HEIGHT * WIDTH
    found = platform.rows("SELECT id FROM items WHERE starts_with(id, %s)", f"{both[0]['asset_id']}-v0")
    assert {row["id"] for row in found} == {item["id"], *(tile["id"] for tile in tiles)}
    data = tiles[4]["assets"]["data"]
    stored = http("GET", data["href"])
    assert (stored.status, len(stored.body)) == (200, data["file:size"])
    assert data["file:checksum"] == "1220" + hashlib.sha256(stored.body).hexdigest()
    assert http("GET", data["href"].replace("r0001c0001", "r0009c0001")).status == 404
    assert http("GET", data["href"].replace("r0001c0001", "../x")).status == 422


def test_what_is_revoked_leaves_the_catalogue_with_all_its_tiles(platform: Platform, both: tuple[Json, Json]) -> None:
    asset = both[0]["asset_id"]
    url = f"{platform.gateway}/api/assets/{asset}/versions/0/revoke"
    answer = http("POST", url, headers=platform.as_("reviewer"), body={"reason": "the tiles are wrong"})
    assert answer.status == 200, answer.body
    assert platform.rows("SELECT id FROM items WHERE starts_with(id, %s)", f"{asset}-v0") == []
    for door in (
        f"stac/{asset}/tiles",
        f"download/{asset}?version=0&tile=r0000c0000",
        f"tiles/{asset}/{COARSE}/270/174.png",
    ):
        assert http("GET", f"{platform.serving}/{door}").status == 404
