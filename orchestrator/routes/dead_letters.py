"""Messages that nobody could use, and what operators do with them."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from core.identity import Role
from core.models.engine import DeadLetter
from orchestrator.deps import Context, context, json_response, optional
from orchestrator.strict import StrictRoute

router = APIRouter(prefix="/api/v1/dead-letters", tags=["dead letters"], route_class=StrictRoute)

DeadLetterId = Annotated[int, Path(ge=0, lt=2**63)]
Settle = Callable[[int, str, str | None], Awaitable[DeadLetter]]


class Why(BaseModel):
    """POST /api/v1/dead-letters/{id}/replay and /discard; the body may be left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: Annotated[str, Field(max_length=1000, pattern=r"^[^\x00]*$")] | None = None


class DeadLetters(BaseModel):
    """Newest first; `next_before` asks for those that follow."""

    dead_letters: list[DeadLetter]
    next_before: int | None


@router.get("", response_model=DeadLetters)
async def list_dead_letters(
    request: Request,
    settled: Annotated[bool, Query(description="Also those that were replayed or discarded.")] = False,
    before: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> Response:
    """List dead letters."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    found = list(await ctx.dead_letters.list(only_open=not settled, before=before, limit=limit))
    more = found[-1].dead_letter_id if len(found) == limit else None
    return json_response(DeadLetters.model_construct(dead_letters=found, next_before=more))


@router.post("/{dead_letter_id}/replay", response_model=DeadLetter)
async def replay(request: Request, dead_letter_id: DeadLetterId) -> Response:
    """Let the task be sent again as the same attempt; `attempt_over` says that there was nothing to send."""
    return await _settle(request, dead_letter_id, lambda ctx: ctx.dead_letters.replay)


@router.post("/{dead_letter_id}/discard", response_model=DeadLetter)
async def discard(request: Request, dead_letter_id: DeadLetterId) -> Response:
    """Put a letter away."""
    return await _settle(request, dead_letter_id, lambda ctx: ctx.dead_letters.discard)


async def _settle(request: Request, dead_letter_id: int, use_case: Callable[[Context], Settle]) -> Response:
    ctx = context(request)
    caller = ctx.auth.mutator(request.headers, Role.OPERATOR)
    why = await optional(request, Why)
    return json_response(await use_case(ctx)(dead_letter_id, caller.subject, why.reason))
