"""Tiles have the pixels of the COG of the whole, at seams too, whatever has to happen to the raster first."""

import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.enums import ColorInterp, Resampling
from rasterio.transform import Affine, from_origin
from rasterio.windows import Window

from core.errors import DataError, ParameterMissing
from core.handler_models import RasterOptions
from core.stac import tile_items
from core.stac_params import RegisterItemParams
from core.tile_params import ProcessTileParams, TilingSchemeParams
from handlers.context import Outcome
from handlers.raster import tallies
from handlers.raster.facts import RasterType
from handlers.raster.profiles import profile_of
from handlers.raster.statistics import BINS
from handlers.raster.tiling import process_tile, reduced, tiling_scheme
from handlers.stac.register_item import register_item
from tests.support.raster_path import Array, RasterPath, pattern, stack
from tests.support.stac_schemas import stac_errors

HEIGHT, WIDTH = 660, 640
FLIPPED = Affine(10, 0, 500000, 0, 10, 4642776)
ROTATED = Affine(10, 0, 500000, 0, -10, 4649776) * Affine.rotation(20)
WORLD = from_origin(0, 35, 360 / WIDTH, 0.1)
MASK = (pattern(HEIGHT, WIDTH) > 120).astype("uint8") * 255


@dataclass(frozen=True)
class Source:
    """A raster and what is asked for."""

    array: Array
    settings: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    sidecar: str | None = None


def nodata_of(*bands: int) -> str:
    """Return what a sidecar says of bands."""
    return "".join(
        f"<PAMRasterBand band='{band}'><NoDataValue>{nodata}</NoDataValue></PAMRasterBand>"
        for band, nodata in enumerate(bands, 1)
    )


NODATA_OF_BANDS = nodata_of(-1, -9999)


def holes(dtype: str = "int16", marks: tuple[int, int] = (-1, -9999)) -> Array:
    """Return two bands whose holes lie elsewhere, and may be marked by other values."""
    values = stack(2, HEIGHT, WIDTH, dtype, low=10)
    values[0, 100:300, 400:600], values[1, 200:550, 10:500] = marks
    return values


def bytes_with_holes() -> Array:
    """Return three colours that are missing together, each by its own value, and one that is missing alone."""
    values = stack(3, HEIGHT, WIDTH, low=1)
    values[:, 100:300, 400:600] = np.array([0, 255, 0], np.uint8)[:, None, None]
    values[0, 400:500] = 0
    return values


def floats() -> Array:
    """Return heights with holes of nodata, NaN and infinity."""
    values = pattern(HEIGHT, WIDTH, "float32", 0, 3000)
    values[100:300, 400:600], values[5, 5], values[500, 600] = -9999, np.nan, np.inf
    return values


def rgba(dst: Any) -> None:
    """Tag four bands as colours with alpha."""
    dst.colorinterp = (ColorInterp.red, ColorInterp.green, ColorInterp.blue, ColorInterp.alpha)


def fifth_is_alpha(dst: Any) -> None:
    """Tag the last of five bands as alpha."""
    dst.colorinterp = (*[ColorInterp.undefined] * 4, ColorInterp.alpha)


def alpha() -> Array:
    """Return three colours and an alpha band that is a mask."""
    return np.concatenate([stack(3, HEIGHT, WIDTH), MASK[None]])


SOURCES: dict[str, Callable[[], Source]] = {
    "colours": lambda: Source(stack(3, HEIGHT, WIDTH), {"photometric": "RGB"}),
    "colours and a mask, elsewhere": lambda: Source(
        stack(3, HEIGHT, WIDTH), {"photometric": "RGB", "mask": MASK}, {"target_crs": "EPSG:4326"}
    ),
    "alpha": lambda: Source(alpha(), {"before": rgba}),
    "alpha that readers overlook, elsewhere": lambda: Source(
        np.concatenate([stack(4, HEIGHT, WIDTH, "uint16"), MASK[None].astype("uint16") * 257]),
        {"before": fifth_is_alpha},
        {"target_crs": "EPSG:3035"},
    ),
    "heights": lambda: Source(floats(), {"nodata": -9999}),
    "heights, elsewhere": lambda: Source(floats(), {"nodata": -9999}, {"target_crs": "EPSG:3857"}),
    "classes, elsewhere": lambda: Source(pattern(HEIGHT, WIDTH, high=9), {}, {"target_crs": "EPSG:4326"}),
    "upside down": lambda: Source(pattern(HEIGHT, WIDTH, "int16"), {"transform": FLIPPED}),
    "upside down, elsewhere": lambda: Source(
        pattern(HEIGHT, WIDTH, "uint16"), {"transform": FLIPPED}, {"target_crs": "EPSG:3035"}
    ),
    "bands side by side in each pixel, upside down": lambda: Source(
        stack(5, HEIGHT, WIDTH, "uint16", high=9000), {"transform": FLIPPED, "interleave": "pixel", "compress": "lzw"}
    ),
    "rotated": lambda: Source(pattern(HEIGHT, WIDTH, "float32", high=900), {"transform": ROTATED, "nodata": -1}),
    "from 0 to 360 degrees": lambda: Source(pattern(HEIGHT, WIDTH, "int32"), {"transform": WORLD, "crs": "EPSG:4326"}),
    "holes by band": lambda: Source(holes(), sidecar=NODATA_OF_BANDS),
    "holes by band, elsewhere": lambda: Source(holes(), {}, {"target_crs": "EPSG:3857"}, NODATA_OF_BANDS),
    "holes by band, lossy": lambda: Source(
        bytes_with_holes(), {"photometric": "RGB"}, {"compression": "jpeg"}, nodata_of(0, 255, 0)
    ),
    "whole numbers of 64 bits": lambda: Source(holes("int64", (-9999, -9999)), {"nodata": -9999}),
    "whole numbers of 64 bits without a sign, upside down": lambda: Source(
        holes("uint64", (7, 7)), {"nodata": 7, "transform": FLIPPED}
    ),
    "holes by band in whole numbers of 64 bits": lambda: Source(holes("int64"), sidecar=NODATA_OF_BANDS),
    "whole numbers of 64 bits, elsewhere": lambda: Source(
        holes("int64", (-9999, -9999)), {"nodata": -9999}, {"target_crs": "EPSG:3857"}
    ),
    "lossy": lambda: Source(stack(3, HEIGHT, WIDTH), {"photometric": "RGB", "nodata": 7}, {"compression": "jpeg"}),
}


@dataclass
class Tiled:
    """Tiles of a source by their windows, and what was said about them."""

    grid: dict[str, Any]
    tiles: list[dict[str, Any]] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    tallies: list[Path] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    """As the worker hands them to raster.stac_register_item: local paths."""


def tiled(raster: RasterPath, source: Path, facts: dict[str, Any], **options: Any) -> Tiled:
    """Run raster.generate_tiling_scheme and raster.process_tile for each tile of 512 pixels."""
    common = {"source": str(source), "raster": facts, "options": RasterOptions(**options)}
    scheme = tiling_scheme(raster.context(), TilingSchemeParams(**common, tile_pixels=512)).output
    assert isinstance(scheme, dict)
    made = Tiled(scheme["grid"])
    for tile in scheme["tile_list"]:
        context = raster.context()
        params = ProcessTileParams(**common, grid=scheme["grid"], tile=tile, output_prefix="silver/a/0/r1")
        outcome = process_tile(context, params)
        assert isinstance(outcome.output, dict)
        made.tiles.append(outcome.output)
        made.paths.append(context.out_dir / outcome.files["blob_path"])
        made.tallies.append(context.out_dir / outcome.files["tallies_path"])
        files = {name: str(context.out_dir / file) for name, file in outcome.files.items()}
        made.results.append(outcome.output | files)
        assert sorted(p.name for p in context.scratch.iterdir()) == ["out"], "temporary files are removed"
    return made


@pytest.mark.parametrize("name", SOURCES)
def test_tiles_have_the_pixels_of_the_whole(raster: RasterPath, name: str) -> None:
    wanted = SOURCES[name]()
    source = raster.write(wanted.array, **wanted.settings)
    if wanted.sidecar:
        source.with_name(f"{source.name}.aux.xml").write_text(f"<PAMDataset>{wanted.sidecar}</PAMDataset>")
    whole = raster.make(source, **wanted.options)
    made = tiled(raster, source, whole.facts, **wanted.options)
    assert len(made.tiles) > 3
    with rasterio.open(whole.path) as cog:
        assert [made.grid["height"], made.grid["width"]] == [cog.height, cog.width]
        for tile, path in zip(made.tiles, made.paths, strict=True):
            window = Window(*tile["tile"]["window"])
            with rasterio.open(path) as part:
                np.testing.assert_array_equal(part.read(), cog.read(window=window))
                np.testing.assert_array_equal(part.dataset_mask(), cog.dataset_mask(window=window))
                assert part.transform.almost_equals(cog.window_transform(window), 1e-9)
                assert (part.crs, part.nodata, part.dtypes) == (cog.crs, cog.nodata, cog.dtypes)
                assert (part.colorinterp, part.tags()) == (cog.colorinterp, cog.tags())
    found = tallies.total(made.tallies, made.grid["height"] * made.grid["width"])
    for band, expected in zip(found, (b["statistics"] for b in whole.output["raster"]["bands"]), strict=True):
        bins = 2 * (expected["maximum"] - expected["minimum"]) / BINS
        for key, value in expected.items():
            exact = key not in ("p2", "p98") or found_exactly(wanted.array)
            assert getattr(band, key) == pytest.approx(value, rel=1e-9, abs=0 if exact else bins), key


def found_exactly(array: Array) -> bool:
    """Return whether values are counted one by one."""
    return array.dtype.kind in "iu" and array.dtype.itemsize <= 2


def registered(
    raster: RasterPath, made: Tiled, facts: dict[str, Any], changes: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Outcome, Path]:
    """Run raster.stac_register_item on tiles; return what it said and where its files are."""
    context = raster.context()
    values: dict[str, Any] = {
        "tiles": made.results, "grid": made.grid, "raster": facts, "output_prefix": "silver/a/0/r1",
        "collection_id": "ddh-raster", "item_id": "a-v0", "title": "A raster", "version_label": "v1",
        "href": "http://127.0.0.1:8080/download/a?version=0", "options": RasterOptions(datetime="2024-05-01"),
    }  # fmt: skip
    return register_item(context, RegisterItemParams(**{**values, **changes})), context.out_dir


@pytest.mark.parametrize("name", ["colours", "heights", "alpha"])
def test_tiles_become_one_overview_one_item_and_a_list(raster: RasterPath, tmp_path: Path, name: str) -> None:
    wanted = SOURCES[name]()
    source = raster.write(wanted.array, **wanted.settings)
    whole = raster.make(source, **wanted.options)
    made = tiled(raster, source, whole.facts, **wanted.options)
    outcome, folder = registered(raster, made, whole.facts)
    said = outcome.output
    assert isinstance(said, dict)
    expected = raster.register(whole, datetime="2024-05-01").output
    assert isinstance(expected, dict)
    assert said["render"] == approx(whole.output["render"], bins=2)
    assert said["stac_item"]["bbox"] == expected["stac_item"]["bbox"]
    with rasterio.open(folder / outcome.files["blob_path"]) as overview, rasterio.open(whole.path) as cog:
        assert overview.shape == (-(-cog.height // 2), -(-cog.width // 2))
        with rasterio.open(whole.path, overview_level=0) as reduced:
            inner = Window(0, 0, 255, 255)  # kernels of overviews end at the edge of a tile
            np.testing.assert_array_equal(overview.read(window=inner), reduced.read(window=inner))
        assert (overview.colorinterp, overview.nodata, overview.tags()) == (cog.colorinterp, cog.nodata, cog.tags())
    listed = json.loads((folder / outcome.files["tiles_path"]).read_text())["tiles"]
    items = list(tile_items(said["stac_item"], listed))
    assert [item["id"] for item in items[:2]] == ["a-v0-tile-r0000c0000", "a-v0-tile-r0000c0001"]
    assert items[0]["assets"]["data"]["href"].endswith("/download/a?version=0&tile=r0000c0000")
    for number, document in enumerate((said["stac_item"], items[0], items[-1])):
        (tmp_path / str(number)).mkdir()
        assert stac_errors(document, tmp_path / str(number)) == []


def approx(render: dict[str, Any], bins: int) -> dict[str, Any]:
    """Return a rendering whose ranges may be off by some of the bins that both sides count in."""
    ranges = render["rescale"]
    if ranges is None:
        return render
    return render | {"rescale": [pytest.approx(pair, abs=bins * 3 * (pair[1] - pair[0]) / BINS) for pair in ranges]}


@pytest.mark.parametrize("reduction", [2, 4, 8, 16])
def test_a_share_of_the_overview_is_the_next_of_the_overviews(raster: RasterPath, reduction: int) -> None:
    array = pattern(1100, 1024, "int16", -900, 900)
    array[:500, 100:700] = -999
    made = raster.make(raster.write(array, nodata=-999))
    copy, plain = raster.folder / "copy.tif", raster.write(array, nodata=-999)
    with rasterio.open(plain, "r+") as dst:
        dst.build_overviews([2, 4, 8, 16], Resampling.average)
    with (
        reduced(made.path, copy, reduction, profile_of(RasterType.CONTINUOUS, None)) as found,
        rasterio.open(plain, overview_level=int(np.log2(reduction)) - 1) as expected,
    ):
        np.testing.assert_array_equal(found.read(), expected.read())
        assert found.nodata == -999
    assert not copy.exists()


def test_an_archive_is_unpacked_once_for_all_its_tiles(raster: RasterPath) -> None:
    source = raster.write(pattern(HEIGHT, WIDTH, "int16"))
    packed = source.with_name("packed.zip")
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(source, "in/dem.tif")
    facts = raster.make(packed).facts
    assert facts["member"] == "in/dem.tif"
    context, settings = raster.context(), {"tile_pixels": 512, "output_prefix": "silver/a/0/r1"}
    outcome = tiling_scheme(context, TilingSchemeParams(source=str(packed), raster=facts, **settings))
    assert isinstance(outcome.output, dict)
    unpacked = context.out_dir / outcome.files["unpacked"]
    assert unpacked.read_bytes() == source.read_bytes()
    assert [path.name for path in context.scratch.iterdir()] == ["out"]
    again = tiled(raster, packed, facts)
    made = tiled(raster, unpacked, outcome.output["raster"])
    assert [tile["sha256"] for tile in made.tiles] == [tile["sha256"] for tile in again.tiles]
    plain = TilingSchemeParams(source=str(source), raster=raster.make(source).facts, **settings)
    assert tiling_scheme(raster.context(), plain).files == {}, "nothing had to be unpacked"


def test_a_grid_without_pixels_is_refused(raster: RasterPath) -> None:
    place = from_origin(590000, 7300000, 1000, 1000)
    source = raster.write(pattern(90, 90), transform=place, crs="EPSG:32660")
    found = raster.validate(source).output
    assert isinstance(found, dict)
    wanted = RasterOptions(target_crs="EPSG:4326")
    with pytest.raises(DataError) as refused:
        tiling_scheme(raster.context(), TilingSchemeParams(source=str(source), raster=found["raster"], options=wanted))
    assert (refused.value.detail.code, refused.value.detail.field) == ("CRS_EXTENT_IMPOSSIBLE", "crs")


def test_tiles_that_leave_a_hole_are_refused(raster: RasterPath) -> None:
    source = raster.write(pattern(HEIGHT, WIDTH))
    facts = raster.make(source).facts
    made = tiled(raster, source, facts)
    del made.results[1]
    with pytest.raises(DataError, match="1 tiles are missing: r0000c0001") as refused:
        registered(raster, made, facts)
    assert refused.value.detail.code == "RASTER_UNREADABLE"
    for name, missing in (("grid", "grid"), ("raster", "raster"), ("output_prefix", "output_prefix"), ("tiles", "cog")):
        with pytest.raises(ParameterMissing) as error:
            registered(raster, made, facts, changes={name: None})
        assert error.value.detail.field == missing
