"""A local Azure Functions host: the same app, served by uvicorn as the real host would serve it.

What it keeps: `host.json`'s route prefix, route templates and their constraints, auth levels by `x-functions-key`,
404 (not 405) for a wrong method and for HEAD on a GET function, reserved routes refused at start, synchronous
functions in a thread pool, one `HttpRequest` per call. `python -m function.local_host` runs the gateway.
"""

import asyncio
import hmac
import importlib.util
import inspect
import json
import logging
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import azure.functions as func
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from core.errors import GeodagError
from function.routing import RouteRefused, Template, compile_template
from function.settings import GatewaySettings
from repositories.logs import setup_logging

log = logging.getLogger(__name__)

DEFAULT_PREFIX: Final = "api"
APP_FOLDER: Final = Path(__file__).resolve().parents[1]
"""Where `function_app.py` and `host.json` lie."""
MAX_BODY_BYTES: Final = 100 * 1024 * 1024
"""The real host's default."""


@dataclass(frozen=True, slots=True)
class HostKeys:
    """Keys of the host itself; a level without a key lets nobody in."""

    function: str | None = None
    admin: str | None = None


@dataclass(frozen=True, slots=True)
class HostedFunction:
    """One HTTP-triggered function."""

    name: str
    template: Template
    methods: frozenset[str]
    auth_level: str
    call: Callable[..., Any]
    parameter: str
    """Name of the request's parameter."""
    wants_context: bool


def route_prefix(host_json: Mapping[str, Any]) -> str:
    """Return the prefix of every route, as `host.json` says."""
    return str(host_json.get("extensions", {}).get("http", {}).get("routePrefix", DEFAULT_PREFIX))


def index_functions(app: Any, prefix: str) -> tuple[HostedFunction, ...]:
    """Return the app's HTTP functions, more exact routes first.

    Raises:
        RouteRefused: a route the real host would refuse, or two functions for one route and method.
    """
    found = [_hosted(function, prefix) for function in app.get_functions()]
    taken: dict[tuple[str, str], str] = {}
    for function in found:
        for method in function.methods:
            other = taken.setdefault((function.template.text.lower(), method), function.name)
            if other != function.name:
                raise RouteRefused(f"{function.name} and {other} both serve {method} {function.template.text}")
    return tuple(sorted(found, key=lambda one: (one.template.rank, one.template.text)))


def _hosted(function: Any, prefix: str) -> HostedFunction:
    trigger = function.get_trigger()
    if trigger is None or trigger.type != "httpTrigger":
        raise RouteRefused(f"{function.get_function_name()} has no HTTP trigger; this host serves only those")
    methods = trigger.methods or ("GET", "POST")
    call = function.get_user_function()
    level = trigger.auth_level
    return HostedFunction(
        name=function.get_function_name(),
        template=compile_template(trigger.route or function.get_function_name(), prefix),
        methods=frozenset(str(getattr(method, "value", method)).upper() for method in methods),
        auth_level=str(getattr(level, "value", level or "function")).lower(),
        call=call,
        parameter=trigger.name,
        wants_context="context" in inspect.signature(call).parameters,
    )


class LocalHost:
    """An ASGI application that serves a `FunctionApp`."""

    def __init__(
        self,
        app: Any,
        host_json: Mapping[str, Any],
        keys: HostKeys = HostKeys(),
        on_shutdown: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.functions = index_functions(app, route_prefix(host_json))
        self._keys = keys
        self._on_shutdown = on_shutdown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's scope."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        response = await self._answer(request)
        if response is not None:
            await response(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self._on_shutdown is not None:
            await self._on_shutdown()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, request: Request) -> Response | None:
        """Return the response, or None when the client went away."""
        raw_path = request.scope.get("raw_path") or request.scope["path"].encode()
        found = self._find(request.method, raw_path.split(b"?")[0].decode("latin-1"))
        if found is None:
            return Response(status_code=404)
        function, route_params = found
        if not self._admitted(function.auth_level, request):
            return Response(status_code=401)
        try:
            body = await _body(request)
        except ClientDisconnect:
            return None
        if body is None:
            return Response(status_code=413)
        return await _invoke(function, _http_request(request, route_params, body))

    def _find(self, method: str, raw_path: str) -> tuple[HostedFunction, dict[str, str]] | None:
        for function in self.functions:
            if method in function.methods and (params := function.template.match(raw_path)) is not None:
                return function, params
        return None

    def _admitted(self, level: str, request: Request) -> bool:
        if level == "anonymous":
            return True
        accepted = [self._keys.admin] if level == "admin" else [self._keys.function, self._keys.admin]
        given = request.headers.get("x-functions-key") or request.query_params.get("code") or ""
        return any(key is not None and hmac.compare_digest(key.encode(), given.encode()) for key in accepted)


async def _body(request: Request) -> bytes | None:
    """Return the whole body, or None when it is longer than the host takes."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            return None
        chunks.append(chunk)
    return b"".join(chunks)


def _http_request(request: Request, route_params: Mapping[str, str], body: bytes) -> func.HttpRequest:
    return func.HttpRequest(
        method=request.method,
        url=str(request.url),
        headers=dict(request.headers),
        params=dict(request.query_params),
        route_params=dict(route_params),
        body=body,
    )


async def _invoke(function: HostedFunction, request: func.HttpRequest) -> Response:
    arguments: dict[str, Any] = {function.parameter: request}
    if function.wants_context:
        arguments["context"] = SimpleNamespace(
            invocation_id=str(uuid.uuid4()), function_name=function.name, function_directory=str(Path.cwd())
        )
    try:
        if inspect.iscoroutinefunction(function.call):
            result = await function.call(**arguments)
        else:
            result = await asyncio.to_thread(function.call, **arguments)
    except Exception:
        log.exception("function failed", extra={"function": function.name})
        return Response(status_code=500)
    return _response(result)


def _response(result: Any) -> Response:
    """Return what a function's answer looks like on the wire: a response, text, or nothing."""
    if result is None:
        return Response(status_code=204)
    if isinstance(result, str | bytes):
        return Response(result, media_type="text/plain")
    headers = {name.lower(): value for name, value in result.headers.items()}
    if "content-type" not in headers:
        text = result.mimetype.startswith("text/")
        headers["content-type"] = f"{result.mimetype}; charset={result.charset}" if text else result.mimetype
    return Response(result.get_body(), status_code=result.status_code, headers=headers)


def load_host(folder: Path) -> LocalHost:
    """Return a host of the app in a folder, found by its files as the real host finds it."""
    spec = importlib.util.spec_from_file_location("function_app", folder / "function_app.py")
    if spec is None or spec.loader is None:
        raise RouteRefused(f"there is no function_app.py in {folder}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    host_json = json.loads((folder / "host.json").read_text(encoding="utf-8"))
    return LocalHost(module.app, host_json, on_shutdown=module.gateway.close)


def main() -> None:
    """Serve the gateway's `function_app.py` with the `host.json` beside it."""
    try:
        settings = GatewaySettings.load()
        setup_logging(settings.log_level, settings.log_format, "gateway")
        host = load_host(APP_FOLDER)
    except GeodagError as error:
        sys.exit(f"gateway: {error}")
    log.info("gateway serves", extra={"functions": len(host.functions)})
    uvicorn.run(
        host,
        host=settings.gateway_host,
        port=settings.gateway_port,
        loop="uvloop",
        http="httptools",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )


if __name__ == "__main__":
    main()
