"""`raster.stac_ensure_collection`: creates the pgstac collection of a platform when it is missing."""

from typing import Any, Final

from core.handlers_catalog import EnsureCollectionParams
from handlers.context import InlineContext, Outcome
from repositories import pgstac

LICENSE: Final = "other"
"""STAC 1.1.0: the terms are not an SPDX licence; partners keep their own."""


async def ensure_collection(ctx: InlineContext, params: EnsureCollectionParams) -> Outcome:
    """Create the collection unless it exists; idempotent, and an existing one stays untouched.

    The transaction holds the attempt's fence, so an attempt that was overtaken writes nothing.
    """
    document = collection_document(params.collection_id, params.title, params.description)
    async with ctx.transaction() as conn:
        created = await pgstac.ensure_collection(conn, document)
    return Outcome({"collection_id": params.collection_id, "created": created})


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
