"""Rows of /api/platform/*."""

from collections.abc import Mapping
from typing import Final

from core import b2b, b2b_assets, b2b_requests
from core.models.business import RequestState
from core.openapi import Operation
from function.contract.parts import (
    IDEMPOTENCY,
    OWNERS,
    PAGE,
    PARTNERS,
    PLATFORM,
    REVIEWERS,
    WAIT,
    Route,
    choice,
    order,
    read,
    text,
)

ROUTES: Final[Mapping[str, Route]] = {
    "platform_submit": Route(
        "POST",
        "api/platform/submit",
        Operation(
            "Submit a file as the next version of an asset; with `dry_run` only validate it (200).",
            "platform",
            PARTNERS,
            b2b.SubmitAccepted,
            202,
            b2b.SubmitRequest,
            parameters=(IDEMPOTENCY,),
            others=((200, b2b.ValidationReport),),
        ),
    ),
    "platform_submit_batch": Route(
        "POST",
        "api/platform/submit/batch",
        Operation(
            "Submit up to 100 at once, each on its own.",
            "platform",
            PARTNERS,
            b2b_requests.BatchAnswer,
            body=b2b_requests.BatchRequest,
            parameters=(IDEMPOTENCY,),
        ),
    ),
    "platform_validate": Route(
        "POST",
        "api/platform/validate",
        Operation(
            "Check a submit and read its file.", "platform", PARTNERS, b2b.ValidationReport, body=b2b.SubmitRequest
        ),
    ),
    "platform_uploads": Route(
        "POST",
        "api/platform/uploads",
        Operation(
            "Ask for an address to upload one file to.",
            "platform",
            PARTNERS,
            b2b.UploadAddress,
            201,
            b2b.UploadRequest,
        ),
    ),
    "platform_status": Route(
        "GET",
        "api/platform/status/{request_id}",
        read("Say where a request stands.", "platform", f"{PARTNERS}, {REVIEWERS}", b2b.StatusView, WAIT),
    ),
    "platform_requests": Route(
        "GET",
        "api/platform/requests",
        read(
            "List requests, the newest first.",
            "platform",
            f"{PARTNERS}, {REVIEWERS}",
            b2b_requests.RequestList,
            choice("state", *RequestState),
            PLATFORM,
            text("asset_id"),
            *PAGE,
        ),
    ),
    "platform_cancel": Route(
        "POST",
        "api/platform/requests/{request_id}/cancel",
        order("Cancel the work for a request.", OWNERS, b2b_requests.CancelRequest, b2b.StatusView, tag="platform"),
    ),
    "platform_resubmit": Route(
        "POST",
        "api/platform/requests/{request_id}/resubmit",
        Operation(
            "Submit again as the next revision, with what the body changes.",
            "platform",
            PARTNERS,
            b2b.SubmitAccepted,
            202,
            body_required=False,
            untyped_body=True,
            parameters=(IDEMPOTENCY,),
        ),
    ),
    "platform_approve": Route(
        "POST",
        "api/platform/approve",
        Operation(
            "Approve, with the version in the body.",
            "platform",
            REVIEWERS,
            b2b_assets.ReviewAnswer,
            body=b2b_assets.AddressedApproval,
        ),
    ),
    "platform_reject": Route(
        "POST",
        "api/platform/reject",
        Operation(
            "Reject, with the version in the body.",
            "platform",
            REVIEWERS,
            b2b_assets.ReviewAnswer,
            body=b2b_assets.AddressedRejection,
        ),
    ),
    "platform_unpublish": Route(
        "POST",
        "api/platform/unpublish",
        Operation(
            "Unpublish, with the asset in the body.",
            "platform",
            REVIEWERS,
            b2b_assets.UnpublishAnswer,
            body=b2b_assets.AddressedUnpublish,
        ),
    ),
}
