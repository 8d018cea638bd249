"""The registry of platforms, for operators and admins."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from core.b2b_platforms import PlatformChange
from orchestrator.deps import context, contract_body, json_response
from orchestrator.strict import StrictRoute
from services.platforms import KEEPERS

router = APIRouter(prefix="/api/v1/platforms", tags=["platforms"], route_class=StrictRoute)


@router.get("")
async def list_platforms(request: Request) -> Response:
    """List every platform with what it may do."""
    ctx = context(request)
    ctx.auth.caller(request.headers, *KEEPERS)
    return json_response(await ctx.business.platforms.all())


@router.patch("/{platform_id}")
async def change_platform(request: Request, platform_id: str) -> Response:
    """Change how much a platform may ask for, switch it on or off."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, *KEEPERS)
    body = await contract_body(request, PlatformChange)
    return json_response(await ctx.business.platforms.change(caller, platform_id, body))
