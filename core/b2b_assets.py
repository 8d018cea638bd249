"""The contract about assets and versions: what reviewers and owners decide, and what they are answered.

Who decides comes from the credential, never from a body.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from core.b2b import MAX_BATCH, ONE_BY_ONE, AssetIdText, Contract, Ordinal, Prose
from core.errors import ErrorDetail
from core.models.business import ApprovalState, Clearance, Exposure, ProcessingState

Reason = Annotated[Prose, Field(min_length=1, pattern=r"\S")]
Revision = Annotated[int, Field(ge=1)]


class ApproveRequest(Contract):
    """Body of approve."""

    clearance_level: Literal["ouo", "public"] | None = Field(
        default=None, description="Required while the asset is uncleared."
    )
    reason: Reason | None = None
    revision: Revision | None = Field(
        default=None, description="The revision that was looked at; another one is 409 VERSION_STALE."
    )


class RejectRequest(Contract):
    """Body of reject."""

    reason: Reason
    revision: Revision | None = None


class RevokeRequest(Contract):
    """Body of revoke."""

    reason: Reason
    revision: Revision | None = None


class SupersedeRequest(Contract):
    """Body of supersede and of restore."""

    reason: Reason | None = None


class DeleteRequest(Contract):
    """Body of DELETE, for clients that give the reason there and not in the query."""

    reason: Reason | None = None


class ClearanceRequest(Contract):
    """Body of clearance: up for reviewers, down for admins, with a reason."""

    clearance_level: Literal["uncleared", "ouo", "public"]
    reason: Reason | None = Field(default=None, description="Required to lower it.")


class ExposureRequest(Contract):
    """Body of PATCH on an asset."""

    exposure: Literal["latest_only", "all_versions"]
    reason: Reason | None = None


class UnpublishRequest(Contract):
    """Body of unpublish; without `dry_run: false` it only tells what would happen."""

    version_ordinal: Ordinal | None = Field(default=None, description="Default: every approved version.")
    reason: Reason | None = Field(default=None, description="Required unless it is a dry run.")
    dry_run: bool = True


class AssetView(Contract):
    """An asset as its platform's people and reviewers read it."""

    asset_id: str
    platform_id: str
    platform_refs: dict[str, str]
    data_type: str
    clearance_state: Clearance
    exposure: Exposure
    latest_approved_version_ordinal: int | None
    version_ordinals: list[int] = Field(description="Versions that the caller may know of.")
    created_at: datetime
    updated_at: datetime


class AssetList(Contract):
    """200 of assets: the newest first."""

    assets: list[AssetView]
    next_after: str | None


class PastDecision(Contract):
    """What somebody decided about a version."""

    revision: int | None = Field(description="The revision that was decided about.")
    decision: str = Field(description="approved, rejected, revoked, unpublished, superseded, deleted or restored.")
    reason: str | None
    decided_by: str | None = Field(description="Null where a reviewer speaks to a platform.")
    role: str
    decided_at: datetime


class VersionView(Contract):
    """A version with its validation report; errors as for partners."""

    asset_id: str
    platform_id: str
    version_ordinal: int
    version_label: str
    revision: int
    title: str
    description: str | None
    tags: list[str]
    access_level: str
    approval_state: ApprovalState
    processing_state: ProcessingState
    rejection_reason: str | None
    content_hash: str | None
    blob_size_bytes: int | None
    stac_item_id: str | None
    stac_collection_id: str | None
    report: dict[str, Any] | None
    findings: list[Any]
    error: ErrorDetail | None
    decisions: list[PastDecision] = Field(
        description="What was decided about it, the oldest first; for its platform's people and reviewers."
    )
    next_actions: list[str] = Field(description="What the caller may do about it.")
    external_url: str | None = Field(
        description="Where the copy of a public version is read by everybody, once and as long as there is one."
    )
    created_at: datetime
    updated_at: datetime


class VersionList(Contract):
    """200 of versions: the oldest first."""

    versions: list[VersionView]


class AssetAddress(Contract):
    """What the alias `/api/platform/unpublish` carries beside its own body."""

    asset_id: AssetIdText


class VersionAddress(AssetAddress):
    """What the aliases `/api/platform/approve|reject` carry beside the decision's own body."""

    version_ordinal: Ordinal


class AddressedApproval(VersionAddress, ApproveRequest):
    """Body of `/api/platform/approve`."""


class AddressedRejection(VersionAddress, RejectRequest):
    """Body of `/api/platform/reject`."""


class AddressedUnpublish(AssetAddress, UnpublishRequest):
    """Body of `/api/platform/unpublish`."""


class ReviewAnswer(Contract):
    """200 of every decision about a version: where it stands now."""

    asset_id: str
    version_ordinal: int
    revision: int
    approval_state: ApprovalState
    deleted: bool
    clearance_state: Clearance
    latest_approved_version_ordinal: int | None


class AssetAnswer(Contract):
    """200 of every decision about an asset: where it stands now."""

    asset_id: str
    clearance_state: Clearance
    exposure: Exposure
    latest_approved_version_ordinal: int | None
    deleted: bool


class UnpublishAnswer(AssetAnswer):
    """200 of unpublish: what was taken down, or would be."""

    dry_run: bool
    version_ordinals: list[int]


class PreviousVersion(Contract):
    """What was approved before the version under review."""

    version_ordinal: int
    version_label: str
    thumbnail_url: str
    report_url: str


class ReviewItem(Contract):
    """One line of the reviewers' inbox."""

    asset_id: str
    version_ordinal: int
    version_label: str
    revision: int
    platform_id: str
    data_type: str
    title: str
    access_level: str = Field(description="What the submitter wishes.")
    submitted_by: str
    state: ApprovalState
    reason: str | None
    pending_since: str
    age_seconds: int
    due_at: str | None
    overdue: bool
    reminded_at: str | None
    thumbnail_url: str
    report_url: str
    verdict: str | None
    finding_count: int
    previous: PreviousVersion | None
    clearance_state: Clearance
    exposure: Exposure
    comment_count: int
    decisions: list[PastDecision] = Field(description="What was decided about it before, the oldest first.")
    next_actions: list[str] = Field(description="What the caller may do about it.")


class ReviewList(Contract):
    """200 of reviews: the oldest first."""

    reviews: list[ReviewItem]
    next_after: str | None


class CommentRequest(Contract):
    """Body of a comment."""

    text: Annotated[Prose, Field(min_length=1, max_length=4000, pattern=r"\S")]


class Comment(Contract):
    """One comment about a version."""

    comment_id: int
    revision: int
    author: str | None = Field(description="Null where a reviewer speaks to a platform.")
    author_role: str
    text: str
    created_at: str


class CommentList(Contract):
    """200 of comments: the oldest first."""

    comments: list[Comment]


class Decision(Contract):
    """One of many decisions."""

    asset_id: AssetIdText
    version_ordinal: Ordinal
    decision: Literal["approve", "reject", "revoke"]
    clearance_level: Literal["ouo", "public"] | None = None
    reason: Reason | None = None
    revision: Revision | None = None


class DecisionsRequest(Contract):
    """Body of decisions on many versions; each is taken or refused on its own."""

    decisions: Annotated[list[Annotated[Decision, ONE_BY_ONE]], Field(min_length=1, max_length=MAX_BATCH)]


class DecisionResult(Contract):
    """What became of one of many decisions: an answer or an error."""

    index: int
    asset_id: str | None = Field(description="Null of what was no decision.")
    version_ordinal: int | None
    answer: ReviewAnswer | None = None
    error: ErrorDetail | None = None


class DecisionsAnswer(Contract):
    """200 of decisions: one result each, in their order."""

    results: list[DecisionResult]
