"""/api/platform/*: what B2B applications call. Mutations are proxied, the status is read from a view."""

import json
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import azure.functions as func

from core import b2b, paging
from core.b2b_assets import AssetAddress, VersionAddress
from core.b2b_requests import RequestList
from core.errors import Forbidden, NotFound, ParameterInvalid
from core.identity import Caller, Role
from core.models.business import RequestState
from core.status_view import AssetFilter, RequestFacts, listed_for, may_see_request, status_view
from function.gateway import Endpoint, Gateway, add, conditional, etag_of, json_answer, segment
from function.polling import poll_until

MAX_WAIT_SECONDS: Final = 60.0
_FINAL: Final = frozenset({RequestState.COMPLETED, RequestState.FAILED, RequestState.CANCELLED})


def build(gateway: Gateway) -> func.Blueprint:
    """Return the blueprint."""
    blueprint = func.Blueprint()
    endpoints = PlatformEndpoints(gateway)
    add(blueprint, gateway, "platform_submit", endpoints.submit)
    add(blueprint, gateway, "platform_validate", endpoints.validate)
    add(blueprint, gateway, "platform_uploads", endpoints.uploads)
    add(blueprint, gateway, "platform_status", endpoints.status)
    add(blueprint, gateway, "platform_requests", endpoints.requests)
    add(blueprint, gateway, "platform_submit_batch", endpoints.submit_batch)
    for what in ("cancel", "resubmit"):
        add(blueprint, gateway, f"platform_{what}", endpoints.of_request(what))
    add(blueprint, gateway, "platform_approve", endpoints.approve)
    add(blueprint, gateway, "platform_reject", endpoints.reject)
    add(blueprint, gateway, "platform_unpublish", endpoints.unpublish)
    add(blueprint, gateway, "webhook_address", endpoints.of_webhooks(""))
    add(blueprint, gateway, "webhook_secret", endpoints.of_webhooks("/secrets"))
    return blueprint


class PlatformEndpoints:
    """The endpoints of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def submit(self, req: func.HttpRequest) -> func.HttpResponse:
        """Proxy a submit."""
        await self._gateway.auth.caller(req.headers)
        return await self._gateway.proxy(req, "/api/v1/submit")

    async def validate(self, req: func.HttpRequest) -> func.HttpResponse:
        """Proxy a validation."""
        await self._gateway.auth.caller(req.headers)
        return await self._gateway.proxy(req, "/api/v1/validate")

    async def uploads(self, req: func.HttpRequest) -> func.HttpResponse:
        """Proxy the wish for an upload address."""
        await self._gateway.auth.caller(req.headers)
        return await self._gateway.proxy(req, "/api/v1/uploads")

    async def submit_batch(self, req: func.HttpRequest) -> func.HttpResponse:
        """Proxy many submits."""
        await self._gateway.auth.caller(req.headers)
        return await self._gateway.proxy(req, "/api/v1/requests/batch")

    def of_request(self, what: str) -> Endpoint:
        """Return the endpoint that proxies one order about a request."""

        async def order(req: func.HttpRequest) -> func.HttpResponse:
            await self._gateway.auth.caller(req.headers)
            return await self._gateway.proxy(req, f"/api/v1/requests/{segment(req.route_params['request_id'])}/{what}")

        return order

    def of_webhooks(self, what: str) -> Endpoint:
        """Return the endpoint that proxies one order about how a platform is told."""

        async def order(req: func.HttpRequest) -> func.HttpResponse:
            await self._gateway.auth.caller(req.headers)
            platform_id = segment(req.route_params["platform_id"])
            return await self._gateway.proxy(req, f"/api/v1/webhooks/platforms/{platform_id}{what}")

        return order

    async def requests(self, req: func.HttpRequest) -> func.HttpResponse:
        """Answer with the requests of the caller's platform, for reviewers of all, the newest first."""
        caller = await self._gateway.auth.caller(req.headers)
        if not caller.has(Role.SUBMITTER, Role.REVIEWER, Role.ADMIN):
            raise Forbidden("requests are for submitters, reviewers and admins", field="role")
        limit = paging.read_limit(req.params.get("limit"))
        wanted = listed_for(caller, AssetFilter(platform_id=paging.read_text("platform_id", req.params)))
        state = paging.read_one_of("state", req.params, [str(one) for one in RequestState])
        after = paging.read_cursor("requests", req.params.get("after"), datetime, str)
        asset_id = paging.read_text("asset_id", req.params)
        rows = (
            []
            if wanted is None
            else await self._gateway.queries.requests(
                platform_id=wanted.platform_id,
                state=None if state is None else RequestState(state),
                asset_id=asset_id,
                after=after,
                limit=limit + 1,
            )
        )
        page = paging.page("requests", rows, limit, lambda row: (row.created_at, row.request_id))
        views = [status_view(facts, caller, self._gateway.urls) for facts in page.rows]
        return json_answer(req, RequestList(requests=views, next_after=page.next_after))

    async def approve(self, req: func.HttpRequest) -> func.HttpResponse:
        """Proxy an approval whose version stands in the body."""
        return await self._decide(req, "approve")

    async def reject(self, req: func.HttpRequest) -> func.HttpResponse:
        """Proxy a rejection whose version stands in the body."""
        return await self._decide(req, "reject")

    async def unpublish(self, req: func.HttpRequest) -> func.HttpResponse:
        """Proxy an unpublish whose asset stands in the body."""
        where, rest = await self._address(req, AssetAddress)
        return await self._gateway.proxy(req, f"/api/v1/assets/{where.asset_id}/unpublish", body=rest)

    async def _decide(self, req: func.HttpRequest, decision: str) -> func.HttpResponse:
        where, rest = await self._address(req, VersionAddress)
        path = f"/api/v1/assets/{where.asset_id}/versions/{where.version_ordinal}/{decision}"
        return await self._gateway.proxy(req, path, body=rest)

    async def _address(self, req: func.HttpRequest, model: type[b2b.M]) -> tuple[b2b.M, bytes]:
        """Return what a body is about, and the rest of it."""
        await self._gateway.auth.caller(req.headers)
        body = b2b.parse_body(req.get_body())
        where = b2b.parse(model, {k: v for k, v in body.items() if k in model.model_fields})
        rest = {k: v for k, v in body.items() if k not in model.model_fields}
        return where, json.dumps(rest).encode()

    async def status(self, req: func.HttpRequest) -> func.HttpResponse:
        """Answer with a request's status; `?wait=` holds the answer until it changes or is final.

        What a change is measured against is If-None-Match, or else the state at the start.
        """
        caller = await self._gateway.auth.caller(req.headers)
        request_id = req.route_params["request_id"]
        wait = wait_seconds(req.params)
        known = req.headers.get("If-None-Match")
        first = await self._status(caller, request_id)
        baseline = known or etag_of(first[1])

        async def changed() -> tuple[RequestFacts, bytes] | None:
            found = await self._status(caller, request_id)
            return found if found[0].state in _FINAL or etag_of(found[1]) != baseline else None

        if wait > 0 and first[0].state not in _FINAL and etag_of(first[1]) == baseline:
            first = await poll_until(changed, time.monotonic() + wait) or first
        return conditional(req, first[1])

    async def _status(self, caller: Caller, request_id: str) -> tuple[RequestFacts, bytes]:
        facts = await self._gateway.queries.request(request_id)
        if facts is None or not may_see_request(caller, facts.platform_id):
            raise NotFound("there is no such request", field="request_id", value=segment(request_id)[:64])
        view = status_view(facts, caller, self._gateway.urls)
        return facts, view.model_dump_json().encode()


def wait_seconds(params: Mapping[str, str]) -> float:
    """Return how long `?wait=` asks to hold the answer.

    Raises:
        ParameterInvalid: it is no whole number of seconds from 0 to 60.
    """
    text = params.get("wait", "0")
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= MAX_WAIT_SECONDS):
        raise ParameterInvalid(
            f"wait is {text[:20]!r}; expected 0 to {MAX_WAIT_SECONDS:.0f} seconds", field="wait", value=text[:20]
        )
    return float(text)
