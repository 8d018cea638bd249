"""Kinds about pixels: validity, types, bands, palettes and what describes them."""

from typing import Any

import numpy as np
import rasterio
from rasterio.enums import ColorInterp, Resampling

from tests.support.raster_cases.case import Case, truth_of
from tests.support.raster_cases.kinds import kind
from tests.support.raster_cases.places import Like
from tests.support.raster_path import write_raster


def _write(like: Like, pixels: Any, **settings: Any) -> None:
    write_raster(like.file, pixels, transform=like.transform, crs=like.crs, **settings)


@kind("A17", ("float32", 64, 64), ("float64", 530, 20, "degrees"), ("float32", 9, 700, "laea"))
def nan_pixels(like: Like) -> Case:
    """Put NaN, and once infinity, where there is nothing, without saying so."""
    pixels = like.pixels(-20, 300)
    valid = np.add.outer(np.arange(like.height), np.arange(like.width)) % 10 >= 3
    pixels[~valid] = np.nan
    if like.dtype == "float64":
        pixels[~valid & (np.arange(like.width) % 2 == 0)] = np.inf
    _write(like, pixels)
    checks = {"nodata": "nan", "stats_exclude_nan": True, "json_has_no_NaN_token": True}
    truth = truth_of(pixels, valid)
    return Case("", "nan-pixels", like.file, "accept_warn", code="NODATA_SET_TO_NAN", checks=checks, truth=truth)


@kind("A19", ("uint16", 64, 64), ("uint8", 20, 600, "laea"), ("uint32", 33, 33, "degrees"))
def nodata_out_of_range(like: Like) -> Case:
    """Keep a nodata tag of a signed past of the file."""
    signed = f"int{like.dtype.removeprefix('uint')}"
    pixels = like.pixels(0, 100)
    nodata = -100 if like.dtype == "uint8" else -32768
    _write(like, pixels.astype(signed), nodata=nodata)
    _make_unsigned(like)
    checks = {"output_nodata": None, "zero_pixels_stay_valid": True}
    return Case(
        "",
        "nodata-out-of-range",
        like.file,
        "accept_warn",
        code="NODATA_DROPPED",
        checks=checks,
        truth=truth_of(pixels),
    )


def _make_unsigned(like: Like) -> None:
    """Change SampleFormat (339) of the first directory of a little-endian classic TIFF from signed to unsigned."""
    content = bytearray(like.file.read_bytes())
    place = int.from_bytes(content[4:8], "little")
    for entry in range(place + 2, place + 2 + 12 * int.from_bytes(content[place : place + 2], "little"), 12):
        if int.from_bytes(content[entry : entry + 2], "little") == 339:
            content[entry + 8] = 1
    like.file.write_bytes(content)
    with rasterio.open(like.file) as src:
        assert src.dtypes[0] == like.dtype, "the trap is in the file"


@kind("A21", ("float32", 64, 64), ("float64", 20, 30, "laea"), ("float32", 700, 9, "degrees"))
def nodata_extreme(like: Like) -> Case:
    """Use the lowest number of the type as nodata."""
    low = float(np.finfo(like.dtype).min)
    pixels = like.pixels(0, 90)
    valid = np.ones(pixels.shape, bool)
    valid[:, :3] = False
    pixels[~valid] = low
    _write(like, pixels, nodata=low)
    checks = {"stats_exclude_nodata": True, "nodata_equals_fill": True}
    return Case("", "nodata-float-extreme", like.file, "accept", checks=checks, truth=truth_of(pixels, valid))


@kind("A23", ("uint8", 300, 300), ("uint8", 40, 700, "laea"), ("uint8", 530, 530, "degrees"))
def nodata_lossy(like: Like) -> Case:
    """Ask for JPEG of a raster with a nodata colour; in one patch only red has that value."""
    pixels = like.bands(3, 20, 240)
    valid = np.add.outer(np.arange(like.height), np.arange(like.width)) > 35
    pixels[:, ~valid] = 0
    pixels[0, 20:30, 36:] = 0
    _write(like, pixels, nodata=0, photometric="RGB")
    checks = {"mask_exact": True, "pixel_with_one_zero_band_is_valid": True}
    return Case(
        "", "nodata-lossy-rgb", like.file, "accept_warn", code="NODATA_TO_MASK", submit={"compression": "jpeg"},
        checks=checks, truth={"count": 3, "valid_pixels": int(valid.sum())},
    )  # fmt: skip


@kind("A25", ("uint8", 128, 128), ("uint16", 40, 600, "laea"), ("uint8", 600, 600, "degrees"))
def alpha_mask(like: Like) -> Case:
    """Say what is valid in an alpha band: a disc."""
    rows, columns = np.mgrid[0 : like.height, 0 : like.width]
    valid = np.hypot(rows - like.height / 2, columns - like.width / 2) < like.width / 2.3
    full = np.iinfo(like.dtype).max
    pixels = np.concatenate([like.bands(3), np.where(valid, full, 0).astype(like.dtype)[None]])
    _write(like, pixels, photometric="RGB", alpha="YES")
    checks = {"alpha_preserved": True, "mask_equals_truth": True}
    return Case("", "mask-alpha", like.file, "accept", checks=checks, truth=truth_of(pixels, valid))


@kind("A27", ("uint8", 96, 96), ("uint16", 30, 700, "laea"), ("uint8", 5, 5, "degrees"))
def infrared_alpha(like: Like) -> Case:
    """Tag a fourth band alpha that holds infrared; it is named so only in some."""
    pixels = like.bands(4, 5, 240)
    named = like.place != "laea"

    def describe(dst: Any) -> None:
        if named:
            dst.set_band_description(4, "nir")

    _write(like, pixels, photometric="RGB", alpha="YES", before=describe)
    checks = {"band4_values_preserved": True, "band4_not_used_as_mask": True}
    truth = truth_of(pixels, band=4)
    return Case("", "nir-vs-alpha", like.file, "accept_warn", code="ALPHA_IS_DATA", checks=checks, truth=truth)


@kind("A29", ("uint8", 640, 640), ("uint8", 30, 1100, "laea"), ("uint8", 20, 20, "degrees"))
def palette(like: Like) -> Case:
    """Give five classes their colours."""
    pixels = like.patches([1, 2, 3, 4, 5], 7)

    def colour(dst: Any) -> None:
        dst.write_colormap(1, {code: (40 * code, 255 - 40 * code, 10 * code, 255) for code in range(6)})

    _write(like, pixels, nodata=0, photometric="palette", compress="deflate", before=colour)
    checks = {"colormap_preserved": True, "colorinterp": "palette", "overview_values_subset_of_base": True}
    truth = truth_of(pixels) | {"classes": [int(code) for code in np.unique(pixels)]}
    return Case("", "palette", like.file, "accept", checks=checks, truth=truth)


@kind("A31", ("uint8", 1024, 1024), ("int16", 600, 700, "laea"), ("uint32", 520, 30, "degrees"))
def categorical(like: Like) -> Case:
    """Use few class codes without saying that they are classes."""
    codes = [10, 20, 30, 40, 95, 100] if like.dtype == "uint8" else [1, 7, 300, 30000]
    pixels = like.patches(codes, 3)
    _write(like, pixels, nodata=0, compress="deflate")
    truth = truth_of(pixels) | {"classes": codes}
    return Case("", "categorical", like.file, "accept", checks={"overview_values_subset_of_base": True}, truth=truth)


@kind("A33", ("int8", 64, 64), ("int64", 20, 30, "laea"), ("uint64", 9, 600, "degrees"), ("uint32", 40, 40))
def unusual_integers(like: Like) -> Case:
    """Use int8, or integers that a double cannot hold."""
    if like.dtype == "int8":
        pixels = pattern_int8(like)
        _write(like, pixels, nodata=-128)
        valid = pixels != -128
        checks: dict[str, Any] = {"values_exact": True, "output_dtype_one_of": ["int8", "int16"], "nodata": -128}
        return Case("", "dtype-unusual-int", like.file, "accept", checks=checks, truth=truth_of(pixels, valid))
    base = np.iinfo(like.dtype).max - 300
    pixels = (like.pixels(0, 250).astype(like.dtype)) + np.asarray(base, like.dtype)
    _write(like, pixels)
    truth = {"count": 1, "height": like.height, "width": like.width, "dtype": like.dtype}
    return Case("", "dtype-unusual-int", like.file, "accept", checks={"values_exact": True}, truth=truth)


def pattern_int8(like: Like) -> Any:
    """Return -100..100 with a few rows of -128."""
    pixels = Like(like.folder, "int16", like.height, like.width).pixels(-100, 100).astype("int8")
    pixels[:4] = -128
    return pixels


@kind("A35", ("complex64", 40, 40), ("complex128", 5, 600, "laea"), ("complex64", 520, 3, "degrees"))
def complex_pixels(like: Like) -> Case:
    """Write radar amplitudes with their phases."""
    real = Like(like.folder, "float32", like.height, like.width)
    _write(like, (real.pixels() + 1j * real.pixels(seed=3)).astype(like.dtype))
    says = {"message_says": "choose real, imaginary, amplitude or phase"}
    return Case("", "dtype-complex", like.file, "reject", "dtype", "DTYPE_COMPLEX", checks=says)


@kind("A37", ("uint8", 600, 700), ("uint8", 64, 64, "laea"), ("uint8", 9, 1100, "degrees"))
def one_bit(like: Like) -> Case:
    """Store one bit a pixel, compressed as a fax or not."""
    compress = {} if like.place == "laea" else {"compress": "ccittfax4"}
    pixels = like.patches([0, 1], 2)
    _write(like, pixels, nbits=1, **compress)
    checks = {"values_exact": True, "overview_values_subset_of": [0, 1]}
    return Case("", "one-bit", like.file, "accept", checks=checks, truth=truth_of(pixels))


@kind("A57", ("uint8", 256, 256), ("uint8", 520, 40, "laea"), ("uint8", 64, 700, "degrees"))
def jpeg_colours(like: Like) -> Case:
    """Come as JPEG with its own colour space."""
    rows, columns = np.mgrid[0 : like.height, 0 : like.width]
    pixels = np.stack([rows % 256, columns % 256, (rows // 2) % 256]).astype("uint8")
    if like.place != "utm33":
        pixels = np.stack([rows * 255 // like.height, columns * 255 // like.width, rows * 99 // like.height]).astype(
            "uint8"
        )
    settings = {"tiled": True, "blockxsize": 256, "blockysize": 256, "jpeg_quality": 95}
    _write(like, pixels, compress="jpeg", photometric="ycbcr", **settings)
    checks = {"count": 3, "no_green_cast": True, "max_abs_error": 12}
    return Case("", "jpeg-ycbcr", like.file, "accept", checks=checks, truth=truth_of(pixels))


@kind("A69", ("int16", 64, 64), ("uint16", 30, 600, "laea"), ("int32", 20, 20, "degrees"))
def scale_and_offset(like: Like) -> Case:
    """Scale the values; the offset is zero or not."""
    offset = 0.0 if like.place == "utm33" else -273.15
    pixels = like.pixels(0 if like.dtype == "uint16" else -2000, 10000)

    def describe(dst: Any) -> None:
        dst.scales, dst.offsets = (0.0001,), (offset,)

    _write(like, pixels, before=describe)
    checks = {"scale": 0.0001, "offset": offset, "values_stay_raw": True, "stac_has_scale_offset": True}
    return Case("", "scale-offset", like.file, "accept", checks=checks, truth=truth_of(pixels))


@kind("A71", ("int16", 64, 64), ("float32", 600, 9, "laea"), ("uint8", 20, 20, "degrees"))
def stale_statistics(like: Like) -> Case:
    """Carry statistics of other pixels."""
    pixels = like.pixels(100, 200 if like.dtype == "uint8" else 5000)
    stale = {f"STATISTICS_{name}": "0.5" for name in ("MINIMUM", "MAXIMUM", "MEAN", "STDDEV")}
    _write(like, pixels, before=lambda dst: dst.update_tags(1, **stale))
    return Case("", "stale-statistics", like.file, "accept", checks={"stats_recomputed": True}, truth=truth_of(pixels))


@kind("A73", ("uint16", 64, 64), ("float32", 20, 600, "laea"), ("uint8", 9, 9, "degrees"))
def many_bands(like: Like) -> Case:
    """Hold seven named bands, or five without names."""
    names = ("coastal", "blue", "green", "red", "nir", "swir1", "swir2") if like.place != "laea" else (None,) * 5
    pixels = like.bands(len(names), 0, 200 if like.dtype == "uint8" else 9000)

    def describe(dst: Any) -> None:
        dst.descriptions = names

    _write(like, pixels, photometric="MINISBLACK", before=describe)
    checks = {"count": len(names), "descriptions_preserved": True}
    return Case("", "many-bands", like.file, "accept", checks=checks, truth=truth_of(pixels))


@kind("A77", ("uint8", 1024, 1024), ("int16", 700, 600, "laea"))
def overviews_beside(like: Like) -> Case:
    """Deliver overviews in a file of their own."""
    pixels = like.pixels()
    _write(like, pixels)
    with rasterio.Env(TIFF_USE_OVR="YES"), rasterio.open(like.file, "r+") as dst:
        dst.build_overviews([2, 4], Resampling.average)
    assert like.file.with_name("input.tif.ovr").exists(), "the trap is there"
    checks = {"overviews_internal": True, "single_output_file": True}
    return Case("", "sidecar", like.file, "accept", checks=checks, truth=truth_of(pixels))


def colours(source: Any) -> list[ColorInterp]:
    """Return the colour interpretation of each band of a file."""
    with rasterio.open(source) as src:
        return list(src.colorinterp)
