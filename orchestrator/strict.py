"""Routes that refuse unknown and repeated query parameters: what is ignored would do another thing than was asked.

So is an `Idempotency-Key` by calls that change something and do not read it: sent again, they would do it again.
Whole numbers and booleans, in queries and in paths, are written in one way: `1_0` is not 10, nor is `yes` true.
"""

import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, get_args

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.responses import Response

from core.errors import ParameterInvalid

UNKNOWN = "unknown parameter"
REPEATED = "stands twice in the query; give it once"
IDEMPOTENCY_HEADER = "Idempotency-Key"
UNREAD = "this call takes no key: sent again, it would be obeyed again; leave the header out"
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
FORMS: Final[Mapping[type, tuple[re.Pattern[str], str]]] = {
    int: (re.compile(r"-?[0-9]+"), "int_type"),
    bool: (re.compile(r"true|false"), "bool_type"),
}
"""By type of a parameter: how its values are written, and the problem of one that is not."""


class StrictRoute(APIRoute):
    """A route whose query parameters are those of its signature and of its `openapi_extra`, and no others.

    An idempotency key it takes where its `openapi_extra` has that header.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler behind the check."""
        handler = super().get_route_handler()
        extra = (self.openapi_extra or {}).get("parameters", ())
        known = {one.alias for one in self.dependant.query_params}
        known |= {one["name"] for one in extra if one["in"] == "query"}
        keyed = (self.methods or SAFE) <= SAFE or any(one["name"] == IDEMPOTENCY_HEADER for one in extra)
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
            if not keyed and IDEMPOTENCY_HEADER in request.headers:
                raise RequestValidationError([{"type": "unread", "loc": ("header", IDEMPOTENCY_HEADER), "msg": UNREAD}])
            return await handler(request)

        return strict


def documented(name: str, place: str, schema: Mapping[str, Any], description: str) -> dict[str, Any]:
    """Return the OpenAPI document of a parameter that an endpoint reads from the request itself."""
    return {"name": name, "in": place, "required": place == "path", "description": description, "schema": schema}


def key_in(headers: Headers) -> str | None:
    """Return the idempotency key of a call. Raises `ParameterInvalid` for two of them."""
    keys = headers.getlist(IDEMPOTENCY_HEADER)
    if len(keys) > 1:
        raise ParameterInvalid("the header Idempotency-Key stands twice; give it once", field=IDEMPOTENCY_HEADER)
    return keys[0] if keys else None


def takes_key(description: str) -> dict[str, Any]:
    """Return the `openapi_extra` of a route that reads an idempotency key."""
    return {"parameters": [documented(IDEMPOTENCY_HEADER, "header", {"type": "string"}, description)]}


def _counts(request: Request) -> Counter[str]:
    return Counter(name for name, _ in request.query_params.multi_items())


def _misread(place: str, given: Mapping[str, str], kinds: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the problem of each value that is not written as those of its type are."""
    for name, kind in kinds.items():
        for one in (kind, *get_args(kind)):
            form, problem = FORMS.get(one, (None, ""))
            if form is not None and name in given and form.fullmatch(given[name]) is None:
                yield {"type": problem, "loc": (place, name), "msg": "", "input": given[name]}
