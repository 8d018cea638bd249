"""Submits and validations of partners; both credentials are verified here."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from core.b2b import MAX_BODY_BYTES, SubmitAccepted, parse_body
from core.identity import Caller, Role
from orchestrator.deps import Context, context, json_response, read_body
from orchestrator.strict import StrictRoute, key_in, takes_key

KEY = "1 to 255 visible ASCII characters: the same key and body get the same answer."
POLL_AFTER_SECONDS = "2"

router = APIRouter(prefix="/api/v1", tags=["submit"], route_class=StrictRoute)


@router.post("/submit", status_code=202, openapi_extra=takes_key(KEY))
async def submit(request: Request) -> Response:
    """Store a submit and start its ingest; with `dry_run` only validate it."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.SUBMITTER)
    body = parse_body(await read_body(request, MAX_BODY_BYTES))
    key = key_in(request.headers)
    if body.get("dry_run") is True:
        return await _validated(ctx, caller, body, key)
    accepted = await ctx.business.submits.submit(caller, body, key)
    return accepted_response(accepted)


@router.post("/validate", openapi_extra=takes_key("As of the submit; nothing is stored under it."))
async def validate(request: Request) -> Response:
    """Check a submit and read its file; nothing is stored for the partner."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.SUBMITTER)
    body = parse_body(await read_body(request, MAX_BODY_BYTES))
    return await _validated(ctx, caller, body, key_in(request.headers))


def accepted_response(accepted: SubmitAccepted) -> Response:
    """Return the answer to whoever may look at the status from now on."""
    return json_response(accepted, 202, {"Location": accepted.status_url, "Retry-After": POLL_AFTER_SECONDS})


async def _validated(ctx: Context, caller: Caller, body: dict[str, object], key: str | None) -> Response:
    return json_response(await ctx.business.validates.validate(caller, body, header_key=key))
