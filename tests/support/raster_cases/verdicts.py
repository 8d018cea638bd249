"""Compares what became of a case with what the case asks for.

Every key that a case may have among its `checks` or in its `truth` has a function here; one without fails the case.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from rio_cogeo.cogeo import cog_validate

from handlers.raster.tiff import read_directories
from tests.support.raster_cases import checks
from tests.support.raster_cases.seen import ARRANGED, LOSSY, RESAMPLED, Seen


def judge(seen: Seen) -> None:
    """Fail when anything is not as the case wants it."""
    case = seen.case
    if case.outcome == "reject":
        assert seen.error is not None, "accepted"
        assert (seen.error["code"], seen.error["field"]) == (case.code, case.field), seen.error["message"]
        assert seen.error["classification"] == "permanent"
        assert seen.error["message"]
        assert seen.cog is None
        assert seen.left_behind == ()
    else:
        assert seen.error is None, seen.error
        assert seen.warnings == ({case.code} if case.outcome == "accept_warn" else set())
        _judge_accepted(seen)
        for name, value in case.truth.items():
            TRUTHS[name](seen, value)
    for name, value in case.checks.items():
        CHECKS[name](seen, value)


def _judge_accepted(seen: Seen) -> None:
    """Check what holds for every raster that is taken."""
    assert seen.cog is not None
    valid, errors, notes = cog_validate(str(seen.cog), strict=True, quiet=True)
    # rio-cogeo asks every overview to be narrower, which one pixel cannot be, and takes a column of tiles for strips.
    assert valid or all("Decimation 1" in e or "not tiled" in e for e in errors), (errors, notes)
    assert all(page.tiled for page in read_directories(seen.cog))
    with seen.open() as cog:
        a, b, _, d, e, _ = cog.transform[:6]
        assert (a > 0, b, d, e < 0) == (True, 0, 0, True), "north-up"
        assert cog.block_shapes == [(512, 512)] * cog.count
        assert cog.crs is not None
        assert min(math.ceil(cog.width / f) for f in (1, *cog.overviews(1))) <= 512
    json.dumps(seen.item, allow_nan=False)
    west, south, east, north = seen.item["bbox"]
    assert -180 <= west <= 180
    assert -180 <= east <= 180
    assert -90 <= south < north <= 90
    untouched = not seen.warnings & (RESAMPLED | ARRANGED | {"NONFINITE_REPLACED"})
    if untouched and seen.case.submit.get("compression") not in LOSSY and seen.case.source.suffix != ".zip":
        checks.same_pixels(seen, None)


CHECKS: Final[Mapping[str, Callable[[Seen, Any], None]]] = {
    "all_pixels_present": checks.same_pixels,
    "alpha_preserved": checks.alpha,
    "band4_not_used_as_mask": checks.alpha_is_data,
    "band4_values_preserved": checks.alpha_is_data,
    "bbox": checks.bbox,
    "bbox_contains_pole": checks.pole,
    "bbox_from_four_corners": checks.elsewhere,
    "bbox_lon": checks.all_longitudes,
    "bbox_west_greater_than_east": checks.crosses,
    "blob_and_item_id_are_safe": checks.safe_id,
    "bounds": checks.bounds,
    "canary_not_in_any_output": checks.absent,
    "cog_valid": checks.elsewhere,
    "colorinterp": checks.colour,
    "colormap_preserved": checks.palette,
    "count": checks.count,
    "decided_before_reading_pixels": checks.elsewhere,
    "descriptions_preserved": checks.descriptions,
    "every_block_is_read": checks.elsewhere,
    "first_output_row_is_north": checks.first_row_north,
    "geometry": checks.crosses,
    "json_has_no_NaN_token": checks.elsewhere,
    "mask_equals_truth": checks.mask_of_source,
    "mask_exact": checks.mask_of_source,
    "max_abs_error": checks.error_at_most,
    "max_rss_mb": checks.elsewhere,
    "max_seconds": checks.seconds,
    "member": checks.member,
    "message_lists_choices": checks.choices,
    "message_names": checks.names,
    "message_says": checks.says,
    "no_green_cast": lambda seen, _: checks.error_at_most(seen, 12),
    "no_inf_in_json": checks.elsewhere,
    "no_output_left": checks.elsewhere,
    "no_second_half_pixel_shift": checks.elsewhere,
    "no_speckle_at_edges": checks.mask_of_source,
    "nodata": checks.nodata,
    "nodata_equals_fill": checks.fill,
    "north_up": checks.elsewhere,
    "not_recompressed_lossily": checks.same_pixels,
    "offset": checks.offset,
    "output_dtype_one_of": checks.dtype_in,
    "output_nodata": checks.no_nodata,
    "output_not_all_zero": checks.not_empty,
    "overview_values_subset_of": checks.overview_values,
    "overview_values_subset_of_base": checks.overview_values,
    "overviews": checks.overview_count,
    "overviews_internal": checks.overview_count,
    "peak_memory_bounded": checks.elsewhere,
    "pixel_with_one_zero_band_is_valid": checks.mask_of_source,
    "pixels_identical": checks.same_pixels,
    "proj_code": checks.code,
    "proj_code_horizontal": checks.code,
    "proj_wkt2_or_projjson": checks.wkt,
    "reprojects": checks.elsewhere,
    "rerun_with_submit": checks.rerun,
    "retry": checks.elsewhere,
    "scale": checks.scale,
    "single_output_file": checks.elsewhere,
    "stac_has_scale_offset": checks.elsewhere,
    "stats_exclude_nan": checks.statistics,
    "stats_exclude_nodata": checks.statistics,
    "stats_recomputed": checks.statistics,
    "tiled": checks.elsewhere,
    "tiles_clip_at_85_05": checks.elsewhere,
    "tiles_on_both_sides": checks.elsewhere,
    "title_keeps_original_name": checks.title,
    "transform": checks.transform,
    "value_at_lon_minus_0_5_comes_from_359_5": checks.elsewhere,
    "values_exact": checks.same_pixels,
    "values_stay_raw": checks.same_pixels,
    "vertical_kept": checks.vertical,
    "zero_pixels_stay_valid": checks.no_nodata,
    "zoom_range_sane": checks.elsewhere,
}

TRUTHS: Final[Mapping[str, Callable[[Seen, Any], None]]] = {
    "band": checks.elsewhere,
    "band1_max": checks.statistic("maximum", 0),
    "band1_mean": checks.statistic("mean", 1e-6),
    "band1_min": checks.statistic("minimum", 0),
    "bbox4326": checks.bbox,
    "bbox_north_between": checks.between,
    "bbox_south": checks.south,
    "bounds": checks.bounds,
    "classes": checks.classes,
    "count": checks.count,
    "dtype": checks.dtype,
    "height": checks.side("height"),
    "output_first_row_value": checks.row(0),
    "output_last_row_value": checks.row(-1),
    "samples": checks.samples,
    "valid_pixels": checks.valid_pixels,
    "width": checks.side("width"),
}
