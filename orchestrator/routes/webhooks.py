"""Webhooks: where platforms are told, the secrets that sign, and every delivery."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response

from core.b2b_platforms import WebhookAddressRequest, WebhookRotation
from core.identity import Role
from orchestrator.deps import context, contract_body, json_response
from orchestrator.strict import StrictRoute

router = APIRouter(prefix="/api/v1/webhooks", tags=["webhooks"], route_class=StrictRoute)


@router.put("/platforms/{platform_id}")
async def set_address(request: Request, platform_id: str) -> Response:
    """Say where a platform is told when a submit names no callback_url; null means nowhere."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.ADMIN)
    wanted = await contract_body(request, WebhookAddressRequest)
    return json_response(await ctx.business.webhooks.set_url(caller, platform_id, wanted))


@router.post("/platforms/{platform_id}/secrets", status_code=201)
async def rotate(request: Request, platform_id: str) -> Response:
    """Make a new signing secret and show it this once; the one before stays valid for a day."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.ADMIN)
    body = await contract_body(request, WebhookRotation)
    made = await ctx.business.webhooks.rotate(caller, platform_id, body.reason)
    return json_response(made, 201, {"Cache-Control": "no-store"})


@router.get("/deliveries")
async def deliveries(
    request: Request,
    platform_id: str | None = None,
    state: Literal["pending", "delivered", "expired"] | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List the newest deliveries with how they went."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR, Role.ADMIN)
    return JSONResponse({"deliveries": await ctx.business.webhooks.deliveries(platform_id, state, limit)})


@router.post("/deliveries/{delivery_id}/replay", status_code=202)
async def replay(request: Request, delivery_id: str) -> Response:
    """Send one again under its own id."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.OPERATOR, Role.ADMIN)
    return JSONResponse(await ctx.business.webhooks.replay(caller, delivery_id), 202)
