"""The way of the hot routes past the framework, which costs a call more than its transaction's Python.

The endpoints are the same functions that the routers have; what a router would add for them is nothing: they parse
their bodies themselves and raise errors that `orchestrator.errors` answers. A query that is more than the wait of a
question goes to the router, which knows the parameters of each.
"""

from collections.abc import Awaitable, Callable, Mapping

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from core.errors import GeodagError
from orchestrator.errors import answer_to

Endpoint = Callable[[Request], Awaitable[Response]]


class DirectRoutes:
    """ASGI middleware: endpoints by method and path; a path that ends with `/{name}` takes any last segment."""

    def __init__(self, app: ASGIApp, *, api: FastAPI, endpoints: Mapping[tuple[str, str], Endpoint]) -> None:
        self._app = app
        self._api = api
        self._exact = {key: endpoint for key, endpoint in endpoints.items() if not key[1].endswith("}")}
        self._below = {
            (method, path.rpartition("/")[0]): (path.rpartition("/")[2].strip("{}"), endpoint)
            for (method, path), endpoint in endpoints.items()
            if path.endswith("}")
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what is direct, pass everything else on."""
        endpoint = self._find(scope) if scope["type"] == "http" else None
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        scope["app"] = self._api
        request = Request(scope, receive)
        try:
            response = await endpoint(request)
        except GeodagError as error:
            response = answer_to(request, error)
        await response(scope, receive, send)

    def _find(self, scope: Scope) -> Endpoint | None:
        method, path, query = scope["method"], scope["path"], scope["query_string"]
        if query and not (method == "GET" and query.startswith(b"wait=") and b"&" not in query):
            return None
        if (endpoint := self._exact.get((method, path))) is not None:
            return endpoint
        above, _, last = path.rpartition("/")
        if not last or (found := self._below.get((method, above))) is None:
            return None
        name, endpoint = found
        scope["path_params"] = {name: last}
        return endpoint
