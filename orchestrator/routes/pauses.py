"""Pause switches: see them, set one, lift one."""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from core.identity import Role
from orchestrator.deps import context, json_response, optional
from orchestrator.strict import StrictRoute
from repositories.pauses import Switch

router = APIRouter(prefix="/api/v1/settings/pauses", tags=["pauses"], route_class=StrictRoute)


class Turn(BaseModel):
    """PUT and DELETE /api/v1/settings/pauses/{switch}; the body may be left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: Annotated[str, Field(max_length=1000, pattern=r"^[^\x00]*$")] | None = None


class Switches(BaseModel):
    """Every switch that was ever turned."""

    switches: list[Switch]


class Turned(BaseModel):
    """What turning a switch did; `jobs` look now what it means to them."""

    switch: str
    paused: bool
    changed: bool
    jobs: int


@router.get("", response_model=Switches)
async def list_pauses(request: Request) -> Response:
    """List the switches, also those that were lifted."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    return json_response(Switches.model_construct(switches=list(await ctx.pauses.all())))


@router.put("/{switch}", response_model=Turned)
async def pause(request: Request, switch: str) -> Response:
    """Set a switch: `all`, `workflow:<id>` or `queue:<name>`."""
    return await _turn(request, switch, paused=True)


@router.delete("/{switch}", response_model=Turned)
async def lift(request: Request, switch: str) -> Response:
    """Lift a switch; what it held goes on at once."""
    return await _turn(request, switch, paused=False)


async def _turn(request: Request, switch: str, *, paused: bool) -> Response:
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.OPERATOR)
    wanted = await optional(request, Turn)
    done = await ctx.pauses.turn(switch, paused=paused, actor=caller.subject, reason=wanted.reason)
    return json_response(Turned(switch=switch, paused=paused, changed=done.changed, jobs=done.jobs))
