"""Reads the small files that say more about a raster: world file, .prj, .aux.xml and .msk beside it.

GDAL never sees them as they came. Each is checked here, and what is understood is written anew into one `.aux.xml`.
An `.ovr` is not needed: overviews are always made from the pixels.
"""

import math
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Never
from xml.etree import ElementTree
from xml.parsers import expat

from pyproj import CRS

from core.errors import ParameterInvalid
from handlers.raster import crs as crs_rules
from handlers.raster.findings import Findings
from handlers.raster.limits import LIMITS
from handlers.raster.nodata import as_json, parse_nodata
from handlers.raster.sidecar_names import names_beside, role_of
from handlers.raster.sniff import Kind, sniff
from handlers.raster.tiff import Directory, HeaderError, read_directories

MAX_WORLD_FILE_BYTES: Final = 4096
MAX_PRJ_BYTES: Final = crs_rules.MAX_CRS_TEXT
MAX_AUX_BYTES: Final = 2 << 20
MAX_DEPTH: Final = 16
_KEPT_OF_BAND: Final = frozenset(
    {"Description", "UnitType", "Offset", "Scale", "ColorInterp", "ColorTable", "CategoryNames", "Metadata"}
)
"""Elements of a band that are carried over; statistics and histograms are always made anew."""

Element = ElementTree.Element


@dataclass(frozen=True, slots=True)
class Beside:
    """The sidecars of one raster by what they are; keys of `files`: world, prj, aux, mask, overviews."""

    files: Mapping[str, Path]

    @property
    def used(self) -> tuple[str, ...]:
        """Which of them are read."""
        return tuple(sorted(self.files.keys() - {"overviews"}))


@dataclass(slots=True)
class Said:
    """What sidecars say."""

    crs: CRS | None = None
    transform: tuple[float, ...] | None = None
    """a..f of the affine, as GDAL's GeoTransform orders them: c a b f d e."""
    nodata: tuple[str | None, ...] = ()
    """Of each band, None where it has none; empty when no band has any."""
    document: Element | None = None


def beside(raster: Path) -> Beside:
    """Return the sidecars that lie beside a raster; of several of one role the first by name."""
    found: dict[str, Path] = {}
    for path in sorted(raster.with_name(name) for name in names_beside(raster.name)):
        role = role_of(path.name, raster.name)
        if role and os.path.lexists(path):
            found.setdefault(role, path)
    return Beside(found)


def assemble(source: Path, page: Directory, sidecars: Beside, folder: Path, findings: Findings) -> tuple[Path, Said]:
    """Put a raster and what its sidecars say into a folder of ours, and return the path to open with GDAL.

    Raises:
        Rejected: SIDECAR_INVALID, a sidecar is broken or hostile.
    """
    said = Said()
    if "aux" in sidecars.files:
        _read_aux(sidecars.files["aux"], page.samples, said, findings)
    if "prj" in sidecars.files:
        said.crs = said.crs or _read_prj(sidecars.files["prj"], findings)
    if "world" in sidecars.files:
        world = _read_world_file(sidecars.files["world"], findings)
        said.transform = said.transform or world
    folder.mkdir(exist_ok=True)
    target = folder / "source.tif"
    if source != target:
        target.symlink_to(source)
    if "mask" in sidecars.files:
        _check_mask(sidecars.files["mask"], page, findings)
        shutil.copyfile(sidecars.files["mask"], folder / "source.tif.msk")
    ElementTree.ElementTree(_document(said)).write(folder / "source.tif.aux.xml", encoding="utf-8")
    return target, said


def _read(path: Path, limit: int, findings: Findings) -> bytes:
    if path.is_symlink() or path.stat().st_size > limit:
        _invalid(path, f"it is longer than {limit} bytes", findings)
    return path.read_bytes()


def _read_world_file(path: Path, findings: Findings) -> tuple[float, ...]:
    """Return the GeoTransform; a world file gives the middle of the first pixel (ESRI world file: A D B E C F)."""
    words = _read(path, MAX_WORLD_FILE_BYTES, findings).decode("ascii", "replace").replace(",", ".").split()
    try:
        a, d, b, e, x, y = (float(word) for word in words)
    except ValueError:
        _invalid(path, "expected six numbers", findings)
    if not all(map(math.isfinite, (a, b, d, e, x, y))):
        _invalid(path, "expected six finite numbers", findings)
    return (x - a / 2 - b / 2, a, b, y - d / 2 - e / 2, d, e)


def _read_prj(path: Path, findings: Findings) -> CRS:
    text = _read(path, MAX_PRJ_BYTES, findings).decode("utf-8", "replace").strip()
    try:
        return crs_rules.parse_crs(text, "crs")
    except ParameterInvalid:
        _invalid(path, "it is no coordinate reference system", findings)


def _check_mask(path: Path, page: Directory, findings: Findings) -> None:
    """Accept a mask that is a TIFF as large as the raster and whole."""
    with path.open("rb") as file:
        head = file.read(4096)
    try:
        if not head or sniff(head).kind is not Kind.TIFF:
            raise HeaderError("it is no TIFF")
        mask = read_directories(path)[0]
        if (mask.width, mask.height) != (page.width, page.height) or mask.samples not in (1, page.samples):
            raise HeaderError(f"it has {mask.width} x {mask.height} pixels, the raster {page.width} x {page.height}")
        if not mask.has_mask_flags:
            raise HeaderError("it is no mask as GDAL writes them")
        if mask.bits > 8 or mask.blocks.decoded_bytes(mask) > LIMITS.block_bytes or mask.refers_to_other_files:
            raise HeaderError("it is no mask of one bit or byte a pixel")
        mask.blocks.check_extent(mask)
    except HeaderError as exc:
        _invalid(path, str(exc), findings)


def _read_aux(path: Path, bands: int, said: Said, findings: Findings) -> None:
    content = _read(path, MAX_AUX_BYTES, findings)
    try:
        root = _parsed(content)
    except (expat.ExpatError, ValueError) as exc:
        _invalid(path, str(exc) if isinstance(exc, ValueError) else "it is no well-formed XML", findings)
    if root.tag != "PAMDataset":
        _invalid(path, "it is no PAMDataset", findings)
    said.document = _sanitised(root)
    text = (root.findtext("SRS") or "").strip()
    try:
        said.crs = crs_rules.parse_crs(text, "crs") if text else None
        place = root.findtext("GeoTransform")
        said.transform = _six_numbers(place) if place else None
    except (ParameterInvalid, ValueError):
        _invalid(path, "its SRS or GeoTransform cannot be understood", findings)
    said.nodata = _nodata_of(path, root, bands, findings)


def _nodata_of(path: Path, root: Element, bands: int, findings: Findings) -> tuple[str | None, ...]:
    """Return the nodata text of each band, empty when there is none at all."""
    said: dict[str, str] = {}
    for band in root.iterfind("PAMRasterBand"):
        number, text = band.get("band", "").strip().lstrip("0"), (band.findtext("NoDataValue") or "").strip()
        if not text:
            continue
        if parse_nodata(text) is None:
            _invalid(path, "its NoDataValue is no number", findings)
        if as_json(parse_nodata(said.setdefault(number, text))) != as_json(parse_nodata(text)):
            _invalid(path, f"it has nodata {said[number]} and {text} for one band"[:200], findings)
    numbers = [str(number) for number in range(1, bands + 1)]
    if strange := sorted(said.keys() - set(numbers)):
        _invalid(path, f"it has nodata for band {strange[0][:20]!r}, the raster has {bands} band(s)", findings)
    return tuple(map(said.get, numbers)) if said else ()


def _six_numbers(text: str) -> tuple[float, ...]:
    numbers = tuple(float(word) for word in text.split(","))
    if len(numbers) != 6 or not all(map(math.isfinite, numbers)):
        raise ValueError(text)
    return numbers


def _parsed(content: bytes) -> Element:
    """Return the tree of an XML without any document type: no entities, nothing to fetch, no deep nesting."""
    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate()
    depth = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH}")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def refuse(*_: Any) -> None:
        raise ValueError("it declares a document type")

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.Parse(content, True)
    return builder.close()


def _sanitised(root: Element) -> Element:
    """Return the elements that are carried over: none names a file, none has a domain."""
    clean = ElementTree.Element("PAMDataset")
    clean.extend(_plain(root.iterfind("Metadata")))
    for band in root.iterfind("PAMRasterBand"):
        number = band.get("band", "")
        if not number.isascii() or not number.isdigit():
            continue
        kept = ElementTree.SubElement(clean, "PAMRasterBand", {"band": number})
        kept.extend(_plain(child for child in band if child.tag in _KEPT_OF_BAND))
    return clean


def _plain(elements: Iterable[Element]) -> list[Element]:
    """Return elements of the default metadata domain, without statistics and without what names a file."""
    kept = [element for element in elements if not element.attrib.get("domain") and "format" not in element.attrib]
    for element in kept:
        for item in element.findall("MDI"):
            key = item.get("key", "").upper()
            if key.startswith("STATISTICS_") or "FILE" in key:
                element.remove(item)
    return kept


def _document(said: Said) -> Element:
    document = said.document if said.document is not None else ElementTree.Element("PAMDataset")
    if said.transform is not None:
        ElementTree.SubElement(document, "GeoTransform").text = ", ".join(map(repr, said.transform))
    if said.crs is not None:
        mapping = {"dataAxisToSRSAxisMapping": "2,1"} if said.crs.is_geographic else {}
        ElementTree.SubElement(document, "SRS", mapping).text = crs_rules.wkt2(said.crs)
    return document


def _invalid(path: Path, why: str, findings: Findings) -> Never:
    findings.stop(
        "SIDECAR_INVALID",
        "sidecar",
        f"the sidecar {path.name[-100:]} cannot be used: {why}",
        value=path.name[-100:],
        remediation="Send the raster without it, or with a correct one.",
    )
