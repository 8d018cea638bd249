"""Files are told apart by their first bytes, never by their names."""

import pytest

from handlers.raster.sniff import Kind, sniff

TIFFS = ["49492a00", "4d4d002a", "49492b00", "4d4d002b"]

PICTURES = [
    (b"\xff\xd8\xff\xe0\x00\x10JFIF", "JPEG picture"),
    (b"\x89PNG\r\n\x1a\n\x00\x00", "PNG picture"),
    (b"GIF89a\x01\x00", "GIF picture"),
    (b"RIFF\x10\x00\x00\x00WEBPVP8 ", "WebP picture"),
    (b"BM\x46\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00\x28\x00\x00\x00", "BMP picture"),
]

FORMATS = [
    (b"<VRTDataset rasterXSize='1'>", "GDAL virtual raster (VRT)"),
    (b"\xef\xbb\xbf\n  <?xml version='1.0'?><VRTDataset>", "GDAL virtual raster (VRT)"),
    ("<VRTDataset>".encode("utf-16"), "GDAL virtual raster (VRT)"),
    (b"<MRF_META><Raster>", "MRF description"),
    (b"<GDAL_WMS><Service>", "web service description"),
    (b"<GDALTileIndexDataset>", "GDAL tile index"),
    (b"<?xml version='1.0'?><other/>", "XML document"),
    (b"PK\x03\x04rest", "zip archive"),
    (b"\x1f\x8b\x08rest", "gzip archive"),
    (b"\0" * 257 + b"ustar\0", "tar archive"),
    (b"SQLite format 3\x00rest", "SQLite or GeoPackage database"),
    (b"ncols 4\nnrows 4\n", "ASCII grid"),
    (b'{"type": "FeatureCollection", "features": []}', "GeoJSON or STAC document"),
]

OTHERS = [
    (b"<!DOCTYPE html><html><body>404 secret", "HTML page"),
    (b"<html><body>error", "HTML page"),
    (b"dear reader, this is secret", "plain text"),
    ("Grüße".encode(), "plain text"),
    (b'{"error": "secret"}', "JSON text"),
    (b"\0" * 64, "zero bytes"),
    (b"\x01\x02\x03\x04secret", "binary data of an unknown kind"),
    (b"BMW is a car maker, not a picture", "plain text"),
]


@pytest.mark.parametrize("magic", TIFFS)
def test_all_four_kinds_of_tiff_are_tiffs(magic: str) -> None:
    assert sniff(bytes.fromhex(magic) + b"rest").kind is Kind.TIFF


@pytest.mark.parametrize(("head", "name"), PICTURES)
def test_plain_pictures_are_named(head: bytes, name: str) -> None:
    found = sniff(head)
    assert (found.kind, found.name) == (Kind.PICTURE, name)


@pytest.mark.parametrize(("head", "name"), FORMATS)
def test_formats_that_are_not_allowed_are_named(head: bytes, name: str) -> None:
    found = sniff(head)
    assert (found.kind, found.name) == (Kind.NOT_ALLOWED, name)


@pytest.mark.parametrize(("head", "name"), OTHERS)
def test_anything_else_is_described_but_never_quoted(head: bytes, name: str) -> None:
    found = sniff(head)
    assert (found.kind, found.name) == (Kind.UNKNOWN, name)
    assert "secret" not in found.name


@pytest.mark.parametrize("magic", [b"\x89HDF\r\n\x1a\n", b"CDF\x01", b"CDF\x02", b"CDF\x05", b"GRIB"])
def test_files_of_variables_and_fields_are_cubes(magic: bytes) -> None:
    assert sniff(magic + b"rest").kind is Kind.CUBE
