"""Rows of /api/assets/*."""

from collections.abc import Mapping
from typing import Final

from core import b2b_assets
from core.models.business import ApprovalState
from core.openapi import Operation
from function.contract.parts import (
    ADMINS,
    ASSET,
    OWNERS,
    PAGE,
    PARTNERS,
    PLATFORM,
    READERS,
    REASON,
    REVIEWERS,
    VERSION,
    Route,
    choice,
    order,
    read,
    text,
)

ROUTES: Final[Mapping[str, Route]] = {
    "assets": Route(
        "GET",
        "api/assets",
        read(
            "List assets, the newest first.",
            "assets",
            READERS,
            b2b_assets.AssetList,
            PLATFORM,
            choice("data_type", "raster", "vector"),
            choice("published", "true", "false"),
            text("ref.NAME", "Asks for a ref of the platform; any number of them."),
            *PAGE,
        ),
    ),
    "asset": Route("GET", ASSET, read("Return an asset.", "assets", READERS, b2b_assets.AssetView)),
    "asset_expose": Route(
        "PATCH",
        ASSET,
        order(
            "Say which approved versions have live URLs.",
            REVIEWERS,
            b2b_assets.ExposureRequest,
            b2b_assets.AssetAnswer,
            needed=True,
        ),
    ),
    "asset_delete": Route(
        "DELETE",
        ASSET,
        Operation(
            "Delete an asset softly; the reason stands in the query or in the body.",
            "assets",
            ADMINS,
            b2b_assets.AssetAnswer,
            body=b2b_assets.DeleteRequest,
            body_required=False,
            parameters=(REASON,),
        ),
    ),
    "asset_restore": Route(
        "POST",
        f"{ASSET}/restore",
        order("Bring a deleted asset back.", ADMINS, b2b_assets.SupersedeRequest, b2b_assets.AssetAnswer),
    ),
    "asset_clearance": Route(
        "POST",
        f"{ASSET}/clearance",
        order(
            "Raise the clearance, or as an admin lower it.",
            REVIEWERS,
            b2b_assets.ClearanceRequest,
            b2b_assets.AssetAnswer,
            needed=True,
        ),
    ),
    "asset_unpublish": Route(
        "POST",
        f"{ASSET}/unpublish",
        order(
            "Take approved versions down; a dry run by default.",
            REVIEWERS,
            b2b_assets.UnpublishRequest,
            b2b_assets.UnpublishAnswer,
        ),
    ),
    "asset_versions": Route(
        "GET", f"{ASSET}/versions", read("List versions.", "assets", READERS, b2b_assets.VersionList)
    ),
    "asset_latest": Route(
        "GET",
        f"{ASSET}/versions/latest",
        read("Return the highest approved version.", "assets", READERS, b2b_assets.VersionView),
    ),
    "asset_version": Route("GET", VERSION, read("Return a version.", "assets", READERS, b2b_assets.VersionView)),
    "asset_version_delete": Route(
        "DELETE",
        VERSION,
        Operation(
            "Delete a version that is not approved; a reason stands in the query or in the body.",
            "assets",
            OWNERS,
            b2b_assets.ReviewAnswer,
            body=b2b_assets.DeleteRequest,
            body_required=False,
            parameters=(REASON,),
        ),
    ),
    "asset_version_approve": Route(
        "POST",
        f"{VERSION}/approve",
        order("Approve a version.", REVIEWERS, b2b_assets.ApproveRequest, b2b_assets.ReviewAnswer),
    ),
    "asset_version_reject": Route(
        "POST",
        f"{VERSION}/reject",
        order("Reject a version.", REVIEWERS, b2b_assets.RejectRequest, b2b_assets.ReviewAnswer, needed=True),
    ),
    "asset_version_revoke": Route(
        "POST",
        f"{VERSION}/revoke",
        order("Take an approval back.", REVIEWERS, b2b_assets.RevokeRequest, b2b_assets.ReviewAnswer, needed=True),
    ),
    "asset_version_supersede": Route(
        "POST",
        f"{VERSION}/supersede",
        order("Give an unresolved version up.", OWNERS, b2b_assets.SupersedeRequest, b2b_assets.ReviewAnswer),
    ),
    "asset_version_restore": Route(
        "POST",
        f"{VERSION}/restore",
        order("Bring a deleted version back.", ADMINS, b2b_assets.SupersedeRequest, b2b_assets.ReviewAnswer),
    ),
    "asset_version_comments": Route(
        "POST",
        f"{VERSION}/comments",
        Operation(
            "Say something about a version.",
            "assets",
            f"{PARTNERS}, {REVIEWERS}",
            b2b_assets.Comment,
            201,
            b2b_assets.CommentRequest,
        ),
    ),
    "asset_version_comment_list": Route(
        "GET",
        f"{VERSION}/comments",
        read("Return what was said.", "assets", f"{PARTNERS}, {REVIEWERS}", b2b_assets.CommentList),
    ),
    "reviews": Route(
        "GET",
        "api/assets/reviews",
        read(
            "List what waits for a review, the oldest first.",
            "reviews",
            REVIEWERS,
            b2b_assets.ReviewList,
            choice("state", *ApprovalState),
            PLATFORM,
            choice("data_type", "raster", "vector"),
            choice("overdue", "true", "false"),
            *PAGE,
        ),
    ),
    "review_decisions": Route(
        "POST",
        "api/assets/reviews/decisions",
        order(
            "Decide about up to 100 versions, each on its own.",
            REVIEWERS,
            b2b_assets.DecisionsRequest,
            b2b_assets.DecisionsAnswer,
            needed=True,
            tag="reviews",
        ),
    ),
}
