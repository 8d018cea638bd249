"""`external.export` and `external.withdraw`: copies of public versions outside, and their end."""

import hashlib
from typing import Final

from core.errors import DataError, TransientError
from core.external_params import ExportOutput, ExportParams, WithdrawOutput, WithdrawParams
from core.ports import BlobRef, ExportState
from handlers.context import InlineContext, Outcome

POLL_SECONDS: Final = 5.0
STARTED: Final = "started"
ENDED: Final = "ended"


async def export(ctx: InlineContext, params: ExportParams) -> Outcome:
    """Copy a file to the external zone under a name that contains the attempt which began it, and check its size.

    A run is begun once and followed by its id: the attempt that takes over goes on waiting for it. A run that failed is
    forgotten, so the next attempt begins another.

    Raises:
        TransientError: the run failed or cannot be looked at.
        DataError: EXPORT_INCOMPLETE, when what arrived has another size.
    """
    saved = ctx.checkpoint.load()
    if saved is not None and saved.phase == STARTED:
        run_id, target = str(saved.state["run_id"]), BlobRef.parse(str(saved.state["target"]))
    else:
        source = BlobRef.parse(params.blob_path)
        # Everybody sees the name, and a task's id tells of jobs and nodes.
        attempt = hashlib.sha256(ctx.task.task_id.encode()).hexdigest()[:16]
        target = BlobRef.parse(f"{params.output_prefix}/{attempt}/{source.name.rpartition('/')[2]}")
        run_id = await ctx.external.start(source, target, ctx.task.task_id)
        ctx.checkpoint.save(STARTED, {"run_id": run_id, "target": str(target)})
    while (run := await ctx.external.look(run_id)).state is ExportState.RUNNING:
        ctx.progress(0, None, "the export runs")
        await ctx.sleep(POLL_SECONDS)
    ctx.checkpoint.save(ENDED, {"run_id": run_id})
    if run.state is ExportState.FAILED:
        raise TransientError(f"export run {run_id} failed: {run.message}", code="EXPORT_FAILED")
    size = await ctx.external.size_bytes(target)
    if size != params.size_bytes:
        raise DataError(
            f"{target} has {size} bytes; expected {params.size_bytes}", code="EXPORT_INCOMPLETE", field="blob_path"
        )
    return Outcome(ExportOutput(external_blob_path=str(target), run_id=run_id, size_bytes=size))


async def withdraw(ctx: InlineContext, params: WithdrawParams) -> Outcome:
    """Delete what every attempt of an export left; nothing there is fine."""
    return Outcome(WithdrawOutput(removed=await ctx.external.withdraw(BlobRef.parse(params.folder))))
