"""What the small files beside a raster are called. Imports nothing of GDAL, so that the worker may read it."""

from collections.abc import Iterator
from typing import Final

_AFTER_NAME: Final = {".aux.xml": "aux", ".msk": "mask", ".ovr": "overviews"}
"""Ending after the raster's whole name -> what the file is."""
_AFTER_STEM: Final = {
    ".aux.xml": "aux", ".prj": "prj", ".tfw": "world", ".tifw": "world", ".tiffw": "world", ".wld": "world",
}  # fmt: skip
"""Ending in place of the raster's own."""


def role_of(name: str, raster: str) -> str | None:
    """Return what a file is to a raster in the same folder, judged by both names; None when nothing."""
    wanted = name.lower()
    roles = {f"{start}{ending}".lower(): role for start, ending, role in _possible(raster)}
    return roles.get(wanted)


def names_beside(raster: str) -> tuple[str, ...]:
    """Return the names to look for beside a raster: its own as it is written, endings in lower and upper case.

    Overviews are left out: they are always made from the pixels.
    """
    wanted = [(start, ending) for start, ending, role in _possible(raster) if role != "overviews"]
    return tuple(dict.fromkeys(start + form for start, ending in wanted for form in (ending, ending.upper())))


def _possible(raster: str) -> Iterator[tuple[str, str, str]]:
    stem = raster.rpartition(".")[0] or raster
    for start, endings in ((raster, _AFTER_NAME), (stem, _AFTER_STEM)):
        for ending, role in endings.items():
            yield start, ending, role
