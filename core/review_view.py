"""What reviewers are shown: versions that wait, with age, report and predecessor; and what was said about a version."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic.dataclasses import dataclass as checked

from core import lifecycle
from core.b2b_assets import Comment, PreviousVersion, ReviewItem
from core.decisions import DecisionRow, decision_views
from core.identity import Caller, Role
from core.models.business import ApprovalState, Clearance, Exposure, ProcessingState
from core.status_view import PublicUrls


@checked(frozen=True, slots=True, kw_only=True)
class ReviewRow:
    """One finished version, as `dagapi.find_reviews` shows it."""

    asset_id: str
    version_ordinal: int
    version_label: str
    revision: int
    title: str
    access_level: str
    submitted_by: str
    approval_state: ApprovalState
    rejection_reason: str | None
    processed_at: datetime
    review_due_at: datetime | None
    reminded_at: datetime | None
    verdict: str | None
    finding_count: int
    platform_id: str
    data_type: str
    clearance_state: Clearance
    exposure: Exposure
    previous_ordinal: int | None
    previous_label: str | None
    comment_count: int

    @property
    def sort_key(self) -> tuple[datetime, str, int]:
        """Oldest first."""
        return self.processed_at, self.asset_id, self.version_ordinal


@checked(frozen=True, slots=True, kw_only=True)
class CommentRow:
    """One comment, as `dagapi.comments` shows it."""

    comment_id: int
    revision: int
    author: str
    author_role: str
    text: str
    created_at: datetime


def may_review(caller: Caller) -> bool:
    """Return whether a caller has an inbox."""
    return caller.has(Role.REVIEWER, Role.ADMIN)


def review_item(
    row: ReviewRow, decisions: Sequence[DecisionRow], caller: Caller, urls: PublicUrls, now: datetime
) -> ReviewItem:
    """Return a line of the inbox; `decisions` are those about the assets of a page."""
    pending = row.approval_state is ApprovalState.PENDING_REVIEW
    doors = urls.services(row.asset_id, row.version_ordinal)
    actions = lifecycle.next_actions(row.approval_state, ProcessingState.COMPLETED)
    return ReviewItem(
        asset_id=row.asset_id,
        version_ordinal=row.version_ordinal,
        version_label=row.version_label,
        revision=row.revision,
        platform_id=row.platform_id,
        data_type=row.data_type,
        title=row.title,
        access_level=row.access_level,
        submitted_by=row.submitted_by,
        state=row.approval_state,
        reason=row.rejection_reason,
        pending_since=row.processed_at.isoformat(),
        age_seconds=max(0, int((now - row.processed_at).total_seconds())),
        due_at=None if row.review_due_at is None else row.review_due_at.isoformat(),
        overdue=pending and row.review_due_at is not None and row.review_due_at <= now,
        reminded_at=None if row.reminded_at is None else row.reminded_at.isoformat(),
        thumbnail_url=doors["preview"],
        report_url=urls.version(row.asset_id, row.version_ordinal),
        verdict=row.verdict,
        finding_count=row.finding_count,
        previous=_previous(row, urls),
        clearance_state=row.clearance_state,
        exposure=row.exposure,
        comment_count=row.comment_count,
        decisions=decision_views([d for d in decisions if d.asset_id == row.asset_id], row.version_ordinal, caller),
        next_actions=list(lifecycle.open_to(actions, caller, row.platform_id, row.submitted_by)),
    )


def comment_views(rows: Sequence[CommentRow], caller: Caller) -> list[Comment]:
    """Return comments; to a platform's people reviewers speak as reviewers, without their names."""
    inside = may_review(caller)
    return [
        Comment(
            comment_id=row.comment_id,
            revision=row.revision,
            author=row.author if inside or row.author_role == Role.SUBMITTER else None,
            author_role=row.author_role,
            text=row.text,
            created_at=row.created_at.isoformat(),
        )
        for row in rows
    ]


def _previous(row: ReviewRow, urls: PublicUrls) -> PreviousVersion | None:
    if row.previous_ordinal is None or row.previous_label is None:
        return None
    doors: dict[str, Any] = urls.services(row.asset_id, row.previous_ordinal)
    return PreviousVersion(
        version_ordinal=row.previous_ordinal,
        version_label=row.previous_label,
        thumbnail_url=doors["preview"],
        report_url=urls.version(row.asset_id, row.previous_ordinal),
    )
