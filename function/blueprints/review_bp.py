"""/api/assets/reviews: the reviewers' inbox, read from a view, and decisions on many versions (proxied)."""

from collections.abc import Mapping
from datetime import UTC, datetime

import azure.functions as func

from core import paging
from core.b2b_assets import ReviewList
from core.errors import Forbidden
from core.models.business import ApprovalState
from core.review_view import may_review, review_item
from function.gateway import Gateway, add, json_answer
from function.queries import ReviewFilter


def build(gateway: Gateway) -> func.Blueprint:
    """Return the blueprint."""
    blueprint = func.Blueprint()
    endpoints = ReviewEndpoints(gateway)
    add(blueprint, gateway, "reviews", endpoints.inbox)
    add(blueprint, gateway, "review_decisions", endpoints.decide)
    return blueprint


class ReviewEndpoints:
    """The endpoints of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def inbox(self, req: func.HttpRequest) -> func.HttpResponse:
        """Answer with versions in one state of review, by default those that wait, the oldest first."""
        caller = await self._gateway.auth.caller(req.headers)
        if not may_review(caller):
            raise Forbidden("the inbox needs one of the roles admin, reviewer", field="role")
        now = datetime.now(UTC)
        wanted, limit = review_filter(req.params, now), paging.read_limit(req.params.get("limit"))
        after = paging.read_cursor("reviews", req.params.get("after"), datetime, str, int)
        rows = await self._gateway.queries.reviews(wanted, after=after, limit=limit + 1)
        page = paging.page("reviews", rows, limit, lambda row: row.sort_key)
        decisions = await self._gateway.queries.decisions([row.asset_id for row in page.rows])
        items = [review_item(row, decisions, caller, self._gateway.urls, now) for row in page.rows]
        return json_answer(req, ReviewList(reviews=items, next_after=page.next_after))

    async def decide(self, req: func.HttpRequest) -> func.HttpResponse:
        """Proxy decisions on many versions."""
        await self._gateway.auth.caller(req.headers)
        return await self._gateway.proxy(req, "/api/v1/reviews/decisions")


def review_filter(params: Mapping[str, str], now: datetime) -> ReviewFilter:
    """Return what an inbox is asked for.

    Raises:
        ParameterInvalid: a parameter has a value that is none of its own.
    """
    state = paging.read_one_of("state", params, [str(one) for one in ApprovalState])
    overdue = paging.read_one_of("overdue", params, ("true", "false"))
    return ReviewFilter(
        state=ApprovalState(state or ApprovalState.PENDING_REVIEW),
        platform_id=paging.read_text("platform_id", params),
        data_type=paging.read_one_of("data_type", params, ("raster", "vector")),
        overdue_at=now if overdue == "true" else None,
    )
