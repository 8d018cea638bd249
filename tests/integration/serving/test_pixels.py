"""Pixels, documents and files are right, and odd requests never get a 5xx."""

import io
import json
from urllib.parse import quote

import numpy as np
import pytest
import rasterio
from rasterio.transform import from_bounds
from rasterio.warp import transform_bounds

from core.models.business import ApprovalState
from tests.support import business
from tests.support.rasters import (
    ELEVATION_CRS,
    ELEVATION_TRANSFORM,
    NODATA,
    elevation,
    read_png,
    tile_of,
    warped_tile,
)
from tests.support.serving_world import PUBLIC_URL, ServingWorld, VersionSeed

ASSET = "0123456789abcdef0123456789abcdef"
GREY = {"bidx": [1], "rescale": [[0, 1000]], "resampling": "bilinear"}
ZOOM = 11
INSIDE = (15.1, 50.5)
SOME_TILE = "/tiles/{{}}/{}/{}/{}.png".format(ZOOM, *tile_of(*INSIDE, ZOOM))


@pytest.fixture(scope="module")
def dem(world: ServingWorld) -> str:
    """Return a public asset whose only version is the elevation."""
    world.add_asset(ASSET, {0: VersionSeed(blob_path="silver/dem.tif", render=GREY)})
    return ASSET


def tiles_over_the_elevation() -> list[tuple[int, int]]:
    """Return every (x, y) that the elevation touches."""
    bounds = rasterio.transform.array_bounds(600, 800, ELEVATION_TRANSFORM)
    west, south, east, north = transform_bounds(ELEVATION_CRS, "EPSG:4326", *bounds)
    (left, top), (right, bottom) = tile_of(west, north, ZOOM), tile_of(east, south, ZOOM)
    return [(x, y) for x in range(left, right + 1) for y in range(top, bottom + 1)]


def test_a_tile_has_the_pixels_of_an_independent_warp(world: ServingWorld, dem: str) -> None:
    """C17, tile-rescale: float pixels, no parameters; every tile is stretched by the one range of the version."""
    compared = 0
    for x, y in tiles_over_the_elevation():
        answer = world.get(f"/tiles/{dem}/{ZOOM}/{x}/{y}.png")
        expected = warped_tile(elevation(), ELEVATION_CRS, ELEVATION_TRANSFORM, ZOOM, x, y)[0]
        if answer.status == 204:
            assert (expected == NODATA).mean() > 0.99
            continue
        assert answer.headers["content-type"] == "image/png"
        grey, alpha = np.moveaxis(read_png(answer.body), 2, 0)
        valid = expected != NODATA
        assert ((alpha > 0) == valid).mean() > 0.985
        both = valid & (alpha > 0)
        difference = np.abs(grey[both].astype(float) - np.clip(expected[both] / 1000 * 255, 0, 255))
        assert np.percentile(difference, 99) <= 2
        compared += int(both.sum())
    assert compared > 50_000


def test_a_tile_in_web_mercator_is_the_array_itself(world: ServingWorld) -> None:
    """One tile's grid exactly: no warp, no resampling, so every pixel must be equal."""
    z, (x, y) = 9, tile_of(*INSIDE, 9)
    half = 20037508.342789244
    size = 2 * half / 2**z
    west, north = -half + x * size, half - y * size
    classes = np.random.default_rng(1).integers(1, 4, (1, 256, 256), dtype="uint8")
    classes[0, :10, :20] = 0
    world.put_cog(
        "classes.tif",
        classes,
        "EPSG:3857",
        from_bounds(west, north - size, west + size, north, 256, 256),
        0,
    )
    colours = {"1": [255, 0, 0, 255], "2": [0, 255, 0, 255], "3": [0, 0, 255, 128]}
    asset_id = "1" * 32
    render = {"bidx": [1], "rescale": None, "colormap": colours, "colormap_name": None, "resampling": "nearest"}
    world.add_asset(asset_id, {0: VersionSeed(blob_path="silver/classes.tif", render=render)})
    pixels = read_png(world.get(f"/tiles/{asset_id}/{z}/{x}/{y}.png").body)
    table = np.array([[0, 0, 0, 0], *colours.values()], "uint8")
    expected = table[classes[0]]
    assert np.array_equal(pixels[..., 3], expected[..., 3])
    assert np.array_equal(pixels[pixels[..., 3] > 0], expected[expected[..., 3] > 0])


def test_a_tile_inside_the_matrix_without_data_is_204(world: ServingWorld, dem: str) -> None:
    """C19, tile-outside: beside the data, and in a hole of it."""
    far = world.get(f"/tiles/{dem}/{ZOOM}/0/0.png")
    assert (far.status, far.body) == (204, b"")
    hole = rasterio.transform.xy(ELEVATION_TRANSFORM, 300, 400)
    west, south, _, _ = transform_bounds(ELEVATION_CRS, "EPSG:4326", *hole, *hole)
    x, y = tile_of(west, south, 17)
    assert world.get(f"/tiles/{dem}/17/{x}/{y}.png").status == 204


@pytest.mark.parametrize("tile", ["0/1/0", "3/8/0", "3/0/8", "3/-1/0", "-1/0/0", "25/0/0", "99/0/0", f"3/0/{10**30}"])
def test_a_tile_outside_the_matrix_is_404(world: ServingWorld, dem: str, tile: str) -> None:
    """C19, tile-outside."""
    answer = world.get(f"/tiles/{dem}/{tile}.png")
    assert (answer.status, answer.json()["code"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize("tile", ["a/0/0", "3/1.5/0", "3/0/x", "3/0/nan", "3/%00/0", "3/0/1.jpg"])
def test_bad_numbers_are_422_and_name_the_field(world: ServingWorld, dem: str, tile: str) -> None:
    """C19, tile-outside."""
    answer = world.get(f"/tiles/{dem}/{tile}")
    assert (answer.status, answer.json()["code"]) == (422, "PARAMETER_INVALID")
    assert answer.json()["field"] in ("x", "y", "z")


@pytest.mark.parametrize("version", ["newest", "-1", "1.0", "", "9999999999", "0x1", "%00", "%F0%9F%92%A9", "٣"])
@pytest.mark.parametrize("path", ["/tiles/{}/0/0/0.png", "/stac/{}", "/download/{}", "/preview/{}.png"])
def test_a_bad_version_is_422_at_every_door(world: ServingWorld, dem: str, path: str, version: str) -> None:
    answer = world.get(f"{path.format(dem)}?version={quote(version, safe='%')}")
    assert (answer.status, answer.json()["field"]) == (422, "version")


@pytest.mark.parametrize(
    ("query", "field"),
    [("verison=0", "verison"), ("version=0&version=latest", "version"), ("version=0&url=/etc/passwd", "url")],
)
def test_a_query_that_would_be_ignored_shows_nothing(world: ServingWorld, dem: str, query: str, field: str) -> None:
    for door in ("/tiles/{}/0/0/0.png", "/tiles/{}/tilejson.json", "/stac/{}", "/download/{}", "/preview/{}.png"):
        for asset in (dem, "0" * 32):
            answer = world.get(f"{door.format(asset)}?{query}")
            assert (answer.status, answer.json()["code"], answer.json()["field"]) == (422, "PARAMETER_INVALID", field)
    assert world.get(f"/report/{dem}?verison=0").json()["field"] == "verison"
    assert world.get("/stac/collections/ddh-raster?version=0").json()["field"] == "version"
    assert world.get(f"/download/{dem}?version=0&tile=x").json()["field"] == "tile"


@pytest.mark.parametrize("asset_id", ["%00", "..%2F..%2Fetc%2Fpasswd", "A" * 32, "0" * 31, "%F0%9F", "a" * 5000, "'"])
@pytest.mark.parametrize("path", ["/tiles/{}/0/0/0.png", "/stac/{}", "/download/{}", "/preview/{}.png"])
def test_an_odd_asset_id_is_404(world: ServingWorld, path: str, asset_id: str) -> None:
    assert world.get(path.format(asset_id)).status == 404


@pytest.mark.parametrize("query", ["url=/etc/passwd", "expression=b1*2", "bidx=99", "rescale=x", "colormap=%7B"])
def test_nothing_else_in_a_query_reaches_the_reader(world: ServingWorld, dem: str, query: str) -> None:
    x, y = tile_of(*INSIDE, ZOOM)
    path = f"/tiles/{dem}/{ZOOM}/{x}/{y}.png"
    answer = world.get(f"{path}?{query}")
    assert (answer.status, answer.json()["field"]) == (422, query.partition("=")[0])


@pytest.mark.filterwarnings("ignore:Adjusting dataset latitudes:UserWarning")
@pytest.mark.parametrize(
    ("crs", "bounds"),
    [
        ("EPSG:4326", (-180.0, -90.0, 180.0, 90.0)),
        ("EPSG:3413", (-3_000_000.0, -3_000_000.0, 3_000_000.0, 3_000_000.0)),
        ("EPSG:3031", (-3_000_000.0, -3_000_000.0, 3_000_000.0, 3_000_000.0)),
        ("EPSG:32601", (-200_000.0, 6_000_000.0, 200_000.0, 6_400_000.0)),
        ("EPSG:4326", (179.0, -10.0, 181.0, 10.0)),
    ],
)
def test_rasters_over_poles_and_the_antimeridian_are_served(
    world: ServingWorld, crs: str, bounds: tuple[float, float, float, float]
) -> None:
    asset_id = f"{abs(hash((crs, bounds))):032x}"[-32:]
    name = f"{asset_id}.tif"
    world.put_cog(name, np.full((1, 300, 300), 7, "int16"), crs, from_bounds(*bounds, 300, 300), None)
    world.add_asset(asset_id, {0: VersionSeed(blob_path=f"silver/{name}")})
    drawn = 0
    for z in range(4):
        for x in range(2**z):
            for y in range(2**z):
                status = world.get(f"/tiles/{asset_id}/{z}/{x}/{y}.png").status
                assert status in (200, 204)
                drawn += status == 200
    assert drawn > 0
    document = world.get(f"/tiles/{asset_id}/tilejson.json").json()
    west, south, east, north = document["bounds"]
    assert -90 < south < north < 90
    assert all(np.isfinite([west, east]))
    assert world.get(f"/preview/{asset_id}.png").status == 200


def test_without_a_rendering_a_raster_still_shows_something(world: ServingWorld) -> None:
    asset_id = "2" * 32
    world.add_asset(asset_id, {0: VersionSeed(blob_path="silver/dem.tif", render=None)})
    grey, alpha = np.moveaxis(read_png(world.get(f"/preview/{asset_id}.png").body), 2, 0)
    shown = grey[alpha > 0]
    assert shown.min() < 20
    assert shown.max() > 235


def test_three_bands_are_drawn_in_the_order_of_the_rendering(world: ServingWorld) -> None:
    bands = np.stack([np.full((64, 64), value, "uint8") for value in (10, 20, 30)])
    world.put_cog("rgb.tif", bands, "EPSG:3857", from_bounds(0, 0, 64_000, 64_000, 64, 64))
    asset_id = "3" * 32
    render = {"bidx": [3, 2, 1], "rescale": None}
    world.add_asset(asset_id, {0: VersionSeed(blob_path="silver/rgb.tif", render=render)})
    assert read_png(world.get(f"/preview/{asset_id}.png").body)[32, 32].tolist() == [30, 20, 10, 255]


def test_a_preview_shows_the_whole_raster_in_its_own_grid(world: ServingWorld, dem: str) -> None:
    pixels = read_png(world.get(f"/preview/{dem}.png").body)
    assert pixels.shape == (600, 800, 2)
    source = elevation()[0]
    valid = source != NODATA
    assert np.array_equal(pixels[..., 1] > 0, valid)
    assert np.abs(pixels[..., 0][valid] - source[valid] / 1000 * 255).max() <= 1


def test_the_tilejson_leads_to_the_tiles_it_describes(world: ServingWorld, dem: str) -> None:
    document = world.get(f"/tiles/{dem}/tilejson.json?version=0").json()
    assert document["tilejson"] == "3.0.0"
    assert document["tiles"] == [f"{PUBLIC_URL}/tiles/{dem}/{{z}}/{{x}}/{{y}}.png?version=0"]
    corners = rasterio.transform.array_bounds(600, 800, ELEVATION_TRANSFORM)
    assert document["bounds"] == pytest.approx(transform_bounds(ELEVATION_CRS, "EPSG:4326", *corners), abs=0.01)
    assert document["minzoom"] <= ZOOM <= document["maxzoom"]
    x, y = tile_of(*INSIDE, document["maxzoom"])
    template = document["tiles"][0].removeprefix(PUBLIC_URL)
    assert world.get(template.format(z=document["maxzoom"], x=x, y=y)).status == 200


def test_a_download_is_the_stored_file_whole_and_by_ranges(world: ServingWorld, dem: str) -> None:
    stored = world.stored("dem.tif")
    whole = world.get(f"/download/{dem}")
    assert whole.body == stored
    assert whole.headers["accept-ranges"] == "bytes"
    assert f"{dem}-v0.tif" in whole.headers["content-disposition"]
    with rasterio.open(io.BytesIO(whole.body)) as src:
        assert np.array_equal(src.read(), elevation())
    part = world.get(f"/download/{dem}", Range="bytes=100-199")
    assert (part.status, part.body) == (206, stored[100:200])
    assert part.headers["content-range"] == f"bytes 100-199/{len(stored)}"
    tail = world.get(f"/download/{dem}", Range="bytes=-50")
    assert (tail.status, tail.body) == (206, stored[-50:])
    changed = world.get(f"/download/{dem}", Range="bytes=0-9", If_Range='"another"')
    assert (changed.status, changed.body) == (200, stored)
    same = world.get(f"/download/{dem}", Range="bytes=0-9", If_Range=whole.headers["etag"])
    assert (same.status, same.body) == (206, stored[:10])


@pytest.mark.parametrize(("wanted", "status"), [("bytes=999999999-", 416), ("bytes=9-1", 400), ("bytes=x", 400)])
def test_a_range_that_cannot_be_is_the_callers_error(world: ServingWorld, dem: str, wanted: str, status: int) -> None:
    refused = world.get(f"/download/{dem}", Range=wanted)
    assert (refused.status, refused.headers["content-type"]) == (status, "application/problem+json")
    assert refused.headers["cache-control"] == "private, no-store"
    told = json.loads(refused.body)
    assert (told["status"], told["field"], told["value"], told["user_fixable"]) == (status, "Range", wanted, True)
    size = len(world.stored("dem.tif"))
    assert refused.headers.get("content-range") == (f"bytes */{size}" if status == 416 else None)


def test_a_range_in_an_unknown_unit_is_ignored(world: ServingWorld, dem: str) -> None:
    whole = world.get(f"/download/{dem}", Range="rows=0-9")
    assert (whole.status, whole.body) == (200, world.stored("dem.tif"))


def test_head_tells_the_size_without_the_body(world: ServingWorld, dem: str) -> None:
    answer = world.get(f"/download/{dem}", method="HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) == len(world.stored("dem.tif"))


@pytest.mark.parametrize("path", [SOME_TILE, "/tiles/{}/tilejson.json", "/stac/{}", "/download/{}"])
def test_a_caller_who_has_it_already_gets_304(world: ServingWorld, dem: str, path: str) -> None:
    etag = world.get(path.format(dem)).headers["etag"]
    answer = world.get(path.format(dem), If_None_Match=f'"other", W/{etag}')
    assert (answer.status, answer.body) == (304, b"")
    assert answer.headers["etag"] == etag
    assert world.get(path.format(dem), If_None_Match='"other"').status == 200


def test_what_is_not_public_has_no_etag_and_is_never_stored(world: ServingWorld) -> None:
    asset_id = "4" * 32
    world.add_asset(asset_id, {0: VersionSeed(ApprovalState.PENDING_REVIEW, blob_path="silver/dem.tif")})
    answer = world.get(f"/preview/{asset_id}.png?version=0", business.key_of(business.REVIEWER))
    assert answer.status == 200
    assert answer.headers["cache-control"] == "private, no-store"
    assert "etag" not in answer.headers


def test_a_version_whose_file_is_gone_says_so_without_telling_where_it_was(world: ServingWorld) -> None:
    asset_id = "5" * 32
    world.add_asset(asset_id, {0: VersionSeed(blob_path="silver/gone/away.tif")})
    answer = world.get(f"/preview/{asset_id}.png")
    assert (answer.status, answer.json()["code"]) == (503, "STORAGE_UNAVAILABLE")
    assert answer.headers["retry-after"]
    assert "gone" not in answer.body.decode()


def test_a_broken_file_is_our_error_with_an_id_for_the_log(world: ServingWorld) -> None:
    asset_id = "6" * 32
    world.put("broken.tif", b"II*\x00" + b"\xff" * 100)
    world.add_asset(asset_id, {0: VersionSeed(blob_path="silver/broken.tif")})
    answer = world.get(f"/preview/{asset_id}.png")
    assert (answer.status, answer.json()["code"]) == (503, "STORAGE_UNAVAILABLE")
    assert answer.json()["error_id"]
    assert "broken" not in answer.body.decode()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_serving_changes_nothing(world: ServingWorld, dem: str, method: str) -> None:
    answer = world.get(f"/download/{dem}", method=method)
    assert (answer.status, answer.json()["code"]) == (405, "METHOD_NOT_ALLOWED")


def test_an_unknown_path_answers_with_problem_details(world: ServingWorld) -> None:
    answer = world.get("/nothing/here")
    assert (answer.status, json.loads(answer.body)["code"]) == (404, "NOT_FOUND")


def test_health_is_open(world: ServingWorld) -> None:
    assert world.get("/livez").status == 200
    assert world.get("/readyz").status == 200
    assert json.loads(world.get("/health").body) == {"status": "ok", "build_id": "dev"}
