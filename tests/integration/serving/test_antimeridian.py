"""Rasters that go on beyond ±180° are drawn on both sides of it, with the pixels of their source."""

import json
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pyproj import Transformer
from rasterio import Affine
from rasterio.crs import CRS
from rasterio.transform import array_bounds, from_origin

from tests.support.rasters import EARTH_HALF, read_png, tile_of
from tests.support.serving_world import ServingWorld, VersionSeed

GREY = {"bidx": [1], "rescale": [[0, 1000]], "resampling": "nearest"}
VOID = -9999.0
SIZE = (400, 300)
GRIDS = {
    "178..182": ("EPSG:4326", from_origin(178, -10, 0.01, 0.01)),
    "160..200": ("EPSG:4326", from_origin(160, 0, 0.1, 0.1)),
    "-182..-178": ("EPSG:4326", from_origin(-182, -10, 0.01, 0.01)),
    "182..186, wholly beyond": ("EPSG:4326", from_origin(182, -10, 0.01, 0.01)),
    "Mercator": ("EPSG:3857", from_origin(19_837_508, -1_000_000, 1000, 1000)),
    "World Mercator": ("EPSG:3395", from_origin(19_837_508, -1_000_000, 1000, 1000)),
    "equirectangular, westward": ("EPSG:4087", from_origin(-20_237_508, -1_000_000, 1000, 1000)),
    "equal area": ("EPSG:6933", from_origin(17_167_530, -1_000_000, 1000, 1000)),
    "UTM 60S": ("EPSG:32760", from_origin(640_000, 8_300_000, 1000, 1000)),
}
TURNS = {
    "EPSG:4326": 360.0, "EPSG:3857": 2 * EARTH_HALF, "EPSG:3395": 2 * EARTH_HALF, "EPSG:4087": 2 * EARTH_HALF,
    "EPSG:6933": 2 * 17367530.445161372, "EPSG:32760": 0.0,
}  # fmt: skip
"""Once around the Earth by the grids' CRS: 2 π a, and shorter where the standard parallels are 30°."""
BOTH_SIDES = {name: name != "182..186, wholly beyond" for name in GRIDS}


def plane() -> NDArray[np.float32]:
    """Return 0..1000 from the west to the east and the north to the south, with a hole."""
    columns, rows = np.meshgrid(np.arange(SIZE[0]), np.arange(SIZE[1]))
    values = (columns + rows) / sum(SIZE) * 1000
    values[100:110, 150:160] = VOID
    return values.astype("float32")[np.newaxis]


def expected(crs: str, transform: Affine, z: int, x: int, y: int) -> NDArray[np.float64]:
    """Return a tile's source pixels by PROJ and arithmetic alone, NaN where there are none."""
    pixel = 2 * EARTH_HALF / 2**z / 256
    mercator_x = -EARTH_HALF + (x * 256 + np.arange(256) + 0.5) * pixel
    mercator_y = EARTH_HALF - (y * 256 + np.arange(256) + 0.5) * pixel
    across, down = np.meshgrid(mercator_x, mercator_y)
    found = np.full((256, 256), np.nan)
    for turns in (-1, 0, 1):
        to_x, to_y = Transformer.from_crs("EPSG:3857", crs, always_xy=True).transform(across, down)
        to_x = to_x + turns * TURNS[crs]
        near = np.isfinite(to_x) & np.isfinite(to_y)
        columns, rows = (
            np.floor(place) for place in ~transform @ (np.where(near, to_x, 1e12), np.where(near, to_y, 1e12))
        )
        inside = (columns >= 0) & (columns < SIZE[0]) & (rows >= 0) & (rows < SIZE[1])
        found[inside] = plane()[0][rows[inside].astype(int), columns[inside].astype(int)]
    found[found == VOID] = np.nan
    return found


def places(crs: str, transform: Affine) -> list[tuple[float, float]]:
    """Return longitude and latitude of places in a raster, west and east of its middle."""
    to_degrees = Transformer.from_crs(crs, "EPSG:4326", always_xy=True)
    found = [to_degrees.transform(*(transform @ (column, 200.0))) for column in (40, 120, 280, 360)]
    return [((lon + 180) % 360 - 180, lat) for lon, lat in found]


def put(world: ServingWorld, name: str, *, tiled: bool) -> str:
    """Return an asset with a raster, as one file or as tiles with an overview."""
    crs, transform = GRIDS[name]
    asset_id = f"{list(GRIDS).index(name) + 16 * tiled:032x}"
    if not tiled:
        world.put_cog(f"{asset_id}.tif", plane(), crs, transform, VOID)
        world.add_asset(asset_id, {0: VersionSeed(blob_path=f"silver/{asset_id}.tif", render=GREY)})
        return asset_id
    world.put_cog(f"{asset_id}.tif", plane()[:, ::8, ::8], crs, transform @ Affine.scale(8), VOID)
    tiles: list[dict[str, Any]] = []
    for top in range(0, SIZE[1], 128):
        for left in range(0, SIZE[0], 128):
            pixels = plane()[:, top : top + 128, left : left + 128]
            file = f"{asset_id}-{top}-{left}.tif"
            world.put_cog(file, pixels, crs, transform @ Affine.translation(left, top), VOID)
            window = (left, top, pixels.shape[2], pixels.shape[1])
            tiles.append({"name": file, "window": window, "blob_path": f"silver/{file}"})
    grid = {
        "crs_wkt": CRS.from_string(crs).to_wkt(), "transform": transform[:6], "width": SIZE[0], "height": SIZE[1],
        "tile_pixels": 128, "reduction": 8,
    }  # fmt: skip
    world.put(f"{asset_id}.json", json.dumps({"grid": grid, "tiles": tiles}).encode())
    seed = VersionSeed(blob_path=f"silver/{asset_id}.tif", tiles_path=f"silver/{asset_id}.json", render=GREY)
    world.add_asset(asset_id, {0: seed})
    return asset_id


@pytest.fixture(scope="module", params=[False, True], ids=["file", "tiles"])
def assets(world: ServingWorld, request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the assets of all grids, each as one file, then each as tiles."""
    return {name: put(world, name, tiled=request.param) for name in GRIDS}


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("z", [0, 3, 7])
def test_both_sides_are_drawn_from_the_source(world: ServingWorld, assets: dict[str, str], name: str, z: int) -> None:
    crs, transform = GRIDS[name]
    tiles = {(*tile_of(lon, lat, z),) for lon, lat in places(crs, transform)}
    assert z == 0 or len({x >= 2 ** (z - 1) for x, _ in tiles}) == 1 + BOTH_SIDES[name]
    for x, y in tiles:
        answer = world.get(f"/tiles/{assets[name]}/{z}/{x}/{y}.png")
        assert answer.status == 200, (x, y)
        grey, alpha = np.moveaxis(read_png(answer.body), 2, 0)
        values = expected(crs, transform, z, x, y)
        valid = ~np.isnan(values)
        for side in (np.s_[:, :128], np.s_[:, 128:]) if z == 0 and BOTH_SIDES[name] else (np.s_[:, :],):
            assert valid[side].any()
            assert (alpha[side] > 0)[valid[side]].mean() > 0.98
        assert ((alpha > 0) == valid).mean() > 0.98
        both = valid & (alpha > 0)
        difference = np.abs(grey[both].astype(float) - values[both] / 1000 * 255)
        assert np.percentile(difference, 98) <= (2 if z == 7 else 8)


@pytest.mark.parametrize("name", GRIDS)
def test_the_tilejson_stays_within_the_earth_and_suits_the_pixels(
    world: ServingWorld, assets: dict[str, str], name: str
) -> None:
    crs, transform = GRIDS[name]
    document = world.get(f"/tiles/{assets[name]}/tilejson.json").json()
    west, south, east, north = document["bounds"]
    if BOTH_SIDES[name]:
        assert (west, east) == (-180, 180)
    else:
        assert (west, east) == pytest.approx((-178, -174))
    longitude, latitude, zoom = document["center"]
    assert south < latitude < north
    assert zoom == document["minzoom"]
    x, y = Transformer.from_crs("EPSG:4326", crs, always_xy=True).transform(longitude, latitude)
    left, bottom, right, top = array_bounds(SIZE[1], SIZE[0], transform)
    assert any(left < x + turns * TURNS[crs] < right for turns in (-1, 0, 1))
    assert bottom < y < top
    metres = abs(transform.a) * (111_320 if crs == "EPSG:4326" else 1)
    assert abs(document["maxzoom"] - math.log2(2 * EARTH_HALF / 256 / metres)) <= 1
    assert document["minzoom"] >= document["maxzoom"] - 3


@pytest.mark.parametrize("name", GRIDS)
def test_elsewhere_there_is_nothing_and_outside_the_matrix_404(
    world: ServingWorld, assets: dict[str, str], name: str
) -> None:
    for tile, status in {"3/4/4": 204, "7/64/68": 204, "7/0/0": 204, "7/128/68": 404, "7/-1/68": 404}.items():
        assert world.get(f"/tiles/{assets[name]}/{tile}.png").status == status
    assert world.get(f"/preview/{assets[name]}.png").status == 200


def test_a_mask_is_kept_beyond_180(world: ServingWorld) -> None:
    """Bytes without nodata: what is drawn has no border of zeroes."""
    world.put_cog("bytes.tif", np.full((1, 300, 400), 9, "uint8"), "EPSG:4326", from_origin(178, -10, 0.01, 0.01))
    world.add_asset("f" * 32, {0: VersionSeed(blob_path="silver/bytes.tif")})
    grey, alpha = np.moveaxis(read_png(world.get("/tiles/" + "f" * 32 + "/7/0/68.png").body), 2, 0)
    assert 0.3 < (alpha > 0).mean() < 0.9
    assert set(grey[alpha > 0].tolist()) == {9}
