"""Validate and dry run: every check of a submit, then the file itself, with nothing stored for the partner."""

from collections.abc import Mapping
from typing import Any, Protocol

from core.b2b import ValidationReport
from core.errors import ErrorDetail, GeodagError, ParameterInvalid, TransientError
from core.identity import Caller
from core.models.engine import Job
from core.ordering import SubmitPlan
from core.payloads import PayloadRef
from core.sources import READ_WHOLE_BYTES, UrlSource
from core.status_view import partner_error
from core.statuses import JobStatus
from core.submission import VALIDATE_WORKFLOWS
from repositories.database import AsyncPool, transaction
from repositories.payloads import PayloadStore
from services.checked_submit import CheckedSubmit
from services.job_creator import JobCreator
from services.source_secrets import SOURCE_INPUT
from services.submit import SubmitService

Json = dict[str, Any]
WAIT_SECONDS = 120.0
LARGEST_REPORT_BYTES = 4 << 20


class JobWaiter(Protocol):
    """Waits for the end of a job."""

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job:
        """Return the job as soon as it is final, or as it is at the time-out."""


class FileRefused(GeodagError):
    """The validation found why the file can not be ingested; carries that error as it is."""

    def __init__(self, detail: ErrorDetail) -> None:
        super().__init__(detail.message, code=detail.code)
        self.detail = detail


class ValidationUnfinished(TransientError):
    """The file was still being read when the caller's time was over."""

    code = "TASK_TIMEOUT"


class ValidateService:
    """Runs the validation workflow of a data type as an ordinary job and waits for it."""

    def __init__(
        self, pool: AsyncPool, submits: SubmitService, jobs: JobCreator, waiter: JobWaiter, payloads: PayloadStore
    ) -> None:
        self._payloads = payloads
        self._pool = pool
        self._submits = submits
        self._jobs = jobs
        self._waiter = waiter

    async def validate(
        self,
        caller: Caller,
        body: Mapping[str, Any],
        timeout_seconds: float = WAIT_SECONDS,
        *,
        header_key: str | None = None,
    ) -> ValidationReport:
        """Return the report of a file that a submit of the same body would take; a key is only looked at.

        Raises:
            CallerError, DataError: what `submit` would raise.
            FileRefused: the file's own error, with its code and remediation.
            ValidationUnfinished: it takes longer than `timeout_seconds`.
        """
        checked, plan = await self._submits.check(caller, body, header_key)
        if checked.files:
            raise ParameterInvalid(
                "several files are compared when they are processed; validate them one by one", field="blob_names"
            )
        async with transaction(self._pool) as conn:
            job_id = await self._jobs.create_job(
                conn,
                workflow_id=VALIDATE_WORKFLOWS[checked.submission.request.data_type],
                inputs={
                    **_source(checked),
                    "options": checked.submission.options,
                },
                priority=checked.submission.request.priority,
                correlation_id=None,
                submitted_by=caller.subject,
            )
            await self._submits.keep_credential(conn, job_id, checked)
        job = await self._waiter.wait_for_end(job_id, timeout_seconds)
        if job.outputs_ref is not None:
            ref = PayloadRef.model_validate(job.outputs_ref)
            job = job.model_copy(update={"outputs": await self._payloads.value(ref, LARGEST_REPORT_BYTES)})
        return _report(checked, plan, job)


def _source(checked: CheckedSubmit) -> Json:
    """Return how the workflow learns of the source; nothing is copied to the zones."""
    if isinstance(checked.source, UrlSource):
        return {SOURCE_INPUT: checked.source.url, "source_file_name": checked.source.file_name}
    size_bytes = checked.source.size_bytes
    return {
        "source": str(checked.source.ref),
        "source_size_bytes": size_bytes,
        "header_only": size_bytes > READ_WHOLE_BYTES,
    }


def _report(checked: CheckedSubmit, plan: SubmitPlan, job: Job) -> ValidationReport:
    match job.status:
        case JobStatus.COMPLETED:
            report = (job.outputs or {}).get("report") or {}
            return ValidationReport(
                asset_id=checked.submission.asset_id,
                version_ordinal=plan.version_ordinal,
                revision=plan.revision,
                verdict=str(report.get("verdict", "accept")),
                report=report,
            )
        case JobStatus.FAILED:
            raise FileRefused(partner_error(job.error or {"code": "INTERNAL", "message": "no reason was recorded"}))
        case JobStatus.CANCELLED:
            raise ValidationUnfinished("the validation was cancelled; try again")
        case _:
            raise ValidationUnfinished("the file is still being read; try again or submit it")
