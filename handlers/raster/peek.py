"""Which bytes of a TIFF its header is: directories, their values, and the block tables of its images."""

from typing import Final

from handlers.raster.sniff import HEAD_BYTES, Kind, sniff
from handlers.raster.tiff import BLOCK_TABLES, METADATA, Directory, HeaderError, Readable, read_directories

LARGEST_VALUE_BYTES: Final = 1 << 18
"""Larger ones, but for block tables and GDAL's metadata, are pictures and previews that nobody here reads."""


def walk_header(source: Readable) -> bool:
    """Read all that validation and GDAL read before pixels; return False for what is no TIFF or an archive.

    A broken header counts as read: validation says what is wrong.
    """
    with source.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if not head or sniff(head).kind is not Kind.TIFF:
        return False
    try:
        for directory in read_directories(source):
            _walk_values(directory)
    except HeaderError:
        return True
    return True


def _walk_values(directory: Directory) -> None:
    for tag, entry in directory.entries.items():
        small = entry.count * entry.dtype.itemsize <= LARGEST_VALUE_BYTES
        if directory.is_main if tag in BLOCK_TABLES else (small or tag == METADATA):
            directory.numbers(tag)
