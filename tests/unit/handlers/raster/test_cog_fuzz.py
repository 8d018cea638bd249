"""Differential fuzz: what raster.create_cog writes beside what plain rasterio makes of the same arrays.

CI runs 150 seeded examples. `FUZZ_EXAMPLES=200`, once for each `--hypothesis-seed` of 1 to 10, is the run by hand
whose figures stand in docs/raster-rules.md.
"""

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import rasterio
from hypothesis import HealthCheck, assume, event, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from rasterio.enums import Resampling
from rasterio.transform import Affine
from rasterio.warp import reproject

from handlers.raster.findings import Rejected
from tests.support.raster_path import Made, RasterPath

EXAMPLES: Final = int(os.environ.get("FUZZ_EXAMPLES", "150"))
SEEDED: Final = settings(
    max_examples=EXAMPLES // 2,
    derandomize="FUZZ_EXAMPLES" not in os.environ,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
Array = NDArray[Any]
ALBERS: Final = "+proj=aea +lat_1=44.25 +lat_2=60.75 +lat_0=31.5 +lon_0=9.5 +x_0=1000 +ellps=intl +units=m +no_defs"
PLACES: Final = {
    "EPSG:32633": (500_000.0, 4_649_776.0, 10.0),
    "EPSG:3035": (4_321_000.0, 3_210_000.0, 25.0),
    "EPSG:4326": (12.0, 45.0, 0.0007),
    "EPSG:3857": (1_300_000.0, 5_700_000.0, 38.2),
    "EPSG:2263": (980_000.0, 200_000.0, 3.0),
    ALBERS: (120_000.0, 2_100_000.0, 500.0),
}
"""CRS -> west, north and size of a pixel."""
INTEGERS: Final = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "uint64")
FLOATS: Final = ("float32", "float64")
WARPS: Final = {"categorical": Resampling.nearest, "rgb": Resampling.cubic, "rgba": Resampling.cubic}
UNUSED: Final = 99
"""A nodata value that no pixel has."""
REACH: Final = 4
"""Pixels that a resampled one may depend on, in each direction."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One raster as it is written."""

    dtype: str
    bands: int
    height: int
    width: int
    crs: str
    turn: str
    """north_up, south_up, westward or rotated."""
    nodata: str
    """none, used, unused or nan."""
    mask: bool
    nonfinite: bool
    empty: bool
    source: dict[str, Any]
    compression: str | None
    target: str | None
    seed: int

    @property
    def transform(self) -> Affine:
        """Where the raster lies."""
        west, north, pixel = PLACES[self.crs]
        match self.turn:
            case "south_up":
                return Affine(pixel, 0, west, 0, pixel, north - pixel * self.height)
            case "westward":
                return Affine(-pixel, 0, west + pixel * self.width, 0, -pixel, north)
            case "rotated":
                turned = Affine.translation(west, north) @ Affine.rotation(self.seed % 80 + 5)
                return turned @ Affine.scale(pixel, -pixel)
        return Affine(pixel, 0, west, 0, -pixel, north)

    @property
    def north_up(self) -> Affine:
        """The same place once it is flipped."""
        west, north, pixel = PLACES[self.crs]
        return Affine(pixel, 0, west, 0, -pixel, north)

    @property
    def nodata_value(self) -> float | int | None:
        """The nodata value that is written with the file."""
        if self.nodata == "nan":
            return math.nan
        return None if self.nodata == "none" else (7 if self.nodata == "used" else UNUSED)

    @property
    def is_float(self) -> bool:
        """Whether pixels are floating-point numbers."""
        return self.dtype in FLOATS


SOURCES = st.one_of(
    st.fixed_dictionaries({"compress": st.sampled_from(["deflate", "lzw", "zstd"])}),
    st.just({"tiled": True, "blockxsize": 16, "blockysize": 32}),
    st.just({"interleave": "band"}),
    st.just({"bigtiff": "YES", "endianness": "big"}),
)


def samples(turns: list[str], targets: list[str | None]) -> st.SearchStrategy[Sample]:
    """Return samples that are turned and moved as the lists say."""
    sizes = st.one_of(st.integers(1, 80), st.integers(1, 80), st.integers(500, 530))
    drawn = st.builds(
        Sample,
        dtype=st.sampled_from(INTEGERS + FLOATS * 2),
        bands=st.integers(1, 5),
        height=sizes,
        width=st.integers(1, 90),
        crs=st.sampled_from(list(PLACES)),
        turn=st.sampled_from(turns),
        nodata=st.sampled_from(["none", "used", "unused", "nan"]),
        mask=st.sampled_from([False, False, True]),
        nonfinite=st.booleans(),
        empty=st.sampled_from([False] * 9 + [True]),
        source=SOURCES,
        compression=st.sampled_from([None, None, "deflate", "zstd", "lzw", "none"]),
        target=st.sampled_from(targets),
        seed=st.integers(0, 9999),
    )
    return drawn.map(_possible)


def _possible(sample: Sample) -> Sample:
    """Return the sample without what its type cannot have."""
    if sample.is_float:
        return sample
    nodata = "unused" if sample.nodata == "nan" else sample.nodata
    return replace(sample, nodata=nodata, nonfinite=False)


def made_of(sample: Sample, *, smooth: bool) -> tuple[Array, Array]:
    """Return pixels (bands, height, width) and where they are valid, in the same shape."""
    rows, columns = np.mgrid[0 : sample.height, 0 : sample.width].astype(np.float64)
    top = 100.0 if sample.dtype == "int8" else (200.0 if sample.dtype == "uint8" else 20_000.0)
    steep = top / (sample.height + sample.width)
    if smooth:
        layers = [10 + (rows * 0.7 + columns) * steep * 0.8 + band for band in range(sample.bands)]
    else:
        layers = [
            (rows * 131 + columns * 17 + sample.seed + band * 29) % (top - 10) + 10 for band in range(sample.bands)
        ]
    pixels = np.stack(layers).astype(sample.dtype)
    pixels[pixels == UNUSED] += 1
    holes = ((rows // 9 + columns // 7 + sample.seed) % 5 == 0) | sample.empty
    valid = np.ones(pixels.shape, bool)
    if sample.nonfinite:
        bad = np.broadcast_to((rows // 5 + columns // 3) % 7 == 3, pixels.shape)
        pixels[bad] = np.inf if sample.seed % 2 else np.nan
        valid &= ~bad
    if sample.nodata in ("used", "nan"):
        pixels[:, holes] = sample.nodata_value
        valid &= ~holes
    return pixels, (np.broadcast_to(~holes, pixels.shape) & np.isfinite(pixels) if sample.mask else valid)


def made(folder: Path, sample: Sample, pixels: Array, valid: Array) -> tuple[RasterPath, Made | Rejected]:
    """Write the sample and return what the handlers make of it."""
    folder.mkdir(parents=True)
    raster = RasterPath(folder)
    source = raster.write(
        pixels,
        transform=sample.transform,
        crs=sample.crs,
        nodata=sample.nodata_value,
        mask=valid[0].astype(np.uint8) * 255 if sample.mask else None,
        photometric="MINISBLACK",
        **sample.source,
    )
    with rasterio.open(source) as written:  # GDAL fills blocks of nothing but nodata without swapping their bytes
        assume(np.array_equal(written.read(), pixels, equal_nan=sample.is_float))
    options = {"compression": sample.compression, "target_crs": sample.target}
    try:
        return raster, raster.make(source, **{name: value for name, value in options.items() if value})
    except Rejected as refusal:
        return raster, refusal


def expected_exactly(sample: Sample, pixels: Array, valid: Array) -> tuple[Array, Array, float | int | None]:
    """Return pixels, validity and nodata of a COG that needs no resampling."""
    nodata = None if sample.mask else sample.nodata_value
    finite = np.isfinite(pixels) if sample.is_float else np.ones(pixels.shape, bool)
    if not sample.mask and not finite.all():
        nodata = math.nan if nodata is None else nodata
        pixels = np.where(finite, pixels, np.asarray(nodata, pixels.dtype))
    if sample.turn == "south_up":
        pixels, valid = pixels[:, ::-1], valid[:, ::-1]
    if sample.turn == "westward":
        pixels, valid = pixels[..., ::-1], valid[..., ::-1]
    return pixels, valid.any(axis=0), nodata


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that gives a new folder each time."""
    base, count = tmp_path_factory.mktemp("fuzz"), iter(range(1_000_000))
    return lambda: base / str(next(count))


@SEEDED
@given(sample=samples(["north_up", "north_up", "south_up", "westward"], [None]))
def test_pixels_that_are_not_resampled_are_those_of_the_array(home: Any, sample: Sample) -> None:
    pixels, valid = made_of(sample, smooth=False)
    folder = home()
    raster, result = made(folder, sample, pixels, valid)
    if not valid.any():
        assert isinstance(result, Rejected)
        assert result.detail.code == "RASTER_EMPTY"
        event("refused as empty")
        return
    assert isinstance(result, Made), result
    wanted, shown, nodata = expected_exactly(sample, pixels, valid)
    with rasterio.open(result.path) as cog:
        np.testing.assert_array_equal(cog.read(), wanted)
        np.testing.assert_array_equal(cog.dataset_mask() > 0, shown)
        assert cog.dtypes == (sample.dtype,) * sample.bands
        np.testing.assert_allclose(cog.transform[:6], sample.north_up[:6], rtol=1e-12)
        assert cog.crs == rasterio.crs.CRS.from_user_input(sample.crs)
        assert str(cog.nodata) == str(nodata if nodata is None else float(nodata))
    changed = not np.array_equal(wanted, pixels, equal_nan=sample.is_float) or sample.turn != "north_up"
    warned = {finding["level"] for finding in result.output["raster"]["findings"]} >= {"warning"}
    assert warned or not changed, "a silent difference"
    event(f"exact, {sample.dtype}")
    _forget(raster)


SMEARED: Final = Sample(
    dtype="float32", bands=1, height=526, width=46, crs="EPSG:2263", turn="rotated", nodata="none", mask=True,
    nonfinite=False, empty=False, source={"interleave": "band"}, compression=None, target="EPSG:4326", seed=8623,
)  # fmt: skip
"""Long, rotated and masked: left to itself, GDAL widens its kernels over several pixels, and holes reach that far."""


BESIDE_NODATA: Final = Sample(
    dtype="uint8", bands=1, height=27, width=49, crs="EPSG:32633", turn="rotated", nodata="unused", mask=False,
    nonfinite=False, empty=False, source={"interleave": "band"}, compression=None, target="EPSG:4326", seed=1,
)  # fmt: skip
"""A valid pixel comes out as the nodata value 99."""


@SEEDED
@example(sample=BESIDE_NODATA)
@example(sample=SMEARED)
@example(sample=replace(SMEARED, height=46, width=526, target="EPSG:3857"))
@example(sample=replace(SMEARED, dtype="int16", crs="EPSG:32633", target="ESRI:54030", seed=8642))
@given(sample=samples(["rotated", "north_up", "south_up"], ["EPSG:3857", "EPSG:4326", "ESRI:54030"]))
def test_resampled_pixels_are_those_of_a_plain_warp(home: Any, sample: Sample) -> None:
    pixels, valid = made_of(sample, smooth=True)
    raster, result = made(home(), sample, pixels, valid)
    if not valid.any():
        assert isinstance(result, Rejected)
        assert result.detail.code == "RASTER_EMPTY"
        return
    assert isinstance(result, Made), result
    method = WARPS.get(result.facts["raster_type"], Resampling.bilinear)
    with rasterio.open(result.path) as cog:
        found, shown = cog.read(), cog.read_masks() > 0
        assert cog.crs == rasterio.crs.CRS.from_user_input(sample.target)
        place = {"dst_transform": cog.transform, "dst_crs": cog.crs}
    assert result.facts["raster_type"] in ("categorical", "continuous", "multispectral")
    compared = 0
    for band in range(sample.bands):
        inner, outer = _warped_validity(sample, valid[band], found.shape[1:], place)
        wanted = _warped(sample, pixels[band], valid[band], found.shape[1:], place, method)
        difference = np.abs(found[band].astype(np.float64) - wanted)[inner]
        allowed = _allowed(sample, method) + _moved(sample, found[band])[inner]
        assert (difference <= allowed).all(), f"band {band}: {(difference - allowed).max()} too much"
        assert not shown[band][~outer].any(), "a pixel beyond the data is valid"
        compared += int(inner.sum())
    event(f"resampled by {method.name}, {'compared' if compared else 'too small to compare'}")
    _forget(raster)


def _allowed(sample: Sample, method: Resampling) -> float:
    """Return the largest difference: an eighth of a pixel for each warp and one rounding, a pixel for nearest."""
    top = 100.0 if sample.dtype == "int8" else (200.0 if sample.dtype == "uint8" else 20_000.0)
    slope = top / (sample.height + sample.width)
    return (2.0 if method is Resampling.nearest else 0.3) * slope + (0.01 if sample.is_float else 1.01)


def _moved(sample: Sample, found: Array) -> Array:
    """Return 1 where GDAL may have moved an integer by one because it came out as the nodata value, though valid."""
    if sample.nodata_value is None or sample.is_float or sample.mask:
        return np.zeros(found.shape)
    return (np.abs(found.astype(np.float64) - sample.nodata_value) == 1).astype(np.float64)


def _warped(
    sample: Sample, band: Array, valid: Array, shape: tuple[int, int], place: dict[str, Any], method: Resampling
) -> Array:
    """Return one band as doubles, resampled by plain rasterio; what is not valid is filled first.

    Kernels are kept narrow: GDAL would choose their width by the shape of what it warps.
    """
    filled = np.where(valid, band, 0).astype(np.float64)
    target = np.zeros(shape)
    reproject(
        filled, target, src_transform=sample.transform, src_crs=sample.crs, resampling=method,
        XSCALE=1, YSCALE=1, **place,
    )  # fmt: skip
    return target


def _warped_validity(
    sample: Sample, valid: Array, shape: tuple[int, int], place: dict[str, Any]
) -> tuple[Array, Array]:
    """Return which pixels depend on valid ones alone, and which may depend on any."""
    around = np.pad(valid, REACH)
    near = np.lib.stride_tricks.sliding_window_view(around, (2 * REACH + 1, 2 * REACH + 1))
    whole, some = near.all(axis=(2, 3)), near.any(axis=(2, 3))
    wide = np.zeros((valid.shape[0] + 2 * REACH, valid.shape[1] + 2 * REACH), bool)
    wide_some = np.lib.stride_tricks.sliding_window_view(np.pad(around, REACH), (2 * REACH + 1,) * 2).any(axis=(2, 3))
    wide[REACH:-REACH, REACH:-REACH] = whole
    assert some.shape == valid.shape
    shifted = sample.transform @ Affine.translation(-REACH, -REACH)
    results = []
    for mask in (wide, wide_some):
        target = np.zeros(shape, np.uint8)
        reproject(
            mask.astype(np.uint8), target, src_transform=shifted, src_crs=sample.crs,
            resampling=Resampling.nearest, **place,
        )  # fmt: skip
        results.append(target > 0)
    return results[0], results[1]


def _forget(raster: RasterPath) -> None:
    """Remove what an example wrote: thousands of them would fill the disk."""
    for path in sorted(raster.folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
