"""Everything that no other function serves: refusals like all others, where the host's own would have no body."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import azure.functions as func

from core.errors import GeodagError, MethodNotAllowed, NotFound
from function.contract.parts import OPERATORS, Route
from function.contract.table import ROUTES
from function.errors import problem
from function.gateway import Gateway, register
from function.routing import compile_template

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def build(gateway: Gateway) -> func.Blueprint:
    """Return the blueprint."""
    blueprint = func.Blueprint()
    places = [(compile_template(route.template, ""), route) for route in ROUTES.values()]

    async def elsewhere(req: func.HttpRequest) -> func.HttpResponse:
        path = urlsplit(req.url).path
        found = [(template.rank, route) for template, route in places if template.match(path) is not None]
        served = [route for rank, route in found if rank == min(rank for rank, _ in found)]
        methods = await _methods(gateway, req, served)
        if not methods or req.method in methods:  # served, but not to a path that is spelt like this
            raise NotFound("there is no such resource", field="path")
        allow = ", ".join(methods)
        refused = problem(MethodNotAllowed(f"{req.method} is not served here; there is {allow}", field="method"), path)
        refused.headers["Allow"] = allow
        return refused

    register(blueprint, "elsewhere", "{*path}", METHODS, elsewhere)
    return blueprint


async def _methods(gateway: Gateway, req: func.HttpRequest, served: Sequence[Route]) -> list[str]:
    """Return what is served in a place, as far as who asks may know of it."""
    known = {route.method for route in served if route.operation.who != OPERATORS}
    if len(known) < len(served):
        try:
            await gateway.auth.operator(req.headers)
        except GeodagError:
            return sorted(known)
    return sorted({route.method for route in served})
