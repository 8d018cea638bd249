"""Upload addresses, and the address itself for the embedded blob adapter."""

from datetime import UTC, datetime

from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from core.b2b import MAX_BODY_BYTES, parse_body
from core.errors import ParameterInvalid
from core.identity import Role
from orchestrator.deps import context, json_response, read_body
from orchestrator.strict import StrictRoute

router = APIRouter(tags=["uploads"], route_class=StrictRoute)
addresses = APIRouter(tags=["uploads"])
"""Of one file each; what a client adds to the address changes nothing."""


@router.post("/api/v1/uploads", status_code=201)
async def grant(request: Request) -> Response:
    """Return a write-only address for one blob of the caller's platform."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.SUBMITTER)
    body = parse_body(await read_body(request, MAX_BODY_BYTES))
    address = await ctx.business.uploads.grant(caller, body, datetime.now(UTC))
    return json_response(address, 201, {"Cache-Control": "no-store"})


@addresses.put("/uploads/{token}", status_code=201)
async def receive(request: Request, token: str) -> Response:
    """Take the bytes of one blob; the signed token is the whole credential."""
    uploads = context(request).business.uploads
    try:
        info = await uploads.receive(token, request.stream(), datetime.now(UTC), _announced(request))
    except ClientDisconnect as error:
        raise ParameterInvalid("the upload ended before its last byte", field="body") from error
    body = {
        "container_name": info.ref.container,
        "blob_name": info.ref.name,
        "size_bytes": info.size_bytes,
        "etag": info.etag,
    }
    return JSONResponse(body, 201, {"ETag": f'"{info.etag}"'})


def _announced(request: Request) -> int | None:
    """Return how long the body will be, where its sender said."""
    said = request.headers.get("content-length", "")
    return int(said) if said.isdecimal() else None
