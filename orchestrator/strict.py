"""Routes that refuse unknown and repeated query parameters: what is ignored would do another thing than was asked."""

from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import Response

UNKNOWN = "unknown parameter"
REPEATED = "stands twice in the query; give it once"


class StrictRoute(APIRoute):
    """A route whose query parameters are those of its signature and of its `openapi_extra`, and no others."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler behind the check."""
        handler = super().get_route_handler()
        extra = (self.openapi_extra or {}).get("parameters", ())
        known = {one.alias for one in self.dependant.query_params} | {
            one["name"] for one in extra if one["in"] == "query"
        }

        async def strict(request: Request) -> Response:
            if unknown := sorted(set(request.query_params) - known):
                raise RequestValidationError(
                    [{"type": "unknown", "loc": ("query", name), "msg": UNKNOWN} for name in unknown]
                )
            if twice := [name for name, count in _counts(request).items() if count > 1]:
                raise RequestValidationError(
                    [{"type": "repeated", "loc": ("query", name), "msg": REPEATED} for name in twice]
                )
            return await handler(request)

        return strict


def _counts(request: Request) -> Counter[str]:
    return Counter(name for name, _ in request.query_params.multi_items())
