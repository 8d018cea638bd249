"""Kinds about files: layout, size, damage, containers and names."""

import struct
import warnings
import zipfile
from typing import Any, Final

import rasterio
import rasterio.shutil
from rasterio.errors import NotGeoreferencedWarning

from handlers.raster.tiff import read_directories
from tests.support.raster_cases.case import Case, truth_of
from tests.support.raster_cases.kinds import kind
from tests.support.raster_cases.places import Like
from tests.support.raster_path import write_raster

CANARY: Final = "CANARY-of-the-host"
TILES: Final = {"tiled": True, "blockxsize": 256, "blockysize": 256}


def _write(like: Like, pixels: Any, **settings: Any) -> None:
    write_raster(like.file, pixels, transform=like.transform, crs=like.crs, **settings)


@kind("A39", ("uint16", 1100, 1300), ("uint8", 700, 40, "laea"))
def single_strip(like: Like) -> Case:
    """Put all pixels into one strip."""
    pixels = like.pixels(0, 60000 if like.dtype == "uint16" else 250)
    _write(like, pixels, compress="deflate", blockysize=like.height)
    checks = {"tiled": True, "values_exact": True}
    return Case("", "single-strip", like.file, "accept", checks=checks, truth=truth_of(pixels))


@kind("A41", ("int16", 40000, 3), ("uint8", 1, 9000, "laea"), ("float32", 5000, 1, "degrees"), ("int16", 1100, 1024))
def extreme_aspect(like: Like) -> Case:
    """Be very long and very thin."""
    pixels = like.pixels()
    _write(like, pixels, compress="deflate", nodata=255 if like.dtype == "uint8" else -9)
    return Case("", "extreme-aspect", like.file, "accept", checks={"all_pixels_present": True}, truth=truth_of(pixels))


@kind("A43", ("float32", 256, 256), ("uint8", 20, 600, "laea"), ("int32", 700, 9, "degrees"))
def bigtiff(like: Like) -> Case:
    """Be a BigTIFF though small."""
    pixels = like.pixels()
    _write(like, pixels, bigtiff="YES")
    return Case("", "bigtiff", like.file, "accept", checks={"values_exact": True}, truth=truth_of(pixels))


@kind("A45", ("uint8", 64, 64), ("uint16", 64, 64), ("float32", 64, 64))
def bomb(like: Like) -> Case:
    """Claim sides of 400,000 pixels in a small file."""
    _write(like, like.pixels())
    content = bytearray(like.file.read_bytes())
    place = int.from_bytes(content[4:8], "little")
    for entry in range(place + 2, place + 2 + 12 * int.from_bytes(content[place : place + 2], "little"), 12):
        if int.from_bytes(content[entry : entry + 2], "little") in (256, 257):
            struct.pack_into("<HII", content, entry + 2, 4, 1, 400_000)
    like.file.write_bytes(content)
    return Case("", "bomb-dimensions", like.file, "reject", "file", "RASTER_TOO_LARGE", checks={"max_seconds": 10})


@kind("A47", ("uint16", 1024, 1024), ("uint8", 300, 300, "laea"), ("float32", 40, 2000, "degrees"))
def truncated(like: Like) -> Case:
    """Be cut off at 60 percent."""
    _write(like, like.pixels(), **TILES)
    content = like.file.read_bytes()
    like.file.write_bytes(content[: int(len(content) * 0.6)])
    return Case("", "truncated", like.file, "reject", "file", "RASTER_UNREADABLE")


@kind("A49", ("uint16", 1024, 1024), ("uint8", 600, 600, "laea"), ("float32", 300, 2000, "degrees"))
def corrupt_block(like: Like) -> Case:
    """Have one tile that cannot be decoded."""
    compress = "lzw" if like.dtype == "uint8" else "deflate"
    _write(like, like.pixels(), compress=compress, **TILES)
    table = read_directories(like.file)[0].blocks
    bad = table.offsets.size // 2
    start, size = int(table.offsets[bad]), int(table.byte_counts[bad])
    content = bytearray(like.file.read_bytes())
    content[start + 4 : start + size] = b"\xff" * (size - 4)
    like.file.write_bytes(content)
    return Case("", "corrupt-block", like.file, "reject", "file", "RASTER_UNREADABLE")


@kind("A51", ("uint8", 64, 64), ("uint8", 9, 600), ("uint8", 300, 20))
def picture(like: Like) -> Case:
    """Be a plain picture under the name of a TIFF."""
    driver = {64: "JPEG", 9: "PNG", 300: "WEBP"}[like.height]
    plain = like.folder / "picture"
    profile = {"driver": driver, "count": 3, "height": like.height, "width": like.width, "dtype": "uint8"}
    with (
        warnings.catch_warnings(action="ignore", category=NotGeoreferencedWarning),
        rasterio.Env(GDAL_PAM_ENABLED="NO"),
        rasterio.open(plain, "w", **profile) as dst,
    ):
        dst.write(like.bands(3))
    plain.rename(like.file)
    says = {"message_says": driver}
    return Case("", "not-a-raster", like.file, "reject", "file", "GEOREFERENCING_MISSING", checks=says)


@kind("A53", ("uint8", 1, 1))
def empty_file(like: Like) -> Case:
    """Have no bytes."""
    like.file.write_bytes(b"")
    return Case("", "empty-file", like.file, "reject", "file", "FILE_EMPTY")


@kind("A55", ("int16", 50, 60), ("uint8", 20, 700, "laea"), ("float32", 530, 9, "degrees"))
def container(like: Like) -> Case:
    """Come in an archive with a folder and things that are no data."""
    pixels = like.pixels(0, 200)
    _write(like, pixels)
    archive = like.folder / "delivery.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("delivery/", b"")
        target.writestr("delivery/dem.tif", like.file.read_bytes())
        target.writestr("delivery/readme.txt", b"metres\n")
        target.writestr("__MACOSX/delivery/._dem.tif", b"\0\5\x16\7")
    like.file.unlink()
    return Case("", "container", archive, "accept", checks={"member": "delivery/dem.tif"}, truth=truth_of(pixels))


@kind("A79", ("uint8", 32, 32), ("int16", 20, 9, "laea"), ("float32", 9, 9, "degrees"))
def file_name(like: Like) -> Case:
    """Have a name that is no key, no id and no part of a URL."""
    name = {"utm33": "Überflug Süd (März) 2024.tif", "laea": "a+b&c=d#1%20 'x'.tif", "degrees": "高程 — 北部.tif"}[
        like.place
    ]
    pixels = like.pixels()
    _write(like, pixels)
    source = like.file.rename(like.folder / name)
    checks = {"title_keeps_original_name": True, "blob_and_item_id_are_safe": True}
    return Case("", "file-name", source, "accept", checks=checks, truth=truth_of(pixels))


@kind("A81", ("uint8", 40, 50), ("float32", 9, 9, "degrees"))
def several_pages(like: Like) -> Case:
    """Hold two pages."""
    _write(like, like.pixels())
    where = {"transform": like.transform, "crs": like.crs, "append_subdataset": "YES"}
    profile = {"driver": "GTiff", "count": 1, "height": 30, "width": 30, "dtype": "float32"}
    with rasterio.open(like.file, "w", **profile, **where) as dst:
        dst.write(Like(like.folder, "float32", 30, 30).pixels(), 1)
    lists = {"message_lists_choices": 2}
    return Case("", "subdatasets", like.file, "reject", "subdataset", "SUBDATASET_REQUIRED", checks=lists)


@kind("A83", ("uint16", 1, 1), ("float32", 1, 2, "degrees"), ("uint8", 512, 512, "laea"))
def tiny(like: Like) -> Case:
    """Need no overview."""
    pixels = like.pixels(42, 99)
    _write(like, pixels)
    return Case("", "tiny", like.file, "accept", checks={"overviews": 0}, truth=truth_of(pixels))


@kind("A87", ("uint8", 1, 64), ("uint8", 1, 9), ("uint8", 2, 2))
def points_elsewhere(like: Like) -> Case:
    """Be a text that makes GDAL read another file: VRT, tile index or MRF."""
    (like.folder / "canary.txt").write_text(CANARY * 20)
    inner = "<SourceFilename relativeToVRT='1'>canary.txt</SourceFilename>"
    text = {
        64: f"<VRTDataset rasterXSize='64' rasterYSize='1'><VRTRasterBand dataType='Byte' band='1' "
        f"subClass='VRTRawRasterBand'>{inner}<ImageOffset>0</ImageOffset></VRTRasterBand></VRTDataset>",
        9: f"<GDALTileIndexDataset><IndexDataset>{like.folder / 'canary.txt'}</IndexDataset></GDALTileIndexDataset>",
        2: "<MRF_META><CachedSource><Source>canary.txt</Source></CachedSource></MRF_META>",
    }[like.width]
    like.file.write_text(text)
    checks = {"canary_not_in_any_output": CANARY}
    return Case("", "vrt-file-read", like.file, "reject", "format", "FORMAT_NOT_ALLOWED", checks=checks)


@kind("A89", ("uint8", 32, 32), ("int16", 9, 9, "degrees"), ("float32", 20, 600, "laea"))
def hostile_sidecar(like: Like) -> Case:
    """Deliver metadata that grow without end, read another file, or are no XML."""
    _write(like, like.pixels())
    levels = "".join(f'<!ENTITY e{n} "{(f"&e{n - 1};" if n else "lol") * 10}">' for n in range(10))
    inside = "<PAMDataset><Metadata><MDI key='a'>{}</MDI></Metadata></PAMDataset>"
    text = {
        "utm33": f"<?xml version='1.0'?><!DOCTYPE P [{levels}]>{inside.format('&e9;')}",
        "degrees": f"<!DOCTYPE P [<!ENTITY x SYSTEM 'file:///etc/hostname'>]>{inside.format('&x;')}",
        "laea": "<PAMDataset><Metadata>",
    }[like.place]
    like.file.with_name("input.tif.aux.xml").write_text(text)
    checks = {"max_seconds": 10, "max_rss_mb": 512}
    return Case("", "xml-bomb", like.file, "reject", "sidecar", "SIDECAR_INVALID", checks=checks)


@kind("A91", ("uint16", 1200, 1300), ("float32", 520, 600, "laea"), ("uint8", 100, 100, "degrees"))
def already_cog(like: Like) -> Case:
    """Be a COG already."""
    pixels = like.pixels(0, 250 if like.dtype == "uint8" else 9000)
    plain = write_raster(like.folder / "plain.tif", pixels, transform=like.transform, crs=like.crs)
    options = {"compress": "deflate", "blocksize": 512, "overview_resampling": "nearest"}
    rasterio.shutil.copy(plain, like.file, driver="COG", **options)
    plain.unlink()
    checks = {"pixels_identical": True, "not_recompressed_lossily": True}
    return Case("", "already-cog", like.file, "accept", checks=checks, truth=truth_of(pixels))
