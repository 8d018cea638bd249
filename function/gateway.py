"""What every function of the gateway needs, and the frame around each: caller, errors, logging."""

import hashlib
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import azure.functions as func
from pydantic import BaseModel

from core import paging
from core.b2b import MAX_BODY_BYTES
from core.errors import ErrorDetail, GeodagError, PayloadTooLarge
from core.status_view import PublicUrls
from function.auth import Authenticator
from function.client import OrchestratorClient, Reply
from function.contract.parts import ANYBODY, OPERATORS, Route
from function.contract.table import ROUTES
from function.errors import problem, problem_response
from function.queries import GatewayQueries

log = logging.getLogger(__name__)

Endpoint = Callable[[func.HttpRequest], Awaitable[func.HttpResponse]]


@dataclass(frozen=True, slots=True)
class Gateway:
    """The gateway's parts, built once in `function.app`."""

    auth: Authenticator
    orchestrator: OrchestratorClient
    queries: GatewayQueries
    urls: PublicUrls
    targets: Mapping[str, OrchestratorClient]
    """What the proxy may reach, the orchestrator among it."""
    version: str
    """Of the build."""
    config: Mapping[str, str | int | float | bool | None]
    """Its settings as operators may see them."""

    async def close(self) -> None:
        """Close connections; the local host calls it at its end, Azure just stops the process."""
        for client in (self.orchestrator, *self.targets.values()):
            await client.close()
        await self.queries.close()

    async def proxy(
        self,
        req: func.HttpRequest,
        path: str,
        *,
        body: bytes | None = None,
        query: Mapping[str, str] | None = None,
        client: OrchestratorClient | None = None,
    ) -> func.HttpResponse:
        """Forward a request with both credentials and return the orchestrator's answer as it is.

        Raises:
            PayloadTooLarge: the orchestrator would hang up before the last byte, and nobody would hear why.
        """
        sent = req.get_body() if body is None else body
        if len(sent) > MAX_BODY_BYTES:
            raise PayloadTooLarge(f"the body has {len(sent)} bytes; expected at most {MAX_BODY_BYTES}", field="body")
        reply = await (client or self.orchestrator).forward(
            req.method,
            path,
            headers=req.headers,
            query=urlencode(query or {}),
            body=sent,
        )
        return response_of(reply, urlsplit(req.url).path)


def response_of(reply: Reply, instance: str) -> func.HttpResponse:
    """Return an orchestrator's answer as the function's own; a problem names the path the caller knows."""
    headers = {name: value for name, value in reply.headers.items() if name != "Content-Type"}
    kind = reply.headers.get("Content-Type", "application/octet-stream")
    body = reply.body
    if kind.startswith("application/problem+json"):
        body = json.dumps(json.loads(body) | {"instance": instance}, ensure_ascii=False).encode()
    return func.HttpResponse(body, status_code=reply.status, headers=headers, mimetype=kind.partition(";")[0].strip())


def etag_of(body: bytes) -> str:
    """Return the entity tag of a document."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def json_answer(req: func.HttpRequest, body: BaseModel | Mapping[str, Any]) -> func.HttpResponse:
    """Return a document that is one caller's own, or 304 when he has it already."""
    text = body.model_dump_json() if isinstance(body, BaseModel) else json.dumps(body, ensure_ascii=False)
    return conditional(req, text.encode())


def conditional(req: func.HttpRequest, body: bytes) -> func.HttpResponse:
    """Return a JSON document with its tag, or 304 when If-None-Match names it (RFC 9110 §13.1.2)."""
    headers = {"ETag": etag_of(body), "Cache-Control": "private, no-store"}
    known = (req.headers.get("If-None-Match") or "").split(",")
    if any(tag.strip().removeprefix("W/") in (headers["ETag"], "*") for tag in known):
        return func.HttpResponse(b"", status_code=304, headers=headers)
    return func.HttpResponse(body, headers=headers, mimetype="application/json")


def segment(value: str) -> str:
    """Return a value as one segment of a path: nothing in it can leave its place."""
    return quote(value, safe="")


def add(blueprint: func.Blueprint, gateway: Gateway, name: str, endpoint: Endpoint) -> None:
    """Register an endpoint where the contract's table says; our own credentials guard it, not the host's keys."""
    route = ROUTES[name]

    async def admitted(req: func.HttpRequest) -> func.HttpResponse:
        await _check_query(gateway, route, req)
        return await endpoint(req)

    register(blueprint, name, route.template, (route.method,), admitted)


def register(blueprint: func.Blueprint, name: str, template: str, methods: Sequence[str], endpoint: Endpoint) -> None:
    """Register an endpoint as a function of the host, whose errors are problem details."""
    triggered = blueprint.route(route=template, methods=list(methods), auth_level=func.AuthLevel.ANONYMOUS)(
        _framed(name, endpoint)
    )
    blueprint.function_name(name)(triggered)


async def _check_query(gateway: Gateway, route: Route, req: func.HttpRequest) -> None:
    """Refuse parameters that a route does not have or that stand twice, once it is known who asks.

    Raises:
        ParameterInvalid: there is one, and the caller may know of the route.
    """
    operation = route.operation
    known = [one.name for one in operation.parameters if one.place == "query"]
    prefixes = tuple(name.removesuffix("NAME") for name in known if name.endswith(".NAME"))
    given = [name for name, _ in parse_qsl(urlsplit(req.url).query, keep_blank_values=True)]
    free = operation.any_query
    unknown = [name for name in req.params if not free and name not in known and not name.startswith(prefixes)]
    if operation.who == ANYBODY or (not unknown and len(set(given)) == len(given)):
        return
    if operation.who == OPERATORS:
        await gateway.auth.operator(req.headers)
    else:
        await gateway.auth.caller(req.headers)
    paging.check_names(dict.fromkeys(unknown, ""), known)
    paging.check_once(given)


def _framed(name: str, endpoint: Endpoint) -> Endpoint:
    async def main(req: func.HttpRequest) -> func.HttpResponse:
        instance = urlsplit(req.url).path
        try:
            return await endpoint(req)
        except GeodagError as error:
            log.info("request refused", extra={"function": name, "code": error.detail.code})
            return problem(error, instance)
        except Exception:
            error_id = uuid.uuid4().hex
            log.exception("request failed", extra={"function": name, "error_id": error_id})
            detail = ErrorDetail(code="INTERNAL", message="the gateway failed", error_id=error_id)
            return problem_response(detail, instance)

    main.__name__ = name
    return main
