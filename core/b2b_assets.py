"""The contract about assets and versions: what reviewers and owners decide, and what they are answered.

Who decides comes from the credential, never from a body.
"""

from typing import Annotated, Literal

from pydantic import Field

from core.b2b import AssetIdText, Contract, Ordinal, Prose
from core.models.business import ApprovalState, Clearance, Exposure

Reason = Annotated[Prose, Field(min_length=1)]
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


class AssetAddress(Contract):
    """What the alias `/api/platform/unpublish` carries beside its own body."""

    asset_id: AssetIdText


class VersionAddress(AssetAddress):
    """What the aliases `/api/platform/approve|reject` carry beside the decision's own body."""

    version_ordinal: Ordinal


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
