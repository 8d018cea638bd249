"""Tells what a file is from its first bytes, before any library opens it. Names and extensions are not looked at."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

HEAD_BYTES: Final = 4096


class Kind(Enum):
    """What may be done with a file."""

    TIFF = "tiff"
    CUBE = "cube"
    PICTURE = "picture"
    NOT_ALLOWED = "not_allowed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Sniffed:
    """A kind and its name in words fit for a message; never a quote from the file."""

    kind: Kind
    name: str


_TIFF = tuple(bytes.fromhex(magic) for magic in ("49492a00", "4d4d002a", "49492b00", "4d4d002b"))

_CUBES = (
    (b"\x89HDF\r\n\x1a\n", "HDF5 or NetCDF-4 file"),
    (b"CDF\x01", "NetCDF file"),
    (b"CDF\x02", "NetCDF file"),
    (b"CDF\x05", "NetCDF file"),
    (b"GRIB", "GRIB file"),
)

_PICTURES = (
    (b"\xff\xd8\xff", "JPEG picture"),
    (b"\x89PNG\r\n\x1a\n", "PNG picture"),
    (b"GIF87a", "GIF picture"),
    (b"GIF89a", "GIF picture"),
)

_FORMATS = (
    (b"\x00\x00\x00\x0cjP  ", "JPEG 2000 image"),
    (b"\xff\x4f\xff\x51", "JPEG 2000 codestream"),
    (b"PK\x03\x04", "zip archive"),
    (b"PK\x05\x06", "zip archive"),
    (b"\x1f\x8b", "gzip archive"),
    (b"BZh", "bzip2 archive"),
    (b"\xfd7zXZ\x00", "xz archive"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip archive"),
    (b"Rar!", "RAR archive"),
    (b"SQLite format 3\x00", "SQLite or GeoPackage database"),
    (b"NITF", "NITF image"),
    (b"NSIF", "NITF image"),
    (b"SIMPLE  =", "FITS file"),
    (b"EHFA_HEADER_TAG", "ERDAS Imagine image"),
    (b"ENVI", "ENVI header"),
    (b"DSAA", "Surfer grid"),
    (b"DSBB", "Surfer grid"),
    (b"DSRB", "Surfer grid"),
    (b"UHL1", "DTED grid"),
    (b"PCIDSK", "PCIDSK image"),
    (b"RUU CROSS SYSTEM MAP FORMAT", "PCRaster map"),
    (b"msid", "MrSID image"),
    (b"%PDF", "PDF document"),
    (b"PAR1", "Parquet file"),
    (b"\x00\x00\x27\x0a", "Shapefile"),
    (b"fgb\x03", "FlatGeobuf file"),
)

_XML_ROOTS = (
    (re.compile(rb"<VRTDataset|<OGRVRTDataSource", re.IGNORECASE), "GDAL virtual raster (VRT)"),
    (re.compile(rb"<GDALTileIndexDataset", re.IGNORECASE), "GDAL tile index"),
    (re.compile(rb"<MRF_META", re.IGNORECASE), "MRF description"),
    (re.compile(rb"<GDAL_W[A-Z]+", re.IGNORECASE), "web service description"),
    (re.compile(rb"<kml\b", re.IGNORECASE), "KML document"),
    (re.compile(rb"<svg\b", re.IGNORECASE), "SVG picture"),
)
_HTML = re.compile(rb"<!doctype html|<html\b|<head\b|<body\b", re.IGNORECASE)
_ASCII_GRID = re.compile(rb"(ncols|nrows|xllc|dsaa)", re.IGNORECASE)
_GEO_JSON = re.compile(rb'"(FeatureCollection|Topology|stac_version)"')
_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_TAR_MAGIC = slice(257, 262)
_TEXT_BYTES = frozenset(range(32, 256)) | frozenset(b"\t\n\r\f\x1b") - {127}


def sniff(head: bytes) -> Sniffed:
    """Return what a file is, given its first `HEAD_BYTES` bytes (at least one)."""
    if head.startswith(_TIFF):
        return Sniffed(Kind.TIFF, "TIFF")
    for magic, name in _CUBES:
        if head.startswith(magic):
            return Sniffed(Kind.CUBE, name)
    picture = _picture(head)
    if picture:
        return Sniffed(Kind.PICTURE, picture)
    for magic, name in _FORMATS:
        if head.startswith(magic):
            return Sniffed(Kind.NOT_ALLOWED, name)
    if head[_TAR_MAGIC] == b"ustar":
        return Sniffed(Kind.NOT_ALLOWED, "tar archive")
    return _text(head)


def _picture(head: bytes) -> str | None:
    for magic, name in _PICTURES:
        if head.startswith(magic):
            return name
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "WebP picture"
    if head.startswith(b"BM") and len(head) >= 18 and head[6:10] == bytes(4) and head[14] in (12, 40, 52, 56, 108, 124):
        return "BMP picture"
    return None


def _text(head: bytes) -> Sniffed:
    if not any(head):
        return Sniffed(Kind.UNKNOWN, "zero bytes")
    text = _without_mark(head)
    if not set(text) <= _TEXT_BYTES:
        return Sniffed(Kind.UNKNOWN, "binary data of an unknown kind")
    if text.startswith(b"<"):
        return _markup(text)
    if _ASCII_GRID.match(text):
        return Sniffed(Kind.NOT_ALLOWED, "ASCII grid")
    if text.startswith((b"{", b"[")):
        known = _GEO_JSON.search(text)
        return Sniffed(Kind.NOT_ALLOWED, "GeoJSON or STAC document") if known else Sniffed(Kind.UNKNOWN, "JSON text")
    return Sniffed(Kind.UNKNOWN, "plain text")


def _markup(text: bytes) -> Sniffed:
    for root, name in _XML_ROOTS:
        if root.search(text):
            return Sniffed(Kind.NOT_ALLOWED, name)
    if _HTML.search(text):
        return Sniffed(Kind.UNKNOWN, "HTML page")
    return Sniffed(Kind.NOT_ALLOWED, "XML document")


def _without_mark(head: bytes) -> bytes:
    """Return the text without byte order mark, UTF-16 squeezed to its ASCII bytes, and without leading blanks."""
    if head.startswith(_BYTE_ORDER_MARKS[1:]):
        head = head.replace(b"\x00", b"")
    for mark in _BYTE_ORDER_MARKS:
        head = head.removeprefix(mark)
    return head.lstrip()
