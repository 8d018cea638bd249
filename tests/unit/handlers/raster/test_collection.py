"""Several files become one version when they are alike; what is not is named, with the field and the file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.transform import from_origin

from core.errors import DataError
from core.stac import tile_items
from core.tile_params import CheckCollectionParams, ProcessFileParams
from handlers.context import Outcome
from handlers.raster.collection import check_collection, process_file
from handlers.raster.findings import Rejected
from tests.support.raster_path import RasterPath, pattern, stack
from tests.unit.handlers.raster.test_tiling import Tiled, registered

SIZE, STEP = 90, 10.0
WEST, NORTH = 500_000.0, 4_650_000.0

Files = list[tuple[str, Path]]


def part(raster: RasterPath, name: str, column: float, row: float, **changes: Any) -> tuple[str, Path]:
    """Write one file of the collection, `column` and `row` in sizes of a file from the north west."""
    step = changes.pop("step", STEP)
    place = from_origin(WEST + column * SIZE * STEP, NORTH - row * SIZE * STEP, step, step)
    array = changes.pop("array", None)
    if array is None:
        array = pattern(SIZE, SIZE, "float32", 0, 3000, seed=int(column * 7 + row))
    return name, raster.write(array, name, **({"transform": place, "nodata": -1} | changes))


def check(raster: RasterPath, files: Files, options: dict[str, Any] | None = None, **said: Any) -> Outcome:
    """Validate files as the fan-out does, and compare them."""
    results, failures = [], []
    for index, (_, path) in enumerate(files):
        try:
            results.append(raster.validate(path, **(options or {})).output)
        except DataError as refused:
            failures.append({"index": index, "error": refused.detail.model_dump(mode="json")})
    checked = {"results": results, "failures": failures}
    sources = [f"bronze/in/{name}" for name, _ in files]
    return check_collection(raster.context(), CheckCollectionParams(sources=sources, checked=checked, **said))


def output(outcome: Outcome) -> dict[str, Any]:
    assert isinstance(outcome.output, dict)
    return outcome.output


def test_files_that_are_alike_get_places_in_one_grid(raster: RasterPath) -> None:
    files = [part(raster, "b.tif", 1, 0), part(raster, "a.tif", 0, 1), part(raster, "c.tif", 2, 1)]
    found = output(check(raster, files))
    assert [one["name"] for one in found["files"]] == ["b.tif", "a.tif", "c.tif"]
    assert [one["tile"]["window"][:2] for one in found["files"]] == [[SIZE, 0], [0, SIZE], [2 * SIZE, SIZE]]
    grid = found["grid"]
    assert (grid["width"], grid["height"], grid["files"]) == (3 * SIZE, 2 * SIZE, 3)
    assert grid["transform"] == [STEP, 0, WEST, 0, -STEP, NORTH]
    assert {one["verdict"] for one in found["verdicts"]} == {"accept"}


UNLIKE: dict[str, tuple[str, dict[str, Any]]] = {
    "bands": ("bands", {"array": stack(2, SIZE, SIZE, "float32")}),
    "type of values": ("dtype", {"array": pattern(SIZE, SIZE, "float64", 0, 3000)}),
    "nodata": ("nodata", {"nodata": -2}),
    "CRS": ("crs", {"crs": "EPSG:32634"}),
    "size of pixels": ("resolution", {"step": 20.0}),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_a_file_unlike_the_others_is_named_with_the_field(raster: RasterPath, name: str) -> None:
    field, changes = UNLIKE[name]
    files = [part(raster, "a.tif", 0, 0), part(raster, "odd.tif", 1, 0, **changes), part(raster, "c.tif", 2, 0)]
    with pytest.raises(Rejected) as refused:
        check(raster, files)
    detail = refused.value.detail
    assert (detail.code, detail.field, detail.user_fixable) == ("COLLECTION_MISMATCH", field, True)
    assert "odd.tif" in detail.message
    verdicts = {one["file"]: one["verdict"] for one in refused.value.report["raster"]["files"]}
    assert verdicts == {"a.tif": "accept", "odd.tif": "reject", "c.tif": "accept"}


def test_another_type_of_raster_is_unlike(raster: RasterPath) -> None:
    files = [part(raster, f"{n}_dem.tif", n, 0) for n in range(2)]
    with pytest.raises(Rejected) as refused:
        check(raster, [*files, part(raster, "ndvi.tif", 2, 0, array=pattern(SIZE, SIZE, "float32", 0, 1) - 0.5)])
    assert refused.value.detail.field == "raster_type"


def test_a_file_that_is_no_raster_keeps_its_own_code(raster: RasterPath) -> None:
    broken = raster.folder / "broken.tif"
    broken.write_text("no raster")
    files = [part(raster, "a.tif", 0, 0), ("broken.tif", broken)]
    with pytest.raises(DataError) as refused:
        check(raster, files)
    assert refused.value.detail.code == "RASTER_UNREADABLE"
    assert refused.value.detail.message.startswith("broken.tif: ")


def test_what_is_tolerated_is_left_out_and_said(raster: RasterPath) -> None:
    files = [part(raster, "a.tif", 0, 0), part(raster, "odd.tif", 1, 0, nodata=-2), part(raster, "c.tif", 2, 0)]
    found = output(check(raster, files, tolerate_files=1))
    assert [one["name"] for one in found["files"]] == ["a.tif", "c.tif"]
    assert [one["code"] for one in found["findings"] if one["level"] == "warning"] == ["FILE_LEFT_OUT"]
    assert [one["verdict"] for one in found["verdicts"]] == ["accept", "reject", "accept"]
    broken = raster.folder / "broken.tif"
    broken.write_text("no raster")
    with pytest.raises(DataError):
        check(raster, [("broken.tif", broken)], tolerate_files=5)


def test_pixels_may_differ_within_the_tolerance(raster: RasterPath) -> None:
    files = [part(raster, "a.tif", 0, 0), part(raster, "b.tif", 1, 0, step=STEP * 1.0005)]
    assert len(output(check(raster, files))["files"]) == 2
    with pytest.raises(Rejected):
        check(raster, files, resolution_tolerance=0.0001)


def test_files_too_far_apart_are_refused(raster: RasterPath) -> None:
    with pytest.raises(Rejected) as refused:
        check(raster, [part(raster, "a.tif", 0, 0), part(raster, "far.tif", 0, 1e6)])
    assert refused.value.detail.field == "extent"


def test_files_become_one_overview_and_stay_themselves(raster: RasterPath) -> None:
    files = [part(raster, "a.tif", 0, 0), part(raster, "b.tif", 1, 0), part(raster, "c.tif", 0.5, 1)]
    found = output(check(raster, files))
    made = Tiled(found["grid"])
    for one, (_, path) in zip(found["files"], files, strict=True):
        context = raster.context()
        params = ProcessFileParams(source=str(path), file=one, grid=found["grid"], output_prefix="silver/a/0/r1")
        outcome = process_file(context, params)
        paths = {name: str(context.out_dir / file) for name, file in outcome.files.items()}
        made.results.append(output(outcome) | paths)
        with rasterio.open(paths["blob_path"]) as cog, rasterio.open(path) as src:
            np.testing.assert_array_equal(cog.read(), src.read())
            assert cog.transform == src.transform
    outcome, folder = registered(raster, made, found["files"][0]["raster"], {"collection": found})
    said = output(outcome)
    assert [one["file"] for one in said["report"]["files"]] == ["a.tif", "b.tif", "c.tif"]
    with rasterio.open(folder / outcome.files["blob_path"]) as overview:
        assert overview.shape == (SIZE, SIZE)
        valid = overview.dataset_mask() > 0
    assert valid[: SIZE // 2].all()
    assert valid[SIZE // 2 :, SIZE // 4 + 1 : 3 * SIZE // 4 - 1].all()
    assert not valid[SIZE // 2 + 1 :, : SIZE // 4 - 1].any()
    listed = json.loads((folder / outcome.files["tiles_path"]).read_text())["tiles"]
    items = list(tile_items(said["stac_item"], listed))
    assert [item["properties"]["title"] for item in items] == ["a.tif", "b.tif", "c.tif"]
    assert said["stac_item"]["properties"]["geodag:tile_count"] == 3
