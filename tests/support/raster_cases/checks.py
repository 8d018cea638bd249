"""One function for each thing that a case may ask for; pixels are read with plain rasterio."""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import rasterio
from pyproj import CRS
from rasterio.enums import ColorInterp

from tests.support.raster_cases.seen import LOSS, LOSSY, RESAMPLED, Seen


def same_pixels(seen: Seen, _: Any) -> None:
    with seen.open() as cog:
        np.testing.assert_array_equal(cog.read(), seen.source_pixels())


def rerun(seen: Seen, _: Any) -> None:
    """Nothing to see here: whoever runs the cases runs this one again with what it says."""


def _crs(seen: Seen) -> CRS:
    return CRS.from_wkt(seen.item["properties"]["proj:wkt2"])


def wkt(seen: Seen, _: Any) -> None:
    assert seen.item["properties"]["proj:wkt2"]
    assert seen.item["properties"]["proj:projjson"]


def names(seen: Seen, names: list[str]) -> None:
    assert seen.error is not None
    assert all(name in seen.error["message"] for name in names), seen.error["message"]


def says(seen: Seen, text: str) -> None:
    """Every content word of the sentence is in message or remediation, in any form."""
    assert seen.error is not None
    said = f"{seen.error['message']} {seen.error.get('remediation') or ''}".lower()
    few = {"or", "first", "choose"}
    assert all(word.strip(",")[:4] in said for word in text.lower().split() if word.strip(",") not in few), said


def transform(seen: Seen, value: list[float]) -> None:
    with seen.open() as cog:
        np.testing.assert_allclose(cog.transform[:6], value)


def bounds(seen: Seen, value: list[float]) -> None:
    with seen.open() as cog:
        np.testing.assert_allclose(cog.bounds, value)


def bbox(seen: Seen, value: list[float]) -> None:
    pixel_of_new_grid = 1.5e-3 if seen.warnings & RESAMPLED else 2e-4
    np.testing.assert_allclose(seen.item["bbox"], value, atol=pixel_of_new_grid)


def not_empty(seen: Seen, _: Any) -> None:
    with seen.open() as cog:
        assert cog.read().any()


def first_row_north(seen: Seen, _: Any) -> None:
    with seen.open() as cog:
        np.testing.assert_array_equal(cog.read(), seen.source_pixels()[:, ::-1])


def nodata(seen: Seen, value: Any) -> None:
    with seen.open() as cog:
        assert str(cog.nodata) == value if isinstance(value, str) else cog.nodata == value
    assert seen.band["nodata"] == value


def no_nodata(seen: Seen, _: Any) -> None:
    with seen.open() as cog:
        assert cog.nodata is None
        assert (cog.dataset_mask() == 255).all()
    assert "nodata" not in seen.band


def fill(seen: Seen, _: Any) -> None:
    with seen.open() as cog:
        np.testing.assert_array_equal(cog.read(1) == np.dtype(cog.dtypes[0]).type(cog.nodata), cog.dataset_mask() == 0)


def mask_of_source(seen: Seen, _: Any) -> None:
    """Validity is that of the input: any band differs from nodata, or its mask or alpha says so."""
    pixels = seen.source_pixels()
    with rasterio.open(seen.case.source) as src:
        nodata = src.nodata
        wanted = src.dataset_mask() > 0 if nodata is None else (pixels != nodata).any(axis=0)
    with seen.open() as cog:
        np.testing.assert_array_equal(cog.dataset_mask() > 0, wanted)


def alpha(seen: Seen, _: Any) -> None:
    with seen.open() as cog:
        assert cog.colorinterp[-1] is ColorInterp.alpha
        np.testing.assert_array_equal(cog.read(cog.count), seen.source_pixels()[-1])


def alpha_is_data(seen: Seen, _: Any) -> None:
    with seen.open() as cog:
        assert ColorInterp.alpha not in cog.colorinterp
        assert (cog.dataset_mask() == 255).all()
        np.testing.assert_array_equal(cog.read(4), seen.source_pixels()[3])


def palette(seen: Seen, _: Any) -> None:
    with seen.open() as cog, rasterio.open(seen.case.source) as src:
        assert cog.colormap(1) == src.colormap(1)


def colour(seen: Seen, name: str) -> None:
    with seen.open() as cog:
        assert cog.colorinterp[0].name == name


def overview_values(seen: Seen, allowed: Any = None) -> None:
    with seen.open() as cog:
        base = set(np.unique(cog.read())) if isinstance(allowed, bool | None) else set(allowed)
        levels = len(cog.overviews(1))
    for level in range(levels):
        with seen.open(overview_level=level) as coarse:
            assert set(np.unique(coarse.read())) <= base


def dtype_in(seen: Seen, names: list[str]) -> None:
    with seen.open() as cog:
        assert cog.dtypes[0] in names


def scale(seen: Seen, value: float) -> None:
    with seen.open() as cog:
        assert set(cog.scales) == {value}
    assert seen.band["raster:scale"] == value


def offset(seen: Seen, value: float) -> None:
    with seen.open() as cog:
        assert set(cog.offsets) == {value}
    assert seen.band["raster:offset"] == value


def statistics(seen: Seen, _: Any) -> None:
    """Extremes of the item are those of the finite valid pixels; none came with the file."""
    with seen.open() as cog:
        pixels = cog.read(1, masked=True)
        valid = pixels.compressed()
        valid = valid[np.isfinite(valid)]
        assert not any(key.startswith("STATISTICS_") for key in cog.tags(1))
    found = seen.item["assets"]["data"]["bands"][0]["statistics"]
    assert (found["minimum"], found["maximum"]) == (valid.min().item(), valid.max().item())


def descriptions(seen: Seen, _: Any) -> None:
    with seen.open() as cog, rasterio.open(seen.case.source) as src:
        assert cog.descriptions == src.descriptions
    names = [band["name"] for band in seen.item["assets"]["data"]["bands"]]
    assert names == [name or f"b{place}" for place, name in enumerate(src.descriptions, 1)]


def error_at_most(seen: Seen, limit: int) -> None:
    with seen.open() as cog:
        difference = np.abs(cog.read().astype(int) - seen.source_pixels().astype(int))
    assert difference.max() <= limit


def crosses(seen: Seen, _: Any) -> None:
    west, _south, east, _north = seen.item["bbox"]
    assert west > east
    assert seen.item["geometry"]["type"] == "MultiPolygon"


def pole(seen: Seen, _: Any) -> None:
    assert -90.0 in seen.item["bbox"] or 90.0 in seen.item["bbox"]


def all_longitudes(seen: Seen, value: list[float]) -> None:
    assert [seen.item["bbox"][0], seen.item["bbox"][2]] == value


def vertical(seen: Seen, code: str) -> None:
    assert any(":".join(part.to_authority() or ()) == code for part in _crs(seen).sub_crs_list)
    with seen.open() as cog:
        assert "VERT" in cog.crs.to_wkt().upper()


def samples(seen: Seen, samples: list[list[float]]) -> None:
    with seen.open() as cog:
        for lon, lat, value in samples:
            assert next(cog.sample([(lon, lat)]))[0] == value


def title(seen: Seen, _: Any) -> None:
    assert seen.item["properties"]["title"] == seen.case.source.name


def safe_id(seen: Seen, _: Any) -> None:
    assert seen.item["id"].isascii()
    assert " " not in seen.item["id"]
    assert seen.item["assets"]["data"]["href"].isascii()


def overview_count(seen: Seen, value: Any) -> None:
    with seen.open() as cog:
        assert bool(cog.overviews(1)) if value is True else len(cog.overviews(1)) == value


def choices(seen: Seen, count: int) -> None:
    assert seen.error is not None
    assert all(f"{number}: " in seen.error["message"] for number in range(1, count + 1))


def absent(seen: Seen, secret: str) -> None:
    assert seen.error is not None
    assert secret not in json.dumps(dict(seen.error))


def code(seen: Seen, code: str | None) -> None:
    assert seen.item["properties"]["proj:code"] == code


def member(seen: Seen, name: str) -> None:
    assert any(f["code"] == "MEMBER_USED" and f["to"] == name for f in seen.findings)


def seconds(seen: Seen, limit: float) -> None:
    assert seen.seconds < limit


def elsewhere(seen: Seen, _: Any) -> None:
    """Holds for every case, or has a test of its own: limits of time and memory, tiles, warping."""


def count(seen: Seen, value: int) -> None:
    with seen.open() as cog:
        assert cog.count == value
    assert len(seen.item["assets"]["data"]["bands"]) == value


def side(name: str) -> Callable[[Seen, int], None]:
    def check(seen: Seen, value: int) -> None:
        if not seen.warnings & RESAMPLED:
            with seen.open() as cog:
                assert getattr(cog, name) == value

    return check


def dtype(seen: Seen, value: str) -> None:
    if "output_dtype_one_of" not in seen.case.checks:
        with seen.open() as cog:
            assert cog.dtypes[0] == value
        assert seen.band["data_type"] == value


def valid_pixels(seen: Seen, value: int) -> None:
    if not seen.warnings & RESAMPLED:
        with seen.open() as cog:
            assert int((cog.dataset_mask() > 0).sum()) == value


def statistic(name: str, tolerance: float) -> Callable[[Seen, float], None]:
    def check(seen: Seen, value: float) -> None:
        changed = {"max_abs_error"} & seen.case.checks.keys() or seen.warnings & RESAMPLED
        lossy = changed or seen.case.submit.get("compression") in LOSSY
        band = seen.band if "band" in seen.case.truth else None
        bands = seen.item["assets"]["data"]["bands"] if band is None else [band]
        found = [band["statistics"][name] for band in bands]
        close = [math.isclose(each, value, rel_tol=tolerance, abs_tol=LOSS if lossy else tolerance) for each in found]
        assert any(close), (name, found, value)

    return check


def classes(seen: Seen, value: list[int]) -> None:
    assert sorted(map(int, seen.item["properties"]["renders"]["default"]["colormap"])) == value


def row(place: int) -> Callable[[Seen, float], None]:
    def check(seen: Seen, value: float) -> None:
        with seen.open() as cog:
            assert set(np.unique(cog.read(1)[place])) == {value}

    return check


def between(seen: Seen, value: list[float]) -> None:
    assert value[0] <= seen.item["bbox"][3] <= value[1]


def south(seen: Seen, value: float) -> None:
    assert seen.item["bbox"][1] == value
