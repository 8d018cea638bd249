"""STAC documents that more than one process writes."""

from typing import Any, Final

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
            "spatial": {"bbox": [[-180.0, -90.0, 180.0, 90.0]]},
            "temporal": {"interval": [[None, None]]},
        },
        "links": [],
    }
