"""Builds the STAC 1.1.0 item of a COG. Pure: everything it needs is given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from pyproj import CRS

from handlers.raster import crs as crs_rules
from handlers.stac.footprint import footprint

STAC_VERSION: Final = "1.1.0"
COG_MEDIA_TYPE: Final = "image/tiff; application=geotiff; profile=cloud-optimized"
EXTENSIONS: Final = (
    "https://stac-extensions.github.io/projection/v2.0.0/schema.json",
    "https://stac-extensions.github.io/raster/v2.0.0/schema.json",
    "https://stac-extensions.github.io/file/v2.1.0/schema.json",
    "https://stac-extensions.github.io/processing/v1.2.0/schema.json",
    "https://stac-extensions.github.io/version/v1.2.0/schema.json",
    "https://stac-extensions.github.io/render/v2.0.0/schema.json",
)
_SHA2_256_MULTIHASH: Final = "1220"
"""Code of sha2-256 and its length of 32 bytes (https://multiformats.io/multihash)."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CogFile:
    """The file as it was read back."""

    width: int
    height: int
    transform: Sequence[float]
    crs_wkt: str
    sampling: str
    """area or point."""
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Moment:
    """When the pixels were taken: an instant, an interval, or both."""

    at: datetime | None
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """What a submit says about the dataset."""

    item_id: str
    collection_id: str
    title: str
    description: str | None
    href: str
    """Unsigned URL of the COG."""
    version_label: str
    properties: Mapping[str, Any]
    """`platform:*` traceability; never replaces a field that is derived from the file."""


def build_item(
    file: CogFile,
    facts: Mapping[str, Any],
    render: Mapping[str, Any],
    about: Description,
    moment: Moment,
    software: Json,
) -> Json:
    """Return the item as JSON without NaN.

    Args:
        file: the COG as it was read back.
        facts: `raster` of raster.create_cog: bands, type, steps, findings.
        render: `render` of raster.create_cog.
        about: names, texts and address.
        moment: date and time of the pixels.
        software: name -> version, for the processing extension.
    """
    crs = CRS.from_wkt(file.crs_wkt)
    place = footprint(crs_rules.horizontal(crs), file.transform, file.width, file.height)
    properties = {
        **about.properties,
        **_datetimes(moment),
        "title": about.title,
        **({"description": about.description} if about.description else {}),
        **_projection(file, crs),
        "version": about.version_label,
        "processing:lineage": _lineage(facts),
        "processing:software": software,
        "geodag:raster_type": facts["raster_type"],
        "renders": {"default": _render(render)},
    }
    return {
        "type": "Feature",
        "stac_version": STAC_VERSION,
        "stac_extensions": list(EXTENSIONS),
        "id": about.item_id,
        "collection": about.collection_id,
        "bbox": place.bbox,
        "geometry": place.geometry,
        "properties": properties,
        "links": [_collection_link(about)],
        "assets": {"data": _asset(file, facts, about)},
    }


def as_tiled(item: Json, shape: Sequence[int], transform: Sequence[float], tiles: int) -> Json:
    """Return the item of a raster that is stored as tiles: its file is the overview of the whole.

    Args:
        item: the item of the whole, with the overview as its file.
        shape: height and width of the overview.
        transform: affine a..f of the overview.
        tiles: how many there are.
    """
    overview = item["assets"]["data"] | {
        "roles": ["overview"],
        "proj:shape": list(shape),
        "proj:transform": list(transform),
    }
    render = item["properties"]["renders"]["default"] | {"assets": ["overview"]}
    properties = item["properties"] | {"renders": {"default": render}, "geodag:tile_count": tiles}
    address = urlsplit(overview["href"])
    path = address.path.replace("/download/", "/stac/") + "/tiles"
    link = {"rel": "items", "href": urlunsplit(address._replace(path=path)), "type": "application/geo+json"}
    return item | {"properties": properties, "links": [*item["links"], link], "assets": {"overview": overview}}


def _collection_link(about: Description) -> Json:
    """Return the link that an item with a collection must have; the address lies beside the download door."""
    href = urljoin(about.href, f"../stac/collections/{quote(about.collection_id, safe='')}")
    return {"rel": "collection", "href": href, "type": "application/json"}


def _datetimes(moment: Moment) -> Json:
    found: Json = {"datetime": _rfc3339(moment.at)}
    if moment.start and moment.end:
        found |= {"start_datetime": _rfc3339(moment.start), "end_datetime": _rfc3339(moment.end)}
    return found


def _rfc3339(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")


def _projection(file: CogFile, crs: CRS) -> Json:
    a, b, c, d, e, f = file.transform[:6]
    xs = [c, c + a * file.width + b * file.height]
    ys = [f, f + d * file.width + e * file.height]
    return {
        "proj:code": crs_rules.code_of(crs),
        "proj:wkt2": crs_rules.wkt2(crs),
        "proj:projjson": crs.to_json_dict(),
        "proj:shape": [file.height, file.width],
        "proj:transform": [a, b, c, d, e, f],
        "proj:bbox": [min(xs), min(ys), max(xs), max(ys)],
    }


def _lineage(facts: Mapping[str, Any]) -> str:
    """Return what was done and noticed, as text."""
    steps = [*facts.get("steps", ()), f"type {facts['raster_type']} ({facts['type_evidence']})"]
    notes = [f"{note['code']}: {note['message']}" for note in facts.get("findings", ())]
    return "; ".join([*steps, *notes])


def _render(render: Mapping[str, Any]) -> Json:
    """Return the default rendering with the names of the render extension."""
    names = ("bidx", "rescale", "colormap", "colormap_name", "nodata", "resampling")
    found = {name: render[name] for name in names if render.get(name) is not None}
    return {"title": "Default", "assets": ["data"], **found}


def _asset(file: CogFile, facts: Mapping[str, Any], about: Description) -> Json:
    return {
        "href": about.href,
        "type": COG_MEDIA_TYPE,
        "title": about.title,
        "roles": ["data"],
        "file:size": file.size_bytes,
        "file:checksum": _SHA2_256_MULTIHASH + file.sha256,
        "bands": [_band(place, band, facts, file.sampling) for place, band in enumerate(facts["bands"], 1)],
    }


def _band(place: int, band: Mapping[str, Any], facts: Mapping[str, Any], sampling: str) -> Json:
    """Return one band; statistics are of raw pixel values, scale and offset not applied."""
    statistics = band["statistics"]
    wanted = {
        "minimum": statistics["minimum"],
        "maximum": statistics["maximum"],
        "mean": statistics["mean"],
        "stddev": statistics["stddev"],
        "valid_percent": statistics["valid_percent"],
    }
    described: Json = {
        "name": band["description"] or f"b{place}",
        "data_type": facts["dtype"],
        "nodata": facts["nodata"],
        "unit": band["unit"],
        "statistics": {name: value for name, value in wanted.items() if value is not None},
        "raster:sampling": sampling,
        "raster:scale": band["scale"],
        "raster:offset": band["offset"],
    }
    return {name: value for name, value in described.items() if value is not None}
