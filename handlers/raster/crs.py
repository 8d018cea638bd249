"""Rules about coordinate reference systems. Two CRS are equal when PROJ says so, never by name or text.

Everything here works on pyproj objects with x/easting/longitude first; rasterio's CRS is only read as WKT.

pyproj and GDAL each bring a database of PROJ, of different age: EPSG:3067 is a CRS of ETRS89 in one and of EUREF-FIN in
the other. A GeoTIFF means by a code what GDAL's has, so a CRS that states its code is taken from there.
"""

import math
import re
from collections.abc import Sequence
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
        return _as_gdal_has_it(CRS.from_user_input(stripped))
    except CRSError as exc:
        raise ParameterInvalid(f"PROJ does not know {field} {text[:100]!r}", field=field, value=text[:100]) from exc


def _is_crs_text(text: str) -> bool:
    if _AUTHORITY_CODE.fullmatch(text) or _URN.fullmatch(text):
        return True
    by_definition = _WKT.match(text) or text.startswith(("{", "+proj="))
    return bool(by_definition) and not _FILES_IN_PROJ.search(text)


def _as_gdal_has_it(crs: CRS) -> CRS:
    """Return what GDAL's database has under the code that a CRS, or each part of a compound one, states and is."""
    whole = _stated_code(crs)
    codes = [whole] if whole or not crs.is_compound else [_stated_code(part) for part in crs.sub_crs_list]
    known = _in_gdal(codes)
    return crs if known is None or equal(known, crs) else known


def _stated_code(crs: CRS) -> tuple[str, str] | None:
    """Return authority and code that stand in a CRS, None when there are none or they are not this very one."""
    stated = crs.to_json_dict().get("id")
    if stated is None:
        return None
    code = str(stated["authority"]), str(stated["code"])
    try:
        return code if equal(CRS.from_authority(*code), crs) else None
    except CRSError:
        return None


def _in_gdal(codes: Sequence[tuple[str, str] | None]) -> CRS | None:
    """Return the CRS that GDAL's database has under a code, or under EPSG codes of its parts; None without one."""
    named = [code for code in codes if code is not None]
    if len(named) < len(codes) or (len(codes) > 1 and any(authority != "EPSG" for authority, _ in named)):
        return None
    try:
        return from_rasterio(rasterio.crs.CRS.from_user_input(_joined(named)))
    except (CRSError, RasterioCRSError):
        return None


def _joined(codes: Sequence[tuple[str, str]]) -> str:
    return f"{codes[0][0]}:" + "+".join(code for _, code in codes)


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
    """Return the CRS as rasterio needs it.

    A compound one by the codes of its parts, where these are they: by the code of the whole, as WKT has it, GDAL writes
    a GeoTIFF that reads back with another vertical datum (EPSG:7405, 8767 and others).
    """
    crs = CRS.from_wkt(wkt)
    if crs.is_compound:
        codes = [code for part in crs.sub_crs_list if (code := _exact_code(part)) and code[0] == "EPSG"]
        if len(codes) == len(crs.sub_crs_list):
            return rasterio.crs.CRS.from_user_input(_joined(codes))
    return rasterio.crs.CRS.from_wkt(wkt)


def _exact_code(crs: CRS) -> tuple[str, str] | None:
    """Return authority and code when the database of pyproj, or else that of GDAL, says that it is this very CRS."""
    found: tuple[str, str] | None = crs.to_authority(min_confidence=25)
    try:
        if found is not None and equal(CRS.from_authority(*found), crs):
            return found
        found = rasterio.crs.CRS.from_wkt(wkt2(crs)).to_authority(confidence_threshold=25)
    except (CRSError, RasterioCRSError):
        return None
    known = None if found is None else _in_gdal([found])
    return found if known is not None and equal(known, crs) else None


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
    """Return whether PROJ takes the two for the same CRS; axis order does not count.

    PROJ leaves out the order of geographic axes alone when it compares. So a projected CRS with northing first
    (EPSG:3035) is compared part by part with the same one that has easting first, as files have it.
    """
    if left.equals(right, ignore_axis_order=True):
        return True
    if left.is_compound and right.is_compound:
        pairs = list(zip(left.sub_crs_list, right.sub_crs_list, strict=False))
        return len(left.sub_crs_list) == len(right.sub_crs_list) and all(equal(*pair) for pair in pairs)
    return left.is_projected and right.is_projected and _same_projection(left, right)


def _same_projection(left: CRS, right: CRS) -> bool:
    """Return whether base, projection and axes are the same, the axes in any order."""
    base_left, base_right = left.geodetic_crs, right.geodetic_crs
    if base_left is None or base_right is None or _axes(left) != _axes(right):
        return False
    if not base_left.equals(base_right, ignore_axis_order=True):
        return False
    (method_left, found_left), (method_right, found_right) = _projection(left), _projection(right)
    same_names = method_left == method_right and found_left.keys() == found_right.keys()
    return same_names and all(
        math.isclose(found_left[name], found_right[name], rel_tol=1e-12, abs_tol=1e-12) for name in found_left
    )


def _axes(crs: CRS) -> list[tuple[str, float]]:
    return sorted((axis.direction, axis.unit_conversion_factor) for axis in crs.axis_info)


def _projection(crs: CRS) -> tuple[str | None, dict[str, float]]:
    """Return the method and its parameters in metres, radians and ratios."""
    operation = crs.coordinate_operation
    if operation is None:
        return None, {}
    return operation.method_name, {p.name: p.value * p.unit_conversion_factor for p in operation.params}


def code_of(crs: CRS) -> str | None:
    """Return `authority:code` of the horizontal part when PROJ says that code is this very CRS, else None."""
    found = _exact_code(horizontal(crs))
    return None if found is None else ":".join(found)


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
