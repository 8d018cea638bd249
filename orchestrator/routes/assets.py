"""Assets, their versions, and what reviewers decide about them."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from core.b2b import MAX_BODY_BYTES, MAX_ORDINAL, ApproveRequest, RejectRequest, parse, parse_body
from core.identity import Role
from orchestrator.deps import context, json_response, read_body

READERS = (Role.SUBMITTER, Role.READER, Role.REVIEWER, Role.ADMIN)
REVIEWERS = (Role.REVIEWER, Role.ADMIN)

router = APIRouter(prefix="/api/v1/assets", tags=["assets"])

AssetId = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]
Ordinal = Annotated[int, Path(ge=0, le=MAX_ORDINAL)]


@router.get("/{asset_id}")
async def get_asset(request: Request, asset_id: AssetId) -> dict[str, Any]:
    """Return an asset the caller may know of."""
    ctx = context(request)
    caller = ctx.auth.caller(request.headers, *READERS)
    return await ctx.business.status.asset(caller, asset_id)


@router.get("/{asset_id}/versions")
async def get_versions(request: Request, asset_id: AssetId) -> dict[str, Any]:
    """Return the versions the caller may know of, oldest first."""
    ctx = context(request)
    caller = ctx.auth.caller(request.headers, *READERS)
    return {"versions": await ctx.business.status.versions(caller, asset_id)}


@router.post("/{asset_id}/versions/{ordinal}/approve")
async def approve(request: Request, asset_id: AssetId, ordinal: Ordinal) -> Response:
    """Approve a version; it is catalogued when this returns."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, *REVIEWERS)
    body = parse(ApproveRequest, parse_body(await read_body(request, MAX_BODY_BYTES)))
    return json_response(await ctx.business.approvals.approve(caller, asset_id, ordinal, body))


@router.post("/{asset_id}/versions/{ordinal}/reject")
async def reject(request: Request, asset_id: AssetId, ordinal: Ordinal) -> Response:
    """Reject a version with a reason."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, *REVIEWERS)
    body = parse(RejectRequest, parse_body(await read_body(request, MAX_BODY_BYTES)))
    return json_response(await ctx.business.approvals.reject(caller, asset_id, ordinal, body))
