"""STAC documents that more than one process writes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

Box = tuple[float, float, float, float]
WORLD: Final[Box] = (-180.0, -90.0, 180.0, 90.0)

TILE_MARK: Final = "-tile-"
"""Stands between the id of an item and the name of one of its tiles in the tile's own id."""
_OF_THE_WHOLE: Final = ("renders", "geodag:tile_count", "proj:wkt2", "proj:projjson", "processing:lineage")
"""Properties of an item that its tiles do not repeat."""

LICENSE: Final = "other"
"""STAC 1.1.0: the terms are not an SPDX licence; partners keep their own."""


def collection_document(collection_id: str, title: str, description: str = "") -> dict[str, Any]:
    """Return an empty STAC 1.1.0 collection that may hold anything anywhere at any time."""
    return {
        "type": "Collection",
        "stac_version": "1.1.0",
        "id": collection_id,
        "title": title,
        "description": description or title,
        "license": LICENSE,
        "extent": {
            "spatial": {"bbox": [list(WORLD)]},
            "temporal": {"interval": [[None, None]]},
        },
        "links": [],
    }


def tile_items(item: Mapping[str, Any], tiles: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the items of the tiles of an item; each tile says its name, place and file."""
    shared = {name: value for name, value in item["properties"].items() if name not in _OF_THE_WHOLE}
    if shared.get("proj:code") is None:
        shared["proj:wkt2"] = item["properties"].get("proj:wkt2")
    whole = item["assets"]["overview"]
    bands = [{name: value for name, value in band.items() if name != "statistics"} for band in whole["bands"]]
    links = [link for link in item["links"] if link["rel"] == "collection"]
    for tile in tiles:
        _, _, width, height = tile["window"]
        a, _, west, _, e, north = tile["transform"]
        place = {
            "proj:shape": [height, width],
            "proj:transform": tile["transform"],
            "proj:bbox": [west, north + e * height, west + a * width, north],
        }
        data = {
            "href": f"{whole['href']}&tile={tile['name']}",
            "type": whole["type"],
            "title": tile.get("title") or f"{whole['title']} {tile['name']}",
            "roles": ["data"],
            "file:size": tile["size_bytes"],
            "file:checksum": f"1220{tile['sha256']}",
            "bands": bands,
        }
        yield {
            **{name: item[name] for name in ("type", "stac_version", "stac_extensions", "collection")},
            "id": f"{item['id']}{TILE_MARK}{tile['name']}",
            "bbox": tile["bbox"],
            "geometry": tile["geometry"],
            "properties": {**shared, **place, "title": data["title"]},
            "links": links,
            "assets": {"data": data},
        }


@dataclass(frozen=True, slots=True)
class ItemExtent:
    """Where and when one item lies. Bounds are west, south, east, north in degrees; west > east crosses 180°."""

    bbox: Sequence[float] | None
    start: str | None
    end: str | None


def extent_of(items: Iterable[ItemExtent]) -> dict[str, Any]:
    """Return the extent that covers items; without a place or a time it is open on that side."""
    boxes: list[Box] = []
    starts: list[str] = []
    ends: list[str] = []
    for item in items:
        if item.bbox is not None:
            boxes.append(_flat(item.bbox))
        if item.start is not None and item.end is not None:
            starts.append(item.start)
            ends.append(item.end)
    interval = [min(starts, key=_moment), max(ends, key=_moment)] if starts else [None, None]
    bbox = list(_cover(boxes)) if boxes else list(WORLD)
    return {"spatial": {"bbox": [bbox]}, "temporal": {"interval": [interval]}}


def _flat(bbox: Sequence[float]) -> Box:
    """Drop the heights of a box of six numbers."""
    west, south, east, north = (bbox[0], bbox[1], bbox[3], bbox[4]) if len(bbox) == 6 else bbox
    return west, south, east, north


def _cover(boxes: Sequence[Box]) -> Box:
    """Return the smallest box around boxes: on the circle of longitudes, all but the widest gap between them."""
    south, north = min(box[1] for box in boxes), max(box[3] for box in boxes)
    if all(box[0] <= box[2] for box in boxes):
        return min(box[0] for box in boxes), south, max(box[2] for box in boxes), north
    arcs = sorted((box[0], box[2] if box[0] <= box[2] else box[2] + 360) for box in boxes)
    reached = max(arcs[0][1], max(end for _, end in arcs) - 360)
    widest, west, east = 0.0, -180.0, 180.0
    for start, end in (*arcs[1:], (arcs[0][0] + 360, arcs[0][1] + 360)):
        if start - reached > widest:
            widest, west, east = start - reached, start, reached
        reached = max(reached, end)
    return _wrapped(west), south, _wrapped(east), north


def _wrapped(longitude: float) -> float:
    return longitude if -180 <= longitude <= 180 else (longitude + 180) % 360 - 180


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
