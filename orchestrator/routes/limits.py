"""Limits of slots: see who holds and who waits, set a limit by hand, leave it to the workflows again."""

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from core.identity import Role
from orchestrator.deps import context, json_response, parsed
from orchestrator.strict import StrictRoute
from repositories.slots import LimitView

router = APIRouter(prefix="/api/v1/settings/limits", tags=["limits"], route_class=StrictRoute)


class SetLimit(BaseModel):
    """PUT /api/v1/settings/limits/{key}"""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    limit: int


class Limit(BaseModel):
    """One key after the change."""

    limit: LimitView


class Limits(BaseModel):
    """Every key that was ever asked for."""

    limits: list[LimitView]


@router.get("", response_model=Limits)
async def list_limits(request: Request) -> Response:
    """List keys with their limits, holders and lines."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    return json_response(Limits.model_construct(limits=list(await ctx.slots.limits())))


@router.put("/{key:path}", response_model=Limit)
async def set_limit(request: Request, key: str) -> Response:
    """Set a limit; it outlives what workflows say, and whoever fits is granted a slot at once."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.OPERATOR)
    wanted = await parsed(request, SetLimit)
    return json_response(Limit(limit=await ctx.slots.set_limit(key, wanted.limit, caller.subject)))


@router.delete("/{key:path}", response_model=Limit)
async def unset_limit(request: Request, key: str) -> Response:
    """Let the next job that asks say what the limit is."""
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.OPERATOR)
    return json_response(Limit(limit=await ctx.slots.set_limit(key, None, caller.subject)))
