"""Limits of slots: see who holds and who waits, set a limit by hand, leave it to the workflows again.

A key holds whatever the data hold that it is made of. One that a path would bend stands in the query of `by-key`.
"""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from core.identity import Role
from orchestrator.deps import context, json_response, optional, parsed
from orchestrator.strict import StrictRoute, documented
from repositories.database import transaction
from repositories.slots import LimitView, SlotView
from services.slots import check_key

router = APIRouter(prefix="/api/v1/settings/limits", tags=["limits"], route_class=StrictRoute)

IN_PATH, IN_QUERY = (
    {"parameters": [documented("key", place, {"type": "string"}, "Key of the slots.")]} for place in ("path", "query")
)


Reason = Annotated[
    Annotated[str, Field(max_length=1000, pattern=r"^[^\x00]*$")] | None, Field(description="Kept in the audit.")
]


class SetLimit(BaseModel):
    """PUT /api/v1/settings/limits/{key}"""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    limit: int
    reason: Reason = None


class UnsetLimit(BaseModel):
    """DELETE /api/v1/settings/limits/{key}; the body may be left out."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    reason: Reason = None


class Limit(BaseModel):
    """One key after the change."""

    limit: LimitView


class Limits(BaseModel):
    """Every key that somebody asked for or set; one that is not set, and that nobody uses for an hour, is forgotten."""

    limits: list[LimitView]


class LimitOfKey(BaseModel):
    """One key with at most 100 of those who hold it and of those who wait; the counts tell of the rest."""

    limit: LimitView
    holders: list[SlotView] = Field(description="The oldest first.")
    line: list[SlotView] = Field(description="In the order in which slots are granted.")


def _key(request: Request) -> str:
    """Return the key that a call means; one without any is refused as one that can be none."""
    return str(request.path_params.get("key", request.query_params.get("key", "")))


@router.get("", response_model=Limits)
async def list_limits(request: Request) -> Response:
    """List keys with their limits, and how many hold and wait."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    return json_response(Limits.model_construct(limits=list(await ctx.slots.limits())))


@router.get("/{key:path}", response_model=LimitOfKey, openapi_extra=IN_PATH)
@router.get("/by-key", response_model=LimitOfKey, openapi_extra=IN_QUERY)
async def get_limit(request: Request) -> Response:
    """Show one key with who holds it and who waits for it."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    found = await ctx.slots.of_key(_key(request))
    view = LimitOfKey.model_construct(limit=found.limit, holders=list(found.holders), line=list(found.line))
    return json_response(view)


@router.put("/{key:path}", response_model=Limit, openapi_extra=IN_PATH)
@router.put("/by-key", response_model=Limit, openapi_extra=IN_QUERY)
async def set_limit(request: Request) -> Response:
    """Set a limit; it outlives what workflows say, and whoever fits is granted a slot at once."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.OPERATOR)
    wanted = await parsed(request, SetLimit)
    async with transaction(ctx.pool) as conn:
        await check_key(conn, ctx.shelf, key := _key(request))
    return json_response(Limit(limit=await ctx.slots.set_limit(key, wanted.limit, caller.subject, wanted.reason)))


@router.delete("/{key:path}", response_model=Limit, openapi_extra=IN_PATH)
@router.delete("/by-key", response_model=Limit, openapi_extra=IN_QUERY)
async def unset_limit(request: Request) -> Response:
    """Let the next job that asks say what the limit is."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.OPERATOR)
    wanted = await optional(request, UnsetLimit)
    return json_response(Limit(limit=await ctx.slots.set_limit(_key(request), None, caller.subject, wanted.reason)))
