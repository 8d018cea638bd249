"""Routes that refuse unknown and repeated query parameters: what is ignored would do another thing than was asked.

Whole numbers and booleans, in queries and in paths, are written in one way: `1_0` is not 10, nor is `yes` true.
"""

import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, get_args

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import Response

UNKNOWN = "unknown parameter"
REPEATED = "stands twice in the query; give it once"
FORMS: Final[Mapping[type, tuple[re.Pattern[str], str]]] = {
    int: (re.compile(r"-?[0-9]+"), "int_type"),
    bool: (re.compile(r"true|false"), "bool_type"),
}
"""By type of a parameter: how its values are written, and the problem of one that is not."""


class StrictRoute(APIRoute):
    """A route whose query parameters are those of its signature and of its `openapi_extra`, and no others."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler behind the check."""
        handler = super().get_route_handler()
        extra = (self.openapi_extra or {}).get("parameters", ())
        known = {one.alias for one in self.dependant.query_params}
        known |= {one["name"] for one in extra if one["in"] == "query"}
        in_query = {one.alias: one.field_info.annotation for one in self.dependant.query_params}
        in_path = {one.alias: one.field_info.annotation for one in self.dependant.path_params}

        async def strict(request: Request) -> Response:
            if unknown := sorted(set(request.query_params) - known):
                raise RequestValidationError(
                    [{"type": "unknown", "loc": ("query", name), "msg": UNKNOWN} for name in unknown]
                )
            if twice := [name for name, count in _counts(request).items() if count > 1]:
                raise RequestValidationError(
                    [{"type": "repeated", "loc": ("query", name), "msg": REPEATED} for name in twice]
                )
            misread = (
                *_misread("path", request.path_params, in_path),
                *_misread("query", request.query_params, in_query),
            )
            if misread:
                raise RequestValidationError(misread)
            return await handler(request)

        return strict


def _counts(request: Request) -> Counter[str]:
    return Counter(name for name, _ in request.query_params.multi_items())


def _misread(place: str, given: Mapping[str, str], kinds: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the problem of each value that is not written as those of its type are."""
    for name, kind in kinds.items():
        for one in (kind, *get_args(kind)):
            form, problem = FORMS.get(one, (None, ""))
            if form is not None and name in given and form.fullmatch(given[name]) is None:
                yield {"type": problem, "loc": (place, name), "msg": "", "input": given[name]}
