"""Public versions outside: the jobs that copy them there and take them back, and what the version remembers.

Whatever makes a version public (approval, clearance, restore) starts `adf_export` in its own transaction; whatever ends
that starts `external_withdraw` for the copy the version knows. An export that ends when its version is not public any
more, or was exported by another, or that failed, is withdrawn by the transaction that ends it. Each export has a folder
of its own with one for each attempt, so what a lost attempt left goes too, and never what another export made.
"""

import logging
import uuid
from collections.abc import Mapping
from typing import Any, Final

from psycopg import AsyncConnection

from core.dossier import Dossier, Outcome
from core.lifecycle import AssetState
from core.models.engine import Job
from core.statuses import JobStatus
from repositories.assets import AssetRepository
from repositories.audit import AuditRepository, NewAuditEntry
from repositories.exports import Export, ExportRepository
from services.job_creator import JobCreator

log = logging.getLogger(__name__)

Connection = AsyncConnection[Any]
EXPORT: Final = "adf_export"
WITHDRAW: Final = "external_withdraw"
ACTOR: Final = "orchestrator:external"
"""Who starts these jobs; nobody's key has this subject, so a job made by hand writes nothing to a version."""
PRIORITY: Final = 5


class ExternalJobs:
    """Starts the jobs of the external zone."""

    def __init__(self, jobs: JobCreator) -> None:
        self._jobs = jobs

    async def follow(self, conn: Connection, outcome: Outcome) -> None:
        """Start what a decision needs, in its transaction, which holds the asset's lock and has written the states."""
        before, after, asset = outcome.before.external(), outcome.after.external(), outcome.after.asset
        exports = ExportRepository(conn)
        for known in await exports.of(asset.asset_id, sorted(before ^ after)):
            if known.version_ordinal in after:
                await self._export(conn, known)
            elif known.external_blob_path is not None:
                await exports.forget(asset.asset_id, known.version_ordinal)
                await self.withdraw(conn, known.asset_id, known.version_ordinal, _folder(known.external_blob_path))

    async def _export(self, conn: Connection, known: Export) -> None:
        if known.blob_path is None or known.blob_size_bytes is None or known.is_tiled:
            return
        folder = f"external/{known.asset_id}/{known.version_ordinal}/r{known.revision}-{uuid.uuid4().hex}"
        await self._start(
            conn,
            EXPORT,
            {
                "asset_id": known.asset_id,
                "version_ordinal": known.version_ordinal,
                "revision": known.revision,
                "blob_path": known.blob_path,
                "size_bytes": known.blob_size_bytes,
                "output_prefix": folder,
            },
        )

    async def withdraw(self, conn: Connection, asset_id: str, ordinal: int, folder: str) -> None:
        """Start the end of one export: what any of its attempts left goes."""
        await self._start(conn, WITHDRAW, {"asset_id": asset_id, "version_ordinal": ordinal, "folder": folder})

    async def _start(self, conn: Connection, workflow_id: str, inputs: Mapping[str, Any]) -> None:
        await self._jobs.create_job(
            conn,
            workflow_id=workflow_id,
            inputs=inputs,
            priority=PRIORITY,
            correlation_id=None,
            submitted_by=ACTOR,
        )


def _folder(external_blob_path: str) -> str:
    """Return the folder of the export that a copy belongs to: container, asset, version, export."""
    return "/".join(external_blob_path.split("/")[:4])


def is_external(job: Job) -> bool:
    """Return whether a job is one of these."""
    return job.workflow_id in (EXPORT, WITHDRAW) and job.submitted_by == ACTOR


async def on_external_ended(conn: Connection, job: Job, jobs: JobCreator) -> None:
    """Write to the version where its copy lies, or take the copy back; in the transaction that ends the job."""
    asset_id, ordinal = str(job.input_params["asset_id"]), int(job.input_params["version_ordinal"])
    if job.status is not JobStatus.COMPLETED:
        await _record(conn, job, f"{job.workflow_id}_{job.status.lower()}", None)
        if job.workflow_id == EXPORT:
            await ExternalJobs(jobs).withdraw(conn, asset_id, ordinal, str(job.input_params["output_prefix"]))
        return
    if job.workflow_id == WITHDRAW:
        await _record(conn, job, "withdrawn", {"external_blob_path": None})
        return
    path, run_id = str((job.outputs or {})["external_blob_path"]), str((job.outputs or {})["adf_run_id"])
    wanted = await _is_wanted(conn, asset_id, ordinal)
    (known,) = await ExportRepository(conn).of(asset_id, [ordinal])
    if not wanted or known.revision != job.input_params["revision"] or known.external_blob_path is not None:
        await ExternalJobs(jobs).withdraw(conn, asset_id, ordinal, _folder(path))
        return
    await ExportRepository(conn).remember(asset_id, ordinal, path, run_id)
    await _record(conn, job, "exported", {"external_blob_path": path, "adf_run_id": run_id})


async def _is_wanted(conn: Connection, asset_id: str, ordinal: int) -> bool:
    """Lock the asset and return whether a version of it belongs outside."""
    assets = AssetRepository(conn)
    asset = await assets.lock(asset_id)
    if asset is None:
        return False
    return ordinal in Dossier(AssetState.of(asset), tuple(await assets.lock_versions(asset_id))).external()


async def _record(conn: Connection, job: Job, action: str, after: Mapping[str, Any] | None) -> None:
    reason = None if job.error is None else str(job.error.get("code"))
    await AuditRepository(conn).add(
        NewAuditEntry(
            asset_id=str(job.input_params["asset_id"]),
            version_ordinal=int(job.input_params["version_ordinal"]),
            action=action,
            actor="orchestrator",
            actor_role="system",
            reason=reason,
            after=after,
        )
    )
