"""Assets, their versions, and what reviewers and owners decide about them."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from core.b2b import MAX_ORDINAL, MAX_QUERY_TEXT
from core.b2b_assets import (
    ApproveRequest,
    ClearanceRequest,
    CommentRequest,
    DeleteRequest,
    ExposureRequest,
    Reason,
    RejectRequest,
    RevokeRequest,
    SupersedeRequest,
    UnpublishRequest,
)
from core.errors import ParameterInvalid
from core.identity import Role
from orchestrator.deps import context, contract_body, json_response
from orchestrator.strict import StrictRoute
from services.reviews import COMMENTERS

READERS = (Role.SUBMITTER, Role.READER, Role.REVIEWER, Role.ADMIN)
REVIEWERS = (Role.REVIEWER, Role.ADMIN)
OWNERS = (Role.SUBMITTER, Role.ADMIN)

router = APIRouter(prefix="/api/v1/assets", tags=["assets"], route_class=StrictRoute)

AssetId = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]
Ordinal = Annotated[int, Path(ge=0, le=MAX_ORDINAL)]
Why = Annotated[Reason | None, Query(description="Kept in the audit.", max_length=MAX_QUERY_TEXT)]
VERSION = "/{asset_id}/versions/{ordinal}"


@router.get("/{asset_id}")
async def get_asset(request: Request, asset_id: AssetId) -> Response:
    """Return an asset the caller may know of."""
    ctx = context(request)
    caller = ctx.auth.caller(request.headers, *READERS)
    return json_response(await ctx.business.status.asset(caller, asset_id))


@router.get("/{asset_id}/versions")
async def get_versions(request: Request, asset_id: AssetId) -> Response:
    """Return the versions the caller may know of, oldest first."""
    ctx = context(request)
    caller = ctx.auth.caller(request.headers, *READERS)
    return json_response(await ctx.business.status.versions(caller, asset_id))


@router.patch("/{asset_id}")
async def set_exposure(request: Request, asset_id: AssetId) -> Response:
    """Say which approved versions have live URLs."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, *REVIEWERS)
    body = await contract_body(request, ExposureRequest)
    return json_response(await ctx.business.approvals.set_exposure(caller, asset_id, body))


@router.delete("/{asset_id}")
async def delete_asset(request: Request, asset_id: AssetId, reason: Why = None) -> Response:
    """Delete an asset softly with everything in it."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.ADMIN)
    return json_response(await ctx.business.approvals.delete_asset(caller, asset_id, await _why(request, reason)))


@router.post("/{asset_id}/restore")
async def restore_asset(request: Request, asset_id: AssetId) -> Response:
    """Bring a deleted asset back."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.ADMIN)
    body = await contract_body(request, SupersedeRequest)
    return json_response(await ctx.business.approvals.restore_asset(caller, asset_id, body))


@router.post("/{asset_id}/clearance")
async def set_clearance(request: Request, asset_id: AssetId) -> Response:
    """Raise the clearance of an asset, or as an admin lower it."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, *REVIEWERS)
    body = await contract_body(request, ClearanceRequest)
    return json_response(await ctx.business.approvals.set_clearance(caller, asset_id, body))


@router.post("/{asset_id}/unpublish")
async def unpublish(request: Request, asset_id: AssetId) -> Response:
    """Take approved versions down; a dry run unless the body says otherwise."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, *REVIEWERS)
    body = await contract_body(request, UnpublishRequest)
    return json_response(await ctx.business.approvals.unpublish(caller, asset_id, body))


@router.post(f"{VERSION}/approve")
async def approve(request: Request, asset_id: AssetId, ordinal: Ordinal) -> Response:
    """Approve a version; it is catalogued when this returns."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, *REVIEWERS)
    body = await contract_body(request, ApproveRequest)
    return json_response(await ctx.business.approvals.approve(caller, asset_id, ordinal, body))


@router.post(f"{VERSION}/reject")
async def reject(request: Request, asset_id: AssetId, ordinal: Ordinal) -> Response:
    """Reject a version with a reason."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, *REVIEWERS)
    body = await contract_body(request, RejectRequest)
    return json_response(await ctx.business.approvals.reject(caller, asset_id, ordinal, body))


@router.post(f"{VERSION}/revoke")
async def revoke(request: Request, asset_id: AssetId, ordinal: Ordinal) -> Response:
    """Take an approval back with a reason; every door is closed when this returns."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, *REVIEWERS)
    body = await contract_body(request, RevokeRequest)
    return json_response(await ctx.business.approvals.revoke(caller, asset_id, ordinal, body))


@router.post(f"{VERSION}/supersede")
async def supersede(request: Request, asset_id: AssetId, ordinal: Ordinal) -> Response:
    """Give an unresolved version up, so that the next one may come."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, *OWNERS)
    body = await contract_body(request, SupersedeRequest)
    return json_response(await ctx.business.approvals.supersede(caller, asset_id, ordinal, body))


@router.post(f"{VERSION}/comments", status_code=201)
async def comment(request: Request, asset_id: AssetId, ordinal: Ordinal) -> Response:
    """Say something about a version."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, *COMMENTERS)
    body = await contract_body(request, CommentRequest)
    return json_response(await ctx.business.reviews.comment(caller, asset_id, ordinal, body), 201)


@router.delete(VERSION)
async def delete(request: Request, asset_id: AssetId, ordinal: Ordinal, reason: Why = None) -> Response:
    """Delete a version softly."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, *OWNERS)
    return json_response(await ctx.business.approvals.delete(caller, asset_id, ordinal, await _why(request, reason)))


@router.post(f"{VERSION}/restore")
async def restore(request: Request, asset_id: AssetId, ordinal: Ordinal) -> Response:
    """Bring a deleted version back as it was."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.ADMIN)
    body = await contract_body(request, SupersedeRequest)
    return json_response(await ctx.business.approvals.restore(caller, asset_id, ordinal, body))


async def _why(request: Request, asked: str | None) -> str | None:
    """Return the reason of a DELETE, wherever it stands; raises `ParameterInvalid` when it is given twice."""
    said = (await contract_body(request, DeleteRequest)).reason
    if asked is not None and said is not None and asked != said:
        raise ParameterInvalid("reason: found in the query and another in the body; send one", field="reason")
    return said if asked is None else asked
