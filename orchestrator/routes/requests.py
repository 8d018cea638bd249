"""Requests of partners: many at once, again, not any more."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from core.b2b import MAX_BODY_BYTES, parse_body
from core.b2b_requests import BatchRequest, CancelRequest
from core.identity import Role
from orchestrator.deps import context, contract_body, json_response, read_body
from orchestrator.routes.submit import KEY, accepted_response
from orchestrator.strict import StrictRoute, key_in, takes_key

router = APIRouter(prefix="/api/v1/requests", tags=["requests"], route_class=StrictRoute)


@router.post("/batch", openapi_extra=takes_key(KEY))
async def submit_many(request: Request) -> Response:
    """Submit up to 100 at once; each is accepted or refused on its own."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.SUBMITTER)
    body = await contract_body(request, BatchRequest)
    key = key_in(request.headers)
    return json_response(await ctx.business.requests.submit_many(caller, body, key))


@router.post("/{request_id}/resubmit", status_code=202, openapi_extra=takes_key(KEY))
async def resubmit(request: Request, request_id: str) -> Response:
    """Submit what was asked for again, as the next revision of the same version."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.SUBMITTER)
    changes = parse_body(await read_body(request, MAX_BODY_BYTES) or b"{}")
    key = key_in(request.headers)
    return accepted_response(await ctx.business.requests.resubmit(caller, request_id, changes, key))


@router.post("/{request_id}/cancel")
async def cancel(request: Request, request_id: str) -> Response:
    """Cancel the work for a request."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.SUBMITTER, Role.ADMIN)
    body = await contract_body(request, CancelRequest)
    return json_response(await ctx.business.requests.cancel(caller, request_id, body))
