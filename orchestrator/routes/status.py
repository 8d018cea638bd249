"""Status of a partner's request; the gateway answers the same from its view."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from core.identity import Role
from orchestrator.deps import context, json_response
from orchestrator.strict import StrictRoute

router = APIRouter(prefix="/api/v1/status", tags=["status"], route_class=StrictRoute)


@router.get("/{request_id}")
async def get_status(request: Request, request_id: str) -> Response:
    """Return a request of the caller's platform."""
    ctx = context(request)
    caller = ctx.auth.caller(request.headers, Role.SUBMITTER, Role.REVIEWER, Role.ADMIN)
    view = await ctx.business.status.request(caller, request_id)
    return json_response(view, headers={"Cache-Control": "private, no-store"})
