"""`raster.stac_ensure_collection`: creates the pgstac collection of a platform when it is missing."""

from core.stac import collection_document
from core.stac_params import EnsureCollectionParams
from handlers.context import InlineContext, Outcome
from repositories import pgstac


async def ensure_collection(ctx: InlineContext, params: EnsureCollectionParams) -> Outcome:
    """Create the collection unless it exists; idempotent, and an existing one stays untouched.

    The transaction holds the attempt's fence, so an attempt that was overtaken writes nothing.
    """
    document = collection_document(params.collection_id, params.title, params.description)
    async with ctx.transaction() as conn:
        created = await pgstac.ensure_collection(conn, document)
    return Outcome({"collection_id": params.collection_id, "created": created})
