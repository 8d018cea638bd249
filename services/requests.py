"""What partners do with their requests beside submitting one: many at once, again, not any more."""

import json
from collections.abc import Mapping
from typing import Any, Final

from core import b2b, ids, lifecycle, submission
from core.b2b import StatusView, SubmitAccepted
from core.b2b_requests import BatchAnswer, BatchRequest, BatchResult, CancelRequest
from core.dag.orders import Kind
from core.errors import (
    Classification,
    Conflict,
    GeodagError,
    InvalidTransition,
    NotFound,
    ParameterInvalid,
    TransientError,
)
from core.identity import Caller, Role
from core.lifecycle import Command
from core.models.business import RequestState
from core.operations import MAX_STAGES
from core.status_view import may_see_request
from repositories.audit import AuditRepository, NewAuditEntry
from repositories.database import AsyncPool, transaction
from repositories.requests import RequestRepository, StoredRequest
from repositories.submit_batches import SubmitBatchRepository
from services.commands import CommandService, Order
from services.status import StatusService
from services.submit import SubmitService

Json = dict[str, Any]
OWNERS: Final = (Role.SUBMITTER, Role.ADMIN)
FIXED: Final = ("platform_id", "platform_refs", "version_label", "data_type")
"""What another revision of a version can not change."""


class RequestService:
    """Batches, resubmits and cancels."""

    def __init__(
        self, pool: AsyncPool, submits: SubmitService, status: StatusService, commands: CommandService
    ) -> None:
        self._pool = pool
        self._submits = submits
        self._status = status
        self._commands = commands

    async def submit_many(self, caller: Caller, body: BatchRequest, header_key: str | None = None) -> BatchAnswer:
        """Submit many, one transaction each; what is refused stops nothing else.

        Under an idempotency key a repeated batch gets the answers it got, refusals too; only what was refused because
        the platform was busy or unavailable is tried again. Once it is unavailable, the rest is not tried.

        Raises:
            ParameterInvalid: the key can be none.
            Conflict: IDEMPOTENCY_CONFLICT, the key was used for another batch.
        """
        lifecycle.check_role(Command.SUBMIT, caller)
        key = submission.idempotency_key(None, header_key)
        settled = await self._settled(caller, key, body)
        results: list[BatchResult] = []
        unavailable: TransientError | None = None
        for index, one in enumerate(body.submits):
            accepted: SubmitAccepted | None = None
            error: GeodagError | None = unavailable
            if (known := settled.get(str(index))) is not None:
                results.append(BatchResult.model_validate_json(json.dumps(known)))
                continue
            if unavailable is None:
                try:
                    if (wrong := b2b.refusal(one)) is not None:
                        raise wrong
                    accepted = await self._submits.submit(caller, _single(one), _item_key(one, key, index))
                except GeodagError as refused:
                    error = refused
                    unavailable = refused if isinstance(refused, TransientError) else None
            detail = None if error is None else error.detail
            results.append(BatchResult(index=index, accepted=accepted, error=detail))
        return await self._settle(caller, key, results)

    async def _settled(self, caller: Caller, key: str | None, body: BatchRequest) -> Json:
        """Return what a batch was answered before, by index."""
        if key is None or caller.platform_id is None:
            return {}
        body_hash = ids.digest([_bare(one) for one in body.submits])
        async with transaction(self._pool) as conn:
            known = await SubmitBatchRepository(conn).claim(caller.platform_id, key, body_hash)
        if known.body_hash != body_hash:
            raise submission.key_conflict(key)
        return known.results

    async def _settle(self, caller: Caller, key: str | None, results: list[BatchResult]) -> BatchAnswer:
        """Keep the results that another call changes nothing about; of two calls at once, the first one's are told."""
        final = {str(one.index): one.model_dump(mode="json") for one in results if _is_final(one)}
        if key is None or caller.platform_id is None or not final:
            return BatchAnswer(results=results)
        async with transaction(self._pool) as conn:
            told = await SubmitBatchRepository(conn).settle(caller.platform_id, key, final)
        known = {index: BatchResult.model_validate_json(json.dumps(one)) for index, one in told.items()}
        return BatchAnswer(results=[known.get(str(one.index), one) for one in results])

    async def resubmit(
        self, caller: Caller, request_id: str, changes: Mapping[str, Any], header_key: str | None = None
    ) -> SubmitAccepted:
        """Submit what was asked for again, with some of it changed, as the next revision of the same version.

        Raises:
            NotFound: there is no such request of the caller's platform.
            ParameterInvalid: a change that would make it another version.
            Conflict: as a submit; VERSION_STALE when the request is not about the newest revision.
        """
        lifecycle.check_role(Command.RESUBMIT, caller)
        known = await self._own(caller, request_id)
        if "dry_run" in changes:
            raise ParameterInvalid("a resubmit has no dry_run; validate takes the whole body", field="dry_run")
        if fixed := [name for name in FIXED if name in changes]:
            raise ParameterInvalid(
                f"{fixed[0]} can not change with a revision; submit a new version instead", field=fixed[0]
            )
        body = {key: value for key, value in known.body.items() if key not in ("idempotency_key", "dry_run")}
        return await self._submits.submit(
            caller, body | dict(changes), header_key, revises=(known.version_ordinal, known.revision)
        )

    async def cancel(self, caller: Caller, request_id: str, body: CancelRequest) -> StatusView:
        """Cancel the work for a request and return where it stands then.

        Raises:
            NotFound: there is no such request of the caller's platform.
            Conflict: it has ended already.
        """
        known = await self._own(caller, request_id)
        if known.state not in (RequestState.ACCEPTED, RequestState.QUEUED, RequestState.PROCESSING):
            raise _ended(known.state)
        async with transaction(self._pool) as conn:
            await AuditRepository(conn).add(_cancel_entry(caller, known, body.reason))
        for _ in range(MAX_STAGES):
            if not await self._cancel_jobs(caller, request_id, body.reason):
                break
        view = await self._status.request(caller, request_id)
        if view.state in (RequestState.COMPLETED, RequestState.FAILED):
            raise _ended(view.state)
        return view

    async def _cancel_jobs(self, caller: Caller, request_id: str, reason: str | None) -> bool:
        """Cancel what is under way; return whether a job ended by itself meanwhile, so that another may have begun."""
        async with transaction(self._pool) as conn:
            jobs = await RequestRepository(conn).open_jobs(request_id)
        overtaken = False
        for job_id in jobs:
            try:
                await self._commands.order(job_id, Order(Kind.CANCEL, caller.subject, reason))
            except Conflict:
                overtaken = True
        return overtaken

    async def _own(self, caller: Caller, request_id: str) -> StoredRequest:
        """Return a request of the caller's own platform, for admins any; another's is as unknown as none."""
        known = None
        if b2b.is_key(request_id):
            async with transaction(self._pool) as conn:
                known = await RequestRepository(conn).stored(request_id)
        if known is None or not may_see_request(caller, known.platform_id) or not caller.has(*OWNERS):
            raise NotFound("there is no such request", field="request_id")
        return known


def _single(one: Mapping[str, Any]) -> Mapping[str, Any]:
    if one.get("dry_run") not in (None, False):
        raise ParameterInvalid("dry_run is for single submits; a batch has none", field="dry_run")
    return one


def _item_key(one: Mapping[str, Any], key: str | None, index: int) -> str | None:
    """Return the key of one submit of a batch: its own, else one of the batch's, which may have any length."""
    return None if key is None or one.get("idempotency_key") is not None else f"batch-{ids.digest([key, index])}"


def _bare(one: object) -> object:
    """Return what a batch's hash covers of an element: no credential of a URL."""
    if (wrong := b2b.refusal(one)) is not None:
        return wrong.detail.model_dump(mode="json")
    if not isinstance(one, dict) or not isinstance(source := one.get("source"), dict):
        return one
    url = source.get("url")
    return {**one, "source": {**source, "url": url.partition("?")[0]}} if isinstance(url, str) else one


def _is_final(one: BatchResult) -> bool:
    return one.error is None or one.error.classification not in (Classification.TRANSIENT, Classification.THROTTLING)


def _ended(state: RequestState) -> InvalidTransition:
    return InvalidTransition(
        f"the request is {state}; there is nothing to cancel", field="request_id", value=str(state)
    )


def _cancel_entry(caller: Caller, known: StoredRequest, reason: str | None) -> NewAuditEntry:
    return NewAuditEntry(
        asset_id=known.asset_id,
        version_ordinal=known.version_ordinal,
        action="cancel_ordered",
        actor=caller.subject,
        actor_role=str(Role.SUBMITTER if caller.has(Role.SUBMITTER) else Role.ADMIN),
        reason=reason,
        before={"request_state": str(known.state)},
        request_id=known.request_id,
        platform_id=known.platform_id,
    )
