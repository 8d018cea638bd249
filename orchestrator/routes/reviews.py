"""Reviewers' decisions on many versions at once; the inbox itself is read by the gateway from its view."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from core.b2b_assets import DecisionsRequest
from core.identity import Role
from orchestrator.deps import context, contract_body, json_response
from orchestrator.strict import StrictRoute

router = APIRouter(prefix="/api/v1/reviews", tags=["reviews"], route_class=StrictRoute)


@router.post("/decisions")
async def decide(request: Request) -> Response:
    """Decide about up to 100 versions; each is taken or refused on its own."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.REVIEWER, Role.ADMIN)
    body = await contract_body(request, DecisionsRequest)
    return json_response(await ctx.business.reviews.decide_many(caller, body))
