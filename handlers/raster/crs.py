"""Rules about coordinate reference systems. Two CRS are equal when PROJ says so, never by name or text.

Everything here works on pyproj objects with x/easting/longitude first; rasterio's CRS is only read as WKT.
"""

import re
from typing import Final

import rasterio.crs
from pyproj import CRS
from pyproj.exceptions import CRSError
from rasterio.errors import CRSError as RasterioCRSError

from core.errors import ParameterInvalid

MAX_CRS_TEXT: Final = 16_384
_AUTHORITY_CODE = re.compile(r"(EPSG|ESRI|IAU_2015|IAU|OGC|IGNF|NKG)(:{1,2}\d*)?:{1,2}[\w.+]{1,32}", re.IGNORECASE)
_URN = re.compile(r"(urn:ogc:def:crs:|https?://www\.opengis\.net/def/crs/)[\w:./+-]{1,100}", re.IGNORECASE)
_WKT = re.compile(
    r"(GEOGCR?S|PROJCR?S|COMPD_CS|COMPOUNDCRS|GEOGRAPHICCRS|PROJECTEDCRS|GEODCRS|BOUNDCRS|LOCAL_CS|ENGCRS)\["
)
_FILES_IN_PROJ = re.compile(r"\binit=|grids=|\bfile=|@", re.IGNORECASE)


def parse_crs(text: str, field: str) -> CRS:
    """Return the CRS a caller named.

    Codes, OGC URNs, WKT, PROJJSON and PROJ strings are taken, but nothing that makes PROJ open a file.

    Raises:
        ParameterInvalid: PROJ does not know it, or it is none of these.
    """
    stripped = text.strip()
    if len(stripped) > MAX_CRS_TEXT or not _is_crs_text(stripped):
        raise ParameterInvalid(
            f"{field} is no coordinate reference system: expected for example EPSG:32633 or WKT",
            field=field,
            value=text[:100],
            remediation="Send an authority code such as EPSG:32633, or WKT2.",
        )
    try:
        return CRS.from_user_input(stripped)
    except CRSError as exc:
        raise ParameterInvalid(f"PROJ does not know {field} {text[:100]!r}", field=field, value=text[:100]) from exc


def _is_crs_text(text: str) -> bool:
    if _AUTHORITY_CODE.fullmatch(text) or _URN.fullmatch(text):
        return True
    by_definition = _WKT.match(text) or text.startswith(("{", "+proj="))
    return bool(by_definition) and not _FILES_IN_PROJ.search(text)


def from_rasterio(crs: rasterio.crs.CRS | None) -> CRS | None:
    """Return rasterio's CRS as pyproj sees it, None when there is none.

    Raises:
        CRSError: PROJ cannot make sense of it.
    """
    if not crs:
        return None
    try:
        text = crs.to_wkt(version="WKT2_2019")
    except RasterioCRSError:
        text = crs.to_wkt()
    return CRS.from_wkt(text)


def to_rasterio(wkt: str) -> rasterio.crs.CRS:
    """Return the CRS as rasterio needs it."""
    return rasterio.crs.CRS.from_wkt(wkt)


def horizontal(crs: CRS) -> CRS:
    """Return the two-dimensional part that bbox, code and tiles use."""
    if crs.is_bound and crs.source_crs is not None:
        return horizontal(crs.source_crs)
    if crs.is_compound:
        return horizontal(crs.sub_crs_list[0])
    return crs.to_2d() if len(crs.axis_info) == 3 and crs.is_geographic else crs


def has_vertical(crs: CRS) -> bool:
    """Return whether heights have a reference of their own."""
    return crs.is_compound and any(part.is_vertical for part in crs.sub_crs_list)


def equal(left: CRS, right: CRS) -> bool:
    """Return whether PROJ takes the two for the same CRS; axis order does not count."""
    return bool(left.equals(right, ignore_axis_order=True))


def code_of(crs: CRS) -> str | None:
    """Return `authority:code` of the horizontal part when PROJ says that code is this very CRS, else None."""
    flat = horizontal(crs)
    found = flat.to_authority(min_confidence=25)
    if found is None:
        return None
    try:
        same = equal(CRS.from_authority(*found), flat)
    except CRSError:
        return None
    return ":".join(found) if same else None


def describe(crs: CRS) -> str:
    """Return the code, or the name when there is no code."""
    return code_of(crs) or f"“{crs.name}”"


def is_on_earth(crs: CRS) -> bool:
    """Return whether coordinates have a place on the ground: geographic or projected, whatever the name says."""
    try:
        flat = horizontal(crs)
    except CRSError:
        return False
    return bool(flat.is_geographic or flat.is_projected)


def wkt2(crs: CRS) -> str:
    """Return the whole CRS as WKT2:2019."""
    return str(crs.to_wkt("WKT2_2019"))
