"""Submit: one transaction makes asset, version, request and job, or nothing of them.

The registry row and the source are looked at before; under the asset's lock everything that orders versions is read
again. The same idempotency key with the same body gets the same answer, also when both arrive at once.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from core import lifecycle, ordering, submission
from core.b2b import SubmitAccepted
from core.dossier import ACTIONS
from core.errors import DataError, Forbidden, InvalidTransition, ParameterInvalid
from core.identity import Caller, Role
from core.lifecycle import AssetCommand, Command
from core.models.business import ApprovalState, GeospatialAsset, Platform, ProcessingState
from core.operations import NewJob, Operation, OperationCatalogue, advance_request
from core.ordering import SubmitPlan
from core.outgoing import OutgoingPolicy, check_url
from core.ports import BlobInfo, BlobRef, BlobRepository, Sealer
from core.sources import UrlSource
from core.status_view import PublicUrls
from core.submission import Submission
from repositories.assets import AssetRepository, Revision
from repositories.audit import AuditRepository, NewAuditEntry
from repositories.database import AsyncPool, transaction
from repositories.platforms import PlatformRepository
from repositories.requests import KnownRequest, NewRequest, RequestRepository, WorkingRequest
from services import source_secrets
from services.checked_submit import CheckedSubmit
from services.job_creator import JobCreator
from services.publish import start_jobs
from services.quotas import check_open, take_call

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class UrlSources:
    """What sources behind URLs need."""

    policy: OutgoingPolicy
    sealer: Sealer


class SubmitService:
    """The use case behind every submitting door."""

    def __init__(
        self,
        pool: AsyncPool,
        blobs: BlobRepository,
        jobs: JobCreator,
        urls: PublicUrls,
        outgoing: OutgoingPolicy = OutgoingPolicy(),
        sources: UrlSources | None = None,
        operations: OperationCatalogue = OperationCatalogue({}),
    ) -> None:
        self._pool = pool
        self._blobs = blobs
        self._jobs = jobs
        self._urls = urls
        self._outgoing = outgoing
        self._sources = sources
        self._operations = operations

    async def submit(
        self,
        caller: Caller,
        body: Mapping[str, Any],
        header_key: str | None = None,
        *,
        revises: tuple[int, int] | None = None,
    ) -> SubmitAccepted:
        """Store a submit and start its job; idempotent under an idempotency key.

        Args:
            caller: Who submits.
            body: As it came.
            header_key: The idempotency key of the header.
            revises: Ordinal and revision which this submit must follow, when it says so.

        Raises:
            CallerError: the body, the platform or the order of versions does not allow it.
            DataError: FILE_NOT_FOUND or FILE_EMPTY on `file`.
        """
        platform, wanted = await self._read(caller, body, header_key)
        if wanted.idempotency_key is not None and (known := await self._known(wanted, wanted.idempotency_key)):
            return known
        checked = await self._checked(platform, wanted)
        async with transaction(self._pool) as conn:
            return await self._store(conn, caller, checked, revises)

    async def check(
        self, caller: Caller, body: Mapping[str, Any], header_key: str | None = None
    ) -> tuple[CheckedSubmit, SubmitPlan]:
        """Return what a submit would do, having stored nothing; raises what `submit` raises."""
        platform, wanted = await self._read(caller, body, header_key)
        checked = await self._checked(platform, wanted)
        async with transaction(self._pool) as conn:
            assets = AssetRepository(conn)
            if asset := await assets.lock(wanted.asset_id):
                _check_asset(asset, wanted, caller)
            return checked, _plan(wanted, caller, await assets.lock_versions(wanted.asset_id))

    async def _read(
        self, caller: Caller, body: Mapping[str, Any], header_key: str | None
    ) -> tuple[Platform, Submission]:
        lifecycle.check_role(Command.SUBMIT, caller)
        platform_id = submission.platform_id_of(body)
        async with transaction(self._pool) as conn:
            row = await PlatformRepository(conn).get(platform_id)
            platform = submission.own_platform(row, platform_id, caller)
            await take_call(conn, platform)
        wanted = submission.parse_submission(body, platform, header_key)
        if wanted.request.callback_url is not None:
            check_url(wanted.request.callback_url, self._outgoing, "callback_url")
        if isinstance(wanted.source, UrlSource):
            if self._sources is None:
                raise Forbidden("sources behind URLs are switched off", field="source")
            check_url(wanted.source.url, self._sources.policy, "source", "SOURCE_URL_FORBIDDEN")
        return platform, wanted

    async def _known(self, wanted: Submission, key: str) -> SubmitAccepted | None:
        async with transaction(self._pool) as conn:
            return self._repeat(await RequestRepository(conn).by_key(wanted.request.platform_id, key), wanted)

    def _repeat(self, known: KnownRequest | None, wanted: Submission) -> SubmitAccepted | None:
        """Return the first answer again, or raise IDEMPOTENCY_CONFLICT when the body is another."""
        if known is None:
            return None
        if known.body_hash != wanted.body_hash:
            raise submission.key_conflict(wanted.idempotency_key)
        return self._accepted(known.request_id, known.asset_id, known.version_ordinal, known.revision)

    def _accepted(self, request_id: str, asset_id: str, ordinal: int, revision: int) -> SubmitAccepted:
        return SubmitAccepted(
            request_id=request_id,
            asset_id=asset_id,
            version_ordinal=ordinal,
            revision=revision,
            status_url=self._urls.status(request_id),
        )

    async def _checked(self, platform: Platform, wanted: Submission) -> CheckedSubmit:
        files = tuple([await self._stat(ref) for ref in wanted.files])
        if isinstance(wanted.source, UrlSource):
            return CheckedSubmit(platform, wanted, wanted.source)
        return CheckedSubmit(platform, wanted, files[0] if files else await self._stat(wanted.source), files)

    async def _stat(self, ref: BlobRef) -> BlobInfo:
        try:
            info = await self._blobs.stat(ref)
        except DataError as error:
            raise DataError(
                f"there is no blob {ref}",
                code=error.detail.code,
                field="file",
                value=ref.name,
                remediation="Upload the file first, then submit its blob name.",
            ) from error
        if info.size_bytes == 0:
            raise DataError(
                f"blob {ref} has 0 bytes",
                code="FILE_EMPTY",
                field="file",
                value=ref.name,
                remediation="Send the file again, completely.",
            )
        return info

    async def _store(
        self,
        conn: AsyncConnection[Any],
        caller: Caller,
        checked: CheckedSubmit,
        revises: tuple[int, int] | None,
    ) -> SubmitAccepted:
        wanted, requests = checked.submission, RequestRepository(conn)
        if wanted.idempotency_key is not None:
            await requests.lock_key(wanted.request.platform_id, wanted.idempotency_key)
            known = await requests.by_key(wanted.request.platform_id, wanted.idempotency_key)
            if repeated := self._repeat(known, wanted):
                return repeated
        await check_open(conn, checked.platform)
        plan = await self._lock_and_plan(conn, caller, wanted)
        if revises is not None:
            ordering.check_revises(plan, *revises)
        request_id = f"req_{uuid.uuid4().hex}"
        inputs = self._inputs(checked, plan, request_id)
        operation = self._operations.get(wanted.workflow_id)
        await _write_version(conn, caller, checked, plan, request_id=request_id)
        await requests.insert(_new_request(caller, wanted, plan, request_id, operation, inputs))
        job_ids = await self._start(conn, caller, wanted, request_id, operation, inputs)
        for job_id in job_ids:
            await self.keep_credential(conn, job_id, checked)
        await AssetRepository(conn).store_current_job(wanted.asset_id, plan.version_ordinal, job_ids[-1])
        await AuditRepository(conn).add(_audit_entry(caller, wanted, plan, request_id))
        return self._accepted(request_id, wanted.asset_id, plan.version_ordinal, plan.revision)

    async def _start(
        self,
        conn: AsyncConnection[Any],
        caller: Caller,
        wanted: Submission,
        request_id: str,
        operation: Operation | None,
        inputs: Json,
    ) -> list[str]:
        """Start the one job of a request, or those of the first stage of its operation."""
        start: Sequence[NewJob] = [NewJob("ingest", 1, wanted.workflow_id, inputs)]
        if operation is not None:
            first = advance_request(operation, inputs, [])
            if first.ended is not None:
                raise ParameterInvalid(str(first.errors[0]["message"]), field="workflow_id", value=wanted.workflow_id)
            start = first.start
        request = WorkingRequest(
            request_id=request_id,
            operation=None,
            inputs=None,
            submitted_by=caller.subject,
            priority=wanted.request.priority,
        )
        return await start_jobs(conn, self._jobs, request, start)

    async def keep_credential(self, conn: AsyncConnection[Any], job_id: str, checked: CheckedSubmit) -> None:
        """Keep what the job's source needs to be fetched, in the transaction that makes the job."""
        if isinstance(checked.source, UrlSource) and self._sources is not None:
            await source_secrets.keep(conn, self._sources.sealer, job_id, checked.source)

    async def _lock_and_plan(self, conn: AsyncConnection[Any], caller: Caller, wanted: Submission) -> SubmitPlan:
        assets, request = AssetRepository(conn), wanted.request
        await assets.ensure(wanted.asset_id, request.platform_id, wanted.identity_refs, request.data_type)
        asset = await assets.lock(wanted.asset_id)
        if asset is not None:
            _check_asset(asset, wanted, caller)
        return _plan(wanted, caller, await assets.lock_versions(wanted.asset_id))

    def _inputs(self, checked: CheckedSubmit, plan: SubmitPlan, request_id: str) -> Json:
        """Return the inputs of the ingest workflow."""
        wanted, ordinal = checked.submission, plan.version_ordinal
        return {
            "asset_id": wanted.asset_id,
            "version_ordinal": ordinal,
            "revision": plan.revision,
            "request_id": request_id,
            "platform_id": wanted.request.platform_id,
            "version_label": wanted.version_label,
            **checked.source_inputs(f"fetched/{wanted.asset_id}/{ordinal}/r{plan.revision}"),
            "title": wanted.title,
            "description": wanted.request.description or "",
            "options": wanted.options,
            "collection_id": wanted.collection_id,
            "collection_title": f"{checked.platform.display_name}: {wanted.request.data_type}",
            "item_id": f"{wanted.asset_id}-v{ordinal}",
            "href": self._urls.download(wanted.asset_id, ordinal),
            "output_prefix": f"silver/{wanted.asset_id}/{ordinal}/r{plan.revision}",
            "properties": wanted.properties | {"platform:request_id": request_id},
        }


def _check_asset(asset: GeospatialAsset, wanted: Submission, caller: Caller) -> None:
    if asset.deleted_at is not None:
        raise InvalidTransition(
            f"asset {asset.asset_id} was deleted",
            field="platform_refs",
            value=asset.asset_id,
            remediation="Ask an admin to restore it.",
            next_actions=lifecycle.open_to((AssetCommand.RESTORE,), caller, asset.platform_id),
        )
    if asset.data_type != wanted.request.data_type:
        raise ParameterInvalid(
            f"the asset is {asset.data_type}; expected the same data_type for every version",
            field="data_type",
            value=wanted.request.data_type,
        )


def _plan(wanted: Submission, caller: Caller, versions: list[lifecycle.VersionState]) -> SubmitPlan:
    request = wanted.request
    return ordering.plan_submit(
        wanted.version_label,
        request.previous_version_ordinal,
        versions,
        lambda version: lifecycle.ways_out(version, caller, request.platform_id),
    )


async def _write_version(
    conn: AsyncConnection[Any],
    caller: Caller,
    checked: CheckedSubmit,
    plan: SubmitPlan,
    *,
    request_id: str,
) -> None:
    wanted, assets = checked.submission, AssetRepository(conn)
    revision = Revision(
        asset_id=wanted.asset_id,
        version_ordinal=plan.version_ordinal,
        version_label=wanted.version_label,
        revision=plan.revision,
        title=wanted.title,
        description=wanted.request.description,
        tags=wanted.request.tags,
        access_level=wanted.request.access_level,
        submitted_by=caller.subject,
        request_id=request_id,
        source=checked.source_row(),
    )
    write = assets.insert_version if plan.command is Command.SUBMIT else assets.start_revision
    await write(revision)


def _new_request(
    caller: Caller,
    wanted: Submission,
    plan: SubmitPlan,
    request_id: str,
    operation: Operation | None,
    inputs: Json,
) -> NewRequest:
    return NewRequest(
        request_id=request_id,
        platform_id=wanted.request.platform_id,
        asset_id=wanted.asset_id,
        version_ordinal=plan.version_ordinal,
        revision=plan.revision,
        idempotency_key=wanted.idempotency_key,
        body_hash=wanted.body_hash,
        body=wanted.body,
        submitted_by=caller.subject,
        operation=None if operation is None else operation.model_dump(mode="json"),
        inputs=None if operation is None else inputs,
        progress={} if operation is None else {"stage": 1, "stages": len(operation.stages)},
    )


def _audit_entry(caller: Caller, wanted: Submission, plan: SubmitPlan, request_id: str) -> NewAuditEntry:
    rule, replaced = lifecycle.RULES[plan.command], plan.replaces
    before = None if replaced is None else _states(replaced.approval_state, replaced.processing_state)
    return NewAuditEntry(
        asset_id=wanted.asset_id,
        version_ordinal=plan.version_ordinal,
        action=ACTIONS[plan.command],
        actor=caller.subject,
        actor_role=str(Role.SUBMITTER),
        before=None if before is None else before | {"revision": plan.revision - 1},
        after=_states(rule.approval_to, rule.processing_to)
        | {"version_label": wanted.version_label, "revision": plan.revision, "source": str(wanted.source)},
        request_id=request_id,
        platform_id=wanted.request.platform_id,
    )


def _states(approval: ApprovalState | None, processing: ProcessingState | None) -> Json:
    return {"approval_state": approval, "processing_state": processing}
