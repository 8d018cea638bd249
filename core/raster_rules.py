"""The rules for rasters as data: what is refused, changed with a warning, or noted, and the test that proves it.

Handlers carry the rules out; a test compares the codes that they use with this table, and another one lets each rule
be forgotten and sees its test fail. `docs/raster-rules.md` is generated from here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Level(StrEnum):
    """What follows when a rule applies."""

    ERROR = "error"
    """The raster is refused."""
    WARNING = "warning"
    """It is accepted with a fix: values, extent or names were changed, dropped or guessed."""
    INFO = "info"
    """It is accepted; a careful reader expects this."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule."""

    id: str
    code: str
    level: Level
    field: str | None
    """What is at fault, as the finding or error names it."""
    sentence: str
    test: str
    """File below `tests/unit/handlers` and function."""

    @property
    def subject(self) -> str:
        """First part of the id."""
        return self.id.partition(".")[0]


ERROR, WARNING, INFO = Level.ERROR, Level.WARNING, Level.INFO
_REFUSALS: Final = "raster/test_validate_refusals.py::"
_ACCEPTED: Final = "raster/test_validate_acceptance.py::"
_COG: Final = "raster/test_create_cog.py::"
_DELIVERY: Final = "raster/test_delivery.py::"
_OF_BANDS: Final = "raster/test_nodata_of_bands.py::"
_CUBE: Final = "raster/test_cube.py::"
_MEANING: Final = "raster/test_cube_meaning.py::"
_COLLECTION: Final = "raster/test_collection.py::"
_ITEM: Final = "stac/test_register_item.py::"

RULES: Final[tuple[Rule, ...]] = (
    Rule("file.exists", "FILE_NOT_FOUND", ERROR, "file", "The source must exist.", _REFUSALS + "test_a_missing_file"),
    Rule("file.not_empty", "FILE_EMPTY", ERROR, "file", "It must have bytes.", _REFUSALS + "test_an_empty_file"),
    Rule(
        "file.unchanged", "SOURCE_CHANGED", ERROR, "source", "It must still have the size that the submit recorded.",
        _REFUSALS + "test_a_source_that_changed_since_the_submit",
    ),
    Rule(
        "file.is_raster", "RASTER_UNREADABLE", ERROR, "file",
        "What is no raster by its first bytes is refused, saying what it looks like and never quoting it.",
        _REFUSALS + "test_content_decides_not_the_name",
    ),
    Rule(
        "file.whole", "RASTER_UNREADABLE", ERROR, "file",
        "Header, directories and block tables must agree with each other and with the length of the file.",
        _REFUSALS + "test_a_cut_file",
    ),
    Rule(
        "file.every_block", "RASTER_UNREADABLE", ERROR, "file",
        "Every block is read once; one that cannot be decoded is named.",
        _REFUSALS + "test_a_corrupt_block_is_named",
    ),
    Rule(
        "format.allowed", "FORMAT_NOT_ALLOWED", ERROR, "format",
        "Only GeoTIFF, BigTIFF, COG, HDF5, NetCDF and GRIB are read, judged by content; all else is refused unopened.",
        _REFUSALS + "test_content_decides_not_the_name",
    ),
    Rule(
        "format.self_contained", "FORMAT_NOT_ALLOWED", ERROR, "format",
        "Nothing in a file may point at another file.",
        _REFUSALS + "test_metadata_that_point_at_another_file",
    ),
    Rule(
        "format.no_picture", "GEOREFERENCING_MISSING", ERROR, "file",
        "A plain picture (JPEG, PNG, GIF, BMP, WebP) has no place on the ground.",
        _REFUSALS + "test_content_decides_not_the_name",
    ),
    Rule(
        "size.limits", "RASTER_TOO_LARGE", ERROR, "file",
        "Declared size, bands and blocks stay within the limits; decided before anything is allocated.",
        _REFUSALS + "test_each_limit_of_size",
    ),
    Rule(
        "archive.unsafe", "ARCHIVE_UNSAFE", ERROR, "file",
        "Archives with traversal, absolute names, links, devices or a name twice are refused.",
        _DELIVERY + "test_archives_that_are_refused_leave_nothing",
    ),
    Rule(
        "archive.too_large", "ARCHIVE_TOO_LARGE", ERROR, "file",
        "At most 10,000 members, 50 GB, and 100 times the archive where that is above 100 MB come out.",
        _DELIVERY + "test_archives_that_are_refused_leave_nothing",
    ),
    Rule(
        "archive.broken", "RASTER_UNREADABLE", ERROR, "file",
        "An archive must be readable to the members it is asked for.",
        _DELIVERY + "test_archives_that_are_refused_leave_nothing",
    ),
    Rule(
        "archive.has_raster", "FORMAT_NOT_ALLOWED", ERROR, "format",
        "An archive must hold a GeoTIFF, judged by content.",
        _DELIVERY + "test_archives_that_are_refused_leave_nothing",
    ),
    Rule(
        "archive.which", "MEMBER_REQUIRED", ERROR, "member",
        "Of several rasters the submit names one; they are listed.",
        _DELIVERY + "test_several_rasters_are_listed_and_one_may_be_named",
    ),
    Rule(
        "archive.member_exists", "PARAMETER_INVALID", ERROR, "member", "The member named must be in the archive.",
        _DELIVERY + "test_several_rasters_are_listed_and_one_may_be_named",
    ),
    Rule(
        "archive.member_used", "MEMBER_USED", INFO, "member", "Says which member was taken.",
        _DELIVERY + "test_a_raster_is_taken_out_of_any_archive",
    ),
    Rule(
        "sidecar.valid", "SIDECAR_INVALID", ERROR, "sidecar",
        "World file, .prj, .aux.xml and .msk beside a file must be small, whole, without document type and file names.",
        _DELIVERY + "test_broken_and_hostile_sidecars_are_refused",
    ),
    Rule(
        "sidecar.used", "SIDECAR_USED", INFO, "sidecar", "Says which sidecars were read with the file.",
        _DELIVERY + "test_sidecars_come_out_of_the_archive_too",
    ),
    Rule(
        "sidecar.file_wins", "SIDECAR_IGNORED", WARNING, "sidecar",
        "The file's own geotransform, CRS and nodata win over those of a sidecar that says otherwise.",
        _DELIVERY + "test_the_own_place_of_a_file_wins_over_its_sidecars",
    ),
    Rule(
        "subdataset.which", "SUBDATASET_REQUIRED", ERROR, "subdataset",
        "Of several pages the submit names one; they are listed.",
        _REFUSALS + "test_several_pages_are_listed",
    ),
    Rule(
        "subdataset.exists", "PARAMETER_INVALID", ERROR, "subdataset", "The page named must be in the file.",
        _REFUSALS + "test_several_pages_are_listed",
    ),
    Rule(
        "subdataset.used", "SUBDATASET_USED", INFO, "subdataset", "Says which variable and step of a cube was read.",
        _CUBE + "test_a_variable_becomes_a_cog_with_everything_it_says",
    ),
    Rule(
        "crs.stated", "CRS_MISSING", ERROR, "crs",
        "The CRS comes from the file, its sidecars or the submit; never guessed.",
        _REFUSALS + "test_no_crs_anywhere",
    ),
    Rule(
        "crs.from_submit", "CRS_FROM_SUBMIT", INFO, "crs",
        "Says that the submit's CRS is used because the file has none.",
        _ACCEPTED + "test_a_crs_may_come_from_the_submit",
    ),
    Rule(
        "crs.by_convention", "CRS_BY_CONVENTION", INFO, "crs",
        "Latitudes and longitudes of a CF file without grid mapping are WGS 84.",
        _CUBE + "test_latitudes_and_longitudes_without_a_mapping_are_wgs_84",
    ),
    Rule(
        "crs.no_conflict", "CRS_CONFLICT", ERROR, "crs",
        "File and submit must name the same CRS, by PROJ's comparison.",
        _REFUSALS + "test_a_submit_that_names_another_crs_than_the_file",
    ),
    Rule(
        "crs.override", "CRS_OVERRIDDEN", WARNING, "crs", "With override_crs the submit's CRS replaces the file's.",
        _ACCEPTED + "test_override_replaces_the_crs_with_a_warning",
    ),
    Rule(
        "crs.on_earth", "CRS_NOT_GEOREFERENCED", ERROR, "crs",
        "A local or engineering CRS, or one that PROJ cannot read, is refused whatever its name says.",
        _REFUSALS + "test_an_engineering_crs_whatever_its_name",
    ),
    Rule(
        "crs.extent", "CRS_EXTENT_IMPOSSIBLE", ERROR, "crs",
        "The CRS must hold the coordinates: longitudes within ±540, latitudes at most a pixel beyond ±90; a target CRS "
        "must not stretch the raster to nothing.",
        _REFUSALS + "test_coordinates_that_the_crs_cannot_hold",
    ),
    Rule(
        "crs.writable", "CRS_UNSUPPORTED", ERROR, "crs",
        "A CRS must read back from a GeoTIFF as the same one.",
        "raster/test_compound_crs.py::test_what_a_geotiff_would_tell_differently_is_refused",
    ),
    Rule(
        "place.given", "GEOREFERENCING_MISSING", ERROR, "file",
        "There must be a geotransform, or control points that are finite and span a triangle.",
        _REFUSALS + "test_no_place_at_all_names_both_faults",
    ),
    Rule(
        "place.not_rpc_alone", "RPC_ONLY", ERROR, "georeferencing", "Rational polynomials alone need a height model.",
        _REFUSALS + "test_rational_polynomials_alone",
    ),
    Rule(
        "place.rpc_ignored", "RPC_IGNORED", INFO, "georeferencing", "A geotransform wins over rational polynomials.",
        _ACCEPTED + "test_a_geotransform_wins_over_rational_polynomials",
    ),
    Rule(
        "place.gcps", "GEOREFERENCED_FROM_GCPS", WARNING, "georeferencing",
        "Control points alone are warped with a real transform.",
        _ACCEPTED + "test_control_points_alone_warn",
    ),
    Rule(
        "place.rotated", "RESAMPLED_TO_NORTH_UP", WARNING, "georeferencing",
        "A rotated or sheared grid is resampled to north-up.",
        _ACCEPTED + "test_a_rotated_raster_is_seen_with_all_four_corners",
    ),
    Rule(
        "place.flipped", "FLIPPED_TO_NORTH_UP", WARNING, "georeferencing",
        "Rows or columns that run the other way are flipped, exactly.",
        _ACCEPTED + "test_a_flipped_raster_warns",
    ),
    Rule(
        "place.longitudes", "LONGITUDES_SHIFTED", WARNING, "crs",
        "Longitudes move by multiples of 360 into -180..180; a full circle is rolled.",
        _ACCEPTED + "test_longitudes_are_put_in_order",
    ),
    Rule(
        "place.clamped", "BBOX_CLAMPED", WARNING, "crs",
        "Up to a pixel beyond ±180 or ±90 the bbox is clamped, pixels stay.",
        _ACCEPTED + "test_a_grid_half_a_pixel_beyond_the_poles_is_kept",
    ),
    Rule(
        "dtype.real", "DTYPE_COMPLEX", ERROR, "dtype",
        "Complex pixels are refused.", _REFUSALS + "test_complex_pixels",
    ),
    Rule(
        "dtype.exact", "DTYPE_UNSUPPORTED", ERROR, "dtype",
        "All bands share one type; 64-bit nodata must fit a double exactly; where pixels are copied or resampled, it, "
        "and of resampled pixels all values, must lie within ±2^53.",
        "raster/test_foresight.py::test_64_bit_integers_that_resampling_would_round",
    ),
    Rule(
        "nodata.fits", "NODATA_DROPPED", WARNING, "nodata", "A nodata value that the type cannot hold is dropped.",
        _ACCEPTED + "test_a_nodata_value_that_the_dtype_cannot_hold_is_dropped",
    ),
    Rule(
        "nodata.replaced", "NODATA_REPLACED", WARNING, "nodata", "The submit's nodata value wins over the file's.",
        "raster/test_nodata.py::test_the_submit_wins_over_the_file_with_a_warning",
    ),
    Rule(
        "nodata.unified", "MISSING_UNIFIED", WARNING, "nodata",
        "Pixels of a cube that hold another missing value, or lie outside of the valid range, take the nodata value.",
        _MEANING + "test_whatever_means_missing_becomes_the_nodata_value",
    ),
    Rule(
        "nodata.of_bands", "NODATA_UNIFIED", WARNING, "nodata",
        "Where a sidecar has nodata that differs by band, or for some alone, pixels of all bands take one value.",
        _OF_BANDS + "test_nodata_that_differs_by_band_is_unified",
    ),
    Rule(
        "nodata.of_bands_free", "SIDECAR_INVALID", ERROR, "sidecar",
        "That one value may not be data in any band.",
        _OF_BANDS + "test_nodata_of_one_band_that_is_data_of_another_is_refused",
    ),
    Rule(
        "nodata.nan", "NODATA_SET_TO_NAN", WARNING, "nodata",
        "Non-finite pixels without a nodata value make NaN the nodata value.",
        _ACCEPTED + "test_nan_without_nodata_becomes_the_nodata_value",
    ),
    Rule(
        "nodata.nonfinite", "NONFINITE_REPLACED", WARNING, "nodata",
        "Non-finite pixels take the nodata value that there is.",
        _ACCEPTED + "test_nan_beside_a_nodata_value_takes_it",
    ),
    Rule(
        "nodata.nonfinite_masked", "NONFINITE_MASKED", WARNING, "nodata",
        "Pixels that a mask calls valid but that hold nothing finite are masked.",
        _COG + "test_what_is_not_finite_is_masked_where_a_mask_says_what_is_valid",
    ),
    Rule(
        "nodata.mask_wins", "NODATA_IGNORED", WARNING, "nodata", "A mask or alpha band wins over a nodata value.",
        _ACCEPTED + "test_a_mask_wins_over_a_nodata_value",
    ),
    Rule(
        "nodata.lossy", "NODATA_TO_MASK", WARNING, "nodata",
        "Lossy compression gets a mask, never a nodata colour; pixels keep what they have, in each band its own.",
        _ACCEPTED + "test_nodata_beside_lossy_compression_becomes_a_mask",
    ),
    Rule(
        "pixels.some", "RASTER_EMPTY", ERROR, "file", "A pixel must be valid, unless allow_empty is stated.",
        _REFUSALS + "test_no_valid_pixel",
    ),
    Rule(
        "pixels.few", "RASTER_MOSTLY_EMPTY", WARNING, "file", "Under one percent of valid pixels is said.",
        _ACCEPTED + "test_almost_no_valid_pixel_warns",
    ),
    Rule(
        "bands.alpha", "ALPHA_IS_DATA", WARNING, "bands",
        "A band tagged alpha is data where it is spectral by name, or less than half of what shows is opaque.",
        _ACCEPTED + "test_an_alpha_band_that_is_no_mask_is_data",
    ),
    Rule(
        "bands.alpha_to_mask", "ALPHA_TO_MASK", INFO, "bands",
        "Readers look for alpha in the last of two or four bands of uint8 or uint16; any other gets a mask beside it.",
        _ACCEPTED + "test_an_alpha_band_that_readers_would_overlook_gets_a_mask",
    ),
    Rule(
        "bands.scaled", "RASTER_UNREADABLE", ERROR, "file", "Scale and offset are finite numbers.",
        _REFUSALS + "test_a_scale_that_is_no_number",
    ),
    Rule(
        "type.possible", "PARAMETER_INVALID", ERROR, "raster_type", "A stated type must be one the pixels can have.",
        _REFUSALS + "test_options_that_cannot_be",
    ),
    Rule(
        "options.compression", "PARAMETER_INVALID", ERROR, "compression",
        "Lossy compression needs one or three bands of uint8 without palette.",
        _REFUSALS + "test_options_that_cannot_be",
    ),
    Rule(
        "options.crs", "PARAMETER_INVALID", ERROR, "crs",
        "A stated CRS must be one PROJ knows without opening a file.",
        _REFUSALS + "test_options_that_cannot_be",
    ),
    Rule(
        "options.target_crs", "PARAMETER_INVALID", ERROR, "target_crs", "The CRS to resample into must lie on Earth.",
        _REFUSALS + "test_options_that_cannot_be",
    ),
    Rule(
        "options.dates", "PARAMETER_INVALID", ERROR, "datetime",
        "Dates are RFC 3339, and an interval has both ends in order.",
        _REFUSALS + "test_options_that_cannot_be",
    ),
    Rule(
        "collection.alike", "COLLECTION_MISMATCH", ERROR, None,
        "Files that become one version share bands, dtype, nodata, CRS, resolution and type.",
        _COLLECTION + "test_a_file_unlike_the_others_is_named_with_the_field",
    ),
    Rule(
        "collection.tolerance", "FILE_LEFT_OUT", WARNING, None,
        "A file that is refused or unlike the others is left out where the submit tolerates that.",
        _COLLECTION + "test_what_is_tolerated_is_left_out_and_said",
    ),
    Rule(
        "statistics.own", "STATISTICS_RECOMPUTED", INFO, None, "Statistics that came with the file are replaced.",
        _ACCEPTED + "test_statistics_of_the_file_are_told_to_be_stale",
    ),
    Rule(
        "cog.kept", "COG_KEPT", INFO, None, "A file that already is the COG that would be made is copied.",
        _COG + "test_a_valid_cog_is_copied_not_recompressed",
    ),
    Rule(
        "cog.overviews", "OVERVIEWS_REBUILT", WARNING, "file",
        "A COG whose overviews do not show its pixels is made anew.",
        _COG + "test_a_cog_whose_overviews_are_old_is_rebuilt",
    ),
    Rule(
        "date.from_file", "DATETIME_FROM_FILE", INFO, "datetime", "Without a stated date the file's own is taken.",
        _ITEM + "test_the_date_of_the_file_is_used_when_none_was_given",
    ),
    Rule(
        "date.readable", "DATETIME_UNREADABLE", WARNING, "datetime",
        "The time of a step that is no date of today's calendar is said and not used.",
        _MEANING + "test_a_time_that_is_no_date_is_said_and_not_used",
    ),
    Rule(
        "date.assumed", "DATETIME_ASSUMED", INFO, "datetime", "Without any date the time of processing is taken.",
        _ITEM + "test_without_any_date_the_time_of_processing_is_used_and_said",
    ),
)  # fmt: skip


def by_subject() -> Iterator[tuple[str, list[Rule]]]:
    """Yield the rules of each subject, in the order of the table."""
    subjects = dict.fromkeys(rule.subject for rule in RULES)
    for subject in subjects:
        yield subject, [rule for rule in RULES if rule.subject == subject]
