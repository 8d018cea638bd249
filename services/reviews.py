"""Reviewers at work: comments, decisions on many versions, reminders of what waits too long."""

import logging

from core import lifecycle
from core.access import Audience, audiences
from core.b2b import refusal
from core.b2b_assets import (
    ApproveRequest,
    Comment,
    CommentRequest,
    Decision,
    DecisionResult,
    DecisionsAnswer,
    DecisionsRequest,
    RejectRequest,
    ReviewAnswer,
    RevokeRequest,
)
from core.dossier import Dossier
from core.errors import GeodagError, NotFound, ParameterInvalid, TransientError
from core.identity import Caller, Role
from core.lifecycle import Command
from core.review_view import CommentRow, comment_views
from repositories.audit import AuditRepository, NewAuditEntry
from repositories.database import AsyncPool, transaction
from repositories.reviews import ReviewRepository
from services.approvals import ApprovalService
from services.settling import open_dossier

log = logging.getLogger(__name__)

REMIND_EVERY_SECONDS = 24 * 3600.0
REMIND_BATCH = 100
COMMENTERS = (Role.SUBMITTER, Role.REVIEWER, Role.ADMIN)


class ReviewService:
    """What reviewers do beside deciding about one version."""

    def __init__(self, pool: AsyncPool, approvals: ApprovalService) -> None:
        self._pool = pool
        self._approvals = approvals

    async def comment(self, caller: Caller, asset_id: str, ordinal: int, body: CommentRequest) -> Comment:
        """Say something about a version, as its reviewer or as its platform.

        Raises:
            NotFound: there is no such live version, or not for this caller.
        """
        async with transaction(self._pool) as conn:
            dossier, _ = await open_dossier(conn, asset_id, caller)
            role = _speaks_as(caller, dossier)
            version = dossier.version(ordinal)
            if role is None or version.deleted:
                raise NotFound("there is no such version", field="version_ordinal", value=ordinal)
            comment = await ReviewRepository(conn).add_comment(
                asset_id, ordinal, version.revision, author=caller.subject, author_role=str(role), text=body.text
            )
            await AuditRepository(conn).add(
                NewAuditEntry(
                    asset_id=asset_id,
                    version_ordinal=ordinal,
                    action="commented",
                    actor=caller.subject,
                    actor_role=str(role),
                    after={"comment_id": comment.comment_id, "revision": version.revision},
                )
            )
        row = CommentRow(
            comment_id=comment.comment_id,
            revision=comment.revision,
            author=comment.author,
            author_role=comment.author_role,
            text=comment.text,
            created_at=comment.created_at,
        )
        return comment_views([row], caller)[0]

    async def decide_many(self, caller: Caller, body: DecisionsRequest) -> DecisionsAnswer:
        """Decide about many versions, one transaction each; what is refused stops nothing else.

        When the platform itself is unavailable, the rest is not tried and says so.
        """
        lifecycle.check_role(Command.APPROVE, caller)
        results: list[DecisionResult] = []
        unavailable: TransientError | None = None
        for index, one in enumerate(body.decisions):
            answer: ReviewAnswer | None = None
            wrong = refusal(one)
            error: GeodagError | None = unavailable
            if unavailable is None:
                try:
                    if wrong is not None:
                        raise wrong
                    answer = await self._decide(caller, one)
                except GeodagError as refused:
                    error = refused
                    unavailable = refused if isinstance(refused, TransientError) else None
            results.append(
                DecisionResult(
                    index=index,
                    asset_id=None if wrong else one.asset_id,
                    version_ordinal=None if wrong else one.version_ordinal,
                    answer=answer,
                    error=None if error is None else error.detail,
                )
            )
        return DecisionsAnswer(results=results)

    async def _decide(self, caller: Caller, one: Decision) -> ReviewAnswer:
        where = (caller, one.asset_id, one.version_ordinal)
        if one.clearance_level is not None and one.decision != "approve":
            raise ParameterInvalid(f"{one.decision} gives no clearance", field="clearance_level")
        match one.decision:
            case "approve":
                approval = ApproveRequest(clearance_level=one.clearance_level, reason=one.reason, revision=one.revision)
                return await self._approvals.approve(*where, approval)
            case "reject":
                lifecycle.check_reason(Command.REJECT, one.reason)
                return await self._approvals.reject(
                    *where, RejectRequest(reason=one.reason or "", revision=one.revision)
                )
            case "revoke":
                lifecycle.check_reason(Command.REVOKE, one.reason)
                return await self._approvals.revoke(
                    *where, RevokeRequest(reason=one.reason or "", revision=one.revision)
                )

    async def remind(self) -> int:
        """Remind of reviews that are overdue, of each at most once a day; return how many."""
        async with transaction(self._pool) as conn:
            overdue = await ReviewRepository(conn).remind(REMIND_EVERY_SECONDS, REMIND_BATCH)
            for one in overdue:
                await AuditRepository(conn).add(
                    NewAuditEntry(
                        asset_id=one.asset_id,
                        version_ordinal=one.version_ordinal,
                        action="review_reminded",
                        actor="orchestrator",
                        actor_role="system",
                        after={"review_due_at": one.review_due_at.isoformat()},
                        request_id=one.current_request_id,
                    )
                )
        if overdue:
            log.warning("reviews overdue", extra={"versions": len(overdue)})
        return len(overdue)


def _speaks_as(caller: Caller, dossier: Dossier) -> Role | None:
    """Return the role in which a caller comments; reviewers speak as reviewers wherever they come from."""
    if caller.has(Role.REVIEWER, Role.ADMIN):
        return Role.REVIEWER if caller.has(Role.REVIEWER) else Role.ADMIN
    own = Audience.SUBMITTER in audiences(caller, dossier.asset.platform_id)
    return Role.SUBMITTER if own else None
