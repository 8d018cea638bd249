"""`source.fetch`: the first node of an ingest from a URL; everything later reads its copy."""

from core.handlers_catalog import FetchOutput, FetchParams
from core.ports import BlobRef
from handlers.context import InlineContext, Outcome


async def fetch(ctx: InlineContext, params: FetchParams) -> Outcome:
    """Copy the file behind a URL to a blob whose name contains the attempt, and return what it was then.

    Raises:
        DataError: the host has it not, or not for us; it is too large; the URL leads inside.
        TransientError: the host does not answer, or breaks off.
    """
    ref = BlobRef.parse(f"{params.output_prefix}/{ctx.task.task_id}/{params.file_name}")
    copy = await ctx.fetch(params.url, ref)
    return Outcome(FetchOutput(source=str(ref), size_bytes=copy.size_bytes, sha256=copy.sha256, etag=copy.etag))
