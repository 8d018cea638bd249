"""Starting a job anew that has ended: what the business has against it, and what it notes.

The job's row is locked; request and version are locked after it, so that an approval at the same moment is either seen
here, or finds a version that is processed again and waits for its end.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from core import lifecycle
from core.errors import ErrorDetail
from core.models.business import ApprovalState, ProcessingState
from core.models.engine import Job
from core.statuses import check_transition
from repositories.assets import AssetRepository
from repositories.audit import AuditRepository, NewAuditEntry
from repositories.requests import RequestRepository
from services.work import Connection

REVIEWED = frozenset({ApprovalState.APPROVED, ApprovalState.REVOKED})
"""What was shown once stays as it was approved."""


Refusal = Callable[[Connection, Job], Awaitable[ErrorDetail | None]]


@dataclass(frozen=True, slots=True)
class Reopening:
    """What the engine asks and tells the business."""

    refusal: Refusal
    """Returns why a job may not be started anew."""
    foreseen: Refusal
    """Returns the same for a dry run, and locks nothing."""
    reopened: Callable[[Connection, Job], Awaitable[None]]
    """Runs in the transaction that starts it, after the engine's own writes."""


async def refuse_approved(conn: Connection, job: Job) -> ErrorDetail | None:
    """Refuse when the version that the job works for was approved, or is gone; other jobs cost no statement."""
    return await _refusal(conn, job, lock=True)


async def foresee_approved(conn: Connection, job: Job) -> ErrorDetail | None:
    """Return what `refuse_approved` would."""
    return await _refusal(conn, job, lock=False)


async def _refusal(conn: Connection, job: Job, *, lock: bool) -> ErrorDetail | None:
    request_id = await _request_of(conn, job)
    version = None if request_id is None else await AssetRepository(conn).requested_version(request_id, lock=lock)
    if version is not None and version.purged:
        return lifecycle.purged(version.version_ordinal).detail
    if version is None or version.approval_state not in REVIEWED:
        return None
    return ErrorDetail(
        code="VERSION_APPROVED",
        message=f"version {version.version_ordinal} of asset {version.asset_id} is {version.approval_state}",
        value=version.approval_state.value,
        remediation="Submit a new version; what was approved is not made again.",
    )


async def process_again(conn: Connection, job: Job) -> None:
    """Let the version and the request that the job works for be under way again, so that nobody decides about them."""
    request_id = await _request_of(conn, job)
    if request_id is None:
        return
    version = await AssetRepository(conn).lock_working_version(request_id)
    if version is not None and version.processing_state is not ProcessingState.QUEUED:
        check_transition(lifecycle.PROCESSING_TRANSITIONS, version.processing_state, ProcessingState.QUEUED)
        await AssetRepository(conn).store_restart(version)
        await AuditRepository(conn).add(
            NewAuditEntry(
                asset_id=version.asset_id,
                version_ordinal=version.version_ordinal,
                action="processing_restarted",
                actor="orchestrator",
                actor_role="system",
                before={"processing_state": str(version.processing_state), "revision": version.revision},
                after={"processing_state": str(ProcessingState.QUEUED), "revision": version.revision},
                request_id=version.current_request_id,
            )
        )
    await RequestRepository(conn).restart(request_id)


async def _request_of(conn: Connection, job: Job) -> str | None:
    return None if job.correlation_id is None else await RequestRepository(conn).request_of_job(job.job_id)


async def _nothing_against(conn: Connection, job: Job) -> None:
    return None


NOBODYS = Reopening(_nothing_against, _nothing_against, _nothing_against)
"""Of jobs that work for nobody."""
OF_VERSIONS = Reopening(refuse_approved, foresee_approved, process_again)
"""Of jobs that work for requests of partners."""
