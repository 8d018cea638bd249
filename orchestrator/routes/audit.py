"""The audit, for operators."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, BeforeValidator
from starlette.responses import Response

from core.b2b import MAX_ORDINAL, moment
from core.identity import Role
from core.models.business import AuditEntry
from core.paging import DEFAULT_LIMIT, MAX_LIMIT
from orchestrator.deps import context, json_response
from orchestrator.strict import StrictRoute
from repositories.audit import AuditFilter

router = APIRouter(prefix="/api/v1/audit", tags=["audit"], route_class=StrictRoute)

Text = Annotated[str | None, Query(min_length=1, max_length=256, pattern=r"^[^\x00]*$")]
Time = Annotated[datetime | None, BeforeValidator(moment), Query(description="RFC 3339 with its zone.")]


class AuditList(BaseModel):
    """200 of the audit: the newest first."""

    entries: list[AuditEntry]
    next_after: str | None


@router.get("")
async def find(
    request: Request,
    asset_id: Text = None,
    version_ordinal: Annotated[int | None, Query(ge=0, le=MAX_ORDINAL)] = None,
    platform_id: Text = None,
    actor: Text = None,
    action: Text = None,
    request_id: Text = None,
    since: Time = None,
    until: Time = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
    after: Text = None,
) -> Response:
    """Say who did what, when, why, from what to what."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    wanted = AuditFilter(
        asset_id=asset_id,
        version_ordinal=version_ordinal,
        platform_id=platform_id,
        actor=actor,
        action=action,
        request_id=request_id,
        since=since,
        until=until,
    )
    page = await ctx.business.audit.find(wanted, after=after, limit=limit)
    return json_response(AuditList.model_construct(entries=list(page.rows), next_after=page.next_after))
