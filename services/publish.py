"""What becomes of a version when its job ends, in the transaction that ends the job.

The version points to what the accepted attempts wrote; nothing is published here: the catalogue and the doors wait
for an approval. The job's row is locked by the caller; request and version are locked after it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from psycopg import AsyncConnection
from pydantic import TypeAdapter, ValidationError

from core import lifecycle
from core.errors import CallerError, ErrorDetail, GeodagError, WorkflowError
from core.models.business import ProcessingState, RequestState
from core.models.engine import Job
from core.operations import NewJob, Operation, Progress, RequestJob, advance_request
from core.statuses import JobStatus, check_transition
from repositories.assets import AssetRepository, Outputs, WorkingVersion
from repositories.audit import AuditRepository, NewAuditEntry
from repositories.database import undone_unless_whole
from repositories.requests import LinkedJob, RequestRepository, WorkingRequest
from services import external, source_secrets
from services.job_creator import JobCreator

Json = dict[str, Any]

_ENDS: Final[Mapping[JobStatus, tuple[ProcessingState, RequestState]]] = {
    JobStatus.COMPLETED: (ProcessingState.COMPLETED, RequestState.COMPLETED),
    JobStatus.FAILED: (ProcessingState.FAILED, RequestState.FAILED),
    JobStatus.CANCELLED: (ProcessingState.CANCELLED, RequestState.CANCELLED),
}
_PROCESSING: Final = {state: processing for processing, state in _ENDS.values()}
_OUTPUTS: Final = TypeAdapter(Outputs)
DEFAULT_PRIORITY: Final = 5
_REQUIRED: Final = ("stac_item", "stac_item_id", "stac_collection_id")


class StageNotStarted(GeodagError):
    """A job of a request of several jobs ended where nobody starts the next ones; the transaction rolls back."""

    code = "STAGE_NOT_STARTED"


async def on_job_ended(conn: AsyncConnection[Any], job: Job, jobs: JobCreator | None = None) -> None:
    """Write how a job ended to the version and the request it worked for; other jobs cost no statement.

    A request of several jobs goes on to its next stage here, and ends with the last of them. Idempotent: a version
    whose newest revision belongs to another request, or ended already, is left alone.

    Args:
        conn: The transaction that ends the job.
        job: As it ended, with its outputs.
        jobs: Starts the jobs of a next stage; only requests of several jobs need it.
    """
    await source_secrets.forget(conn, job)
    if external.is_external(job) and jobs is not None:
        await external.on_external_ended(conn, job, jobs)
        return
    if job.correlation_id is None or job.status not in _ENDS:
        return
    request = await RequestRepository(conn).working_request(job.job_id)
    if request is None:
        return
    if request.operation is None:
        await _end_request(conn, request, _alone(job))
        return
    linked = await RequestRepository(conn).jobs_of(request.request_id)
    operation = Operation.model_validate(request.operation)
    progress = advance_request(operation, request.inputs or {}, [_as_ended(one, job) for one in linked])
    if progress.ended is not None:
        await _end_request(conn, request, progress)
    elif progress.start:
        await _start_stage(conn, request, operation, progress.start, jobs)


def _alone(job: Job) -> Progress:
    """Return the end of a request that is one job."""
    _, state = _ENDS[job.status]
    large = _too_large(job) if job.status is JobStatus.COMPLETED else None
    if large is not None:
        return Progress(ended=RequestState.FAILED, errors=(large,), warnings=tuple(job.warnings))
    errors = () if job.error is None or job.status is JobStatus.COMPLETED else (job.error,)
    return Progress(ended=state, outputs=job.outputs or {}, errors=errors, warnings=tuple(job.warnings))


def _too_large(job: Job) -> Json | None:
    if job.outputs is not None or job.outputs_ref is None:
        return None
    return _bad_outputs(f"the outputs have {job.outputs_ref['size_bytes']} bytes, more than a version stores")


def _as_ended(one: LinkedJob, job: Job) -> RequestJob:
    """Return a job as an operation sees it; of the one that ends now the caller knows more than its row."""
    ours = one.job_id == job.job_id
    return RequestJob(
        name=one.name,
        stage=one.stage,
        status=job.status if ours else one.status,
        outputs=job.outputs if ours else one.outputs,
        error=job.error if ours else one.error,
        warnings=job.warnings if ours else one.warnings,
    )


async def _start_stage(
    conn: AsyncConnection[Any],
    request: WorkingRequest,
    operation: Operation,
    start: Sequence[NewJob],
    jobs: JobCreator | None,
) -> None:
    """Start the jobs of the next stage in the transaction that ended the last one before it."""
    if jobs is None:
        raise StageNotStarted(f"request {request.request_id} goes on, and nobody here starts jobs")
    try:
        async with undone_unless_whole(conn):
            job_ids = await start_jobs(conn, jobs, request, start)
    except (CallerError, WorkflowError) as error:
        await _end_request(conn, request, Progress(ended=RequestState.FAILED, errors=(_not_started(error),)))
        return
    version = await AssetRepository(conn).lock_working_version(request.request_id)
    if version is not None:
        await AssetRepository(conn).store_current_job(version.asset_id, version.version_ordinal, job_ids[-1])
    progress = {"stage": start[0].stage, "stages": len(operation.stages)}
    await RequestRepository(conn).store_progress(request.request_id, progress)


async def start_jobs(
    conn: AsyncConnection[Any], jobs: JobCreator, request: WorkingRequest, start: Sequence[NewJob]
) -> list[str]:
    """Create the jobs of a stage and link them to their request; return their ids."""
    job_ids = []
    for one in start:
        job_id = await jobs.create_job(
            conn,
            workflow_id=one.workflow_id,
            inputs=one.inputs,
            priority=request.priority if request.priority is not None else DEFAULT_PRIORITY,
            correlation_id=request.request_id,
            submitted_by=request.submitted_by,
        )
        await RequestRepository(conn).link_job(
            request.request_id, job_id, one.workflow_id, stage=one.stage, name=one.name
        )
        job_ids.append(job_id)
    return job_ids


async def _end_request(conn: AsyncConnection[Any], request: WorkingRequest, progress: Progress) -> None:
    assert progress.ended is not None
    state, errors = progress.ended, list(progress.errors)
    outputs, bad = read_outputs(progress.outputs or {}) if state is RequestState.COMPLETED else (None, None)
    if bad is not None:
        state, errors = RequestState.FAILED, [bad]
    processing, warnings = _PROCESSING[state], [*progress.warnings, *_fixes(outputs)]
    version = await AssetRepository(conn).lock_working_version(request.request_id)
    if version is not None and processing in lifecycle.PROCESSING_TRANSITIONS[version.processing_state]:
        await _end_version(conn, version, processing, outputs, errors[0] if errors else None, warnings)
    await RequestRepository(conn).end(request.request_id, state, errors, warnings)


def read_outputs(declared: Mapping[str, Any]) -> tuple[Outputs | None, Json | None]:
    """Return declared outputs, or the error that stands for outputs a version can not store."""
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


def _not_started(error: GeodagError) -> Json:
    message = f"the next stage could not be started: {error}"
    return ErrorDetail(code="OPERATION_FAILED", message=message, field=error.detail.field).model_dump(mode="json")


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
