"""What becomes of a version when its job ends, in the transaction that ends the job.

The version points to what the accepted attempts wrote; nothing is published here: the catalogue and the doors wait
for an approval. The job's row is locked by the caller; request and version are locked after it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from psycopg import AsyncConnection
from pydantic import TypeAdapter, ValidationError

from core import lifecycle
from core.errors import ErrorDetail
from core.models.business import ProcessingState, RequestState
from core.models.engine import Job
from core.statuses import JobStatus, check_transition
from repositories.assets import AssetRepository, Outputs, WorkingVersion
from repositories.audit import AuditRepository, NewAuditEntry
from repositories.requests import RequestRepository
from services import source_secrets

Json = dict[str, Any]

_ENDS: Final[Mapping[JobStatus, tuple[ProcessingState, RequestState]]] = {
    JobStatus.COMPLETED: (ProcessingState.COMPLETED, RequestState.COMPLETED),
    JobStatus.FAILED: (ProcessingState.FAILED, RequestState.FAILED),
    JobStatus.CANCELLED: (ProcessingState.CANCELLED, RequestState.CANCELLED),
}
_OUTPUTS: Final = TypeAdapter(Outputs)
_REQUIRED: Final = ("stac_item", "stac_item_id", "stac_collection_id")


async def on_job_ended(conn: AsyncConnection[Any], job: Job) -> None:
    """Write how a job ended to the version and the request it worked for; other jobs cost no statement.

    Idempotent: a version whose newest revision belongs to another job, or ended already, is left alone.
    """
    await source_secrets.forget(conn, job)
    if job.correlation_id is None or job.status not in _ENDS:
        return
    request_id = await RequestRepository(conn).request_of_job(job.job_id)
    if request_id is None:
        return
    processing, state = _ENDS[job.status]
    outputs, error = read_outputs(job) if job.status is JobStatus.COMPLETED else (None, job.error)
    if job.status is JobStatus.COMPLETED and outputs is None:
        processing, state = ProcessingState.FAILED, RequestState.FAILED
    warnings = [*job.warnings, *_fixes(outputs)]
    version = await AssetRepository(conn).lock_working_version(job.job_id)
    if version is not None and processing in lifecycle.PROCESSING_TRANSITIONS[version.processing_state]:
        await _end_version(conn, version, processing, outputs, error, warnings)
    await RequestRepository(conn).end(request_id, state, [error] if error else [], warnings)


def read_outputs(job: Job) -> tuple[Outputs | None, Json | None]:
    """Return a completed job's declared outputs, or the error that stands for outputs a version can not store."""
    if job.outputs is None and job.outputs_ref is not None:
        return None, _bad_outputs(f"the outputs have {job.outputs_ref['size_bytes']} bytes, more than a version stores")
    declared = job.outputs or {}
    try:
        outputs = _OUTPUTS.validate_python(declared)
    except ValidationError as error:
        names = sorted({".".join(map(str, e["loc"])) for e in error.errors()})
        return None, _bad_outputs(f"outputs {', '.join(names)} do not fit a version")
    missing = [name for name in _REQUIRED if getattr(outputs, name) is None]
    if outputs.blob_path is None and outputs.table_name is None:
        missing.append("blob_path")
    if missing:
        return None, _bad_outputs(f"outputs {', '.join(missing)} are missing")
    return outputs, None


def _fixes(outputs: Outputs | None) -> list[Json]:
    """Return what the report of a version says was changed, dropped or guessed."""
    report = outputs.report if outputs is not None and outputs.report is not None else {}
    return [finding for finding in report.get("findings", ()) if finding.get("level") == "warning"]


def _bad_outputs(message: str) -> Json:
    return ErrorDetail(code="OUTPUTS_INVALID", message=message, field="outputs").model_dump(mode="json")


async def _end_version(
    conn: AsyncConnection[Any],
    version: WorkingVersion,
    processing: ProcessingState,
    outputs: Outputs | None,
    error: Json | None,
    findings: Sequence[Any],
) -> None:
    check_transition(lifecycle.PROCESSING_TRANSITIONS, version.processing_state, processing)
    assets = AssetRepository(conn)
    if outputs is not None:
        await assets.store_outputs(version, outputs, findings)
    else:
        await assets.store_failure(version, processing, error, findings)
    await AuditRepository(conn).add(
        NewAuditEntry(
            asset_id=version.asset_id,
            version_ordinal=version.version_ordinal,
            action="processed" if outputs is not None else f"processing_{processing}",
            actor="orchestrator",
            actor_role="system",
            reason=None if error is None else str(error.get("code")),
            before={"processing_state": str(version.processing_state), "revision": version.revision},
            after={"processing_state": str(processing), "revision": version.revision},
            request_id=version.current_request_id,
        )
    )
