"""Problem details (RFC 9457) for every error, and the one table from codes to HTTP statuses."""

import logging
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.errors import (
    CallerError,
    Conflict,
    DataError,
    ErrorDetail,
    GeodagError,
    NotFound,
    ParameterInvalid,
    ParameterMissing,
    TransientError,
    Unauthenticated,
)
from core.identity import Role
from core.wording import complaint, readable
from edge.identity import Identity
from edge.problems import MEDIA_TYPE, document, headers, identified
from repositories.logs import redact

log = logging.getLogger(__name__)

HTTP_STATUS: Final[Mapping[str, HTTPStatus]] = {
    "UNAUTHENTICATED": HTTPStatus.UNAUTHORIZED,
    "FORBIDDEN": HTTPStatus.FORBIDDEN,
    "NOT_FOUND": HTTPStatus.NOT_FOUND,
    "METHOD_NOT_ALLOWED": HTTPStatus.METHOD_NOT_ALLOWED,
    "PARAMETER_MISSING": HTTPStatus.UNPROCESSABLE_ENTITY,
    "PARAMETER_INVALID": HTTPStatus.UNPROCESSABLE_ENTITY,
    "PAYLOAD_TOO_LARGE": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "WORKFLOW_INVALID": HTTPStatus.UNPROCESSABLE_ENTITY,
    "PAYLOAD_MISSING": HTTPStatus.GONE,
    "PAYLOAD_CORRUPT": HTTPStatus.GONE,
    "THROTTLED": HTTPStatus.TOO_MANY_REQUESTS,
    "QUOTA_EXCEEDED": HTTPStatus.TOO_MANY_REQUESTS,
    "TASK_TIMEOUT": HTTPStatus.GATEWAY_TIMEOUT,
    "INTERNAL": HTTPStatus.INTERNAL_SERVER_ERROR,
}
"""Codes with a status of their own."""

_BY_KIND: Final[tuple[tuple[type[GeodagError], HTTPStatus], ...]] = (
    (Conflict, HTTPStatus.CONFLICT),
    (DataError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (CallerError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (TransientError, HTTPStatus.SERVICE_UNAVAILABLE),
)
"""Every other code by who must act."""

_HTTP_CODES: Final[Mapping[int, str]] = {
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    401: "UNAUTHENTICATED",
    403: "FORBIDDEN",
    413: "PAYLOAD_TOO_LARGE",
}


def status_of(error: GeodagError) -> HTTPStatus:
    """Return the HTTP status of an error."""
    if (status := HTTP_STATUS.get(error.detail.code)) is not None:
        return status
    for kind, status in _BY_KIND:
        if isinstance(error, kind):
            return status
    if error.detail.user_fixable:
        return HTTPStatus.UNPROCESSABLE_ENTITY
    return HTTPStatus.INTERNAL_SERVER_ERROR


def problem(detail: ErrorDetail, status: HTTPStatus, instance: str) -> Response:
    """Return problem details; what is missing has no member."""
    body = to_json(document(identified(detail), status, redact(instance)), inf_nan_mode="strings")
    return Response(body, status.value, headers(detail, status), MEDIA_TYPE)


def parameter_error(error: ValidationError | RequestValidationError, *, drop_source: bool = False) -> GeodagError:
    """Return the first problem of a body or query as an error that names the field, and the other fields beside it."""
    first, *others = error.errors()
    field = _field(first, drop_source)
    names = {name for one in others if (name := _field(one, drop_source)) and not _is_in(name, field)}
    also = f" (also: {', '.join(sorted(names)[:10])})" if names else ""
    if first["type"] == "missing":
        return ParameterMissing(f"{field} is required{also}", field=field)
    shown = first.get("input")
    shown = shown[:800].decode(errors="replace") if isinstance(shown, bytes) else shown
    value = shown if shown is None or isinstance(shown, bool | int | float) else readable(str(shown)[:200])
    return ParameterInvalid(f"{field or 'the body'}: {complaint(first)}{also}", field=field, value=value)


def _field(problem: Mapping[str, Any], drop_source: bool) -> str | None:
    location = problem["loc"][1:] if drop_source else problem["loc"]
    return readable(".".join(map(str, location))) or None


def _is_in(name: str, field: str | None) -> bool:
    """Return whether a field is another one, or a part or another reading of it."""
    return field is None or name == field or name.startswith(f"{field}.")


def answer(error: GeodagError, instance: str) -> Response:
    """Return the answer to an error that was raised on purpose; our own are logged with the id that is told."""
    status = status_of(error)
    response = problem(error.detail, status, instance)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.warning("request failed", extra={"code": error.detail.code, "path": instance, "reason": str(error)})
    return response


def answer_to(request: Request, error: GeodagError) -> Response:
    """Return the answer to an error that an endpoint raised."""
    if status_of(error) is HTTPStatus.INTERNAL_SERVER_ERROR:
        return internal(error, request.url.path)
    return answer(error, request.url.path)


async def _on_geodag_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, GeodagError)
    return answer_to(request, error)


def is_known(request: Request) -> bool:
    """Return whether anybody we know asks: FastAPI looks at paths and queries before a route looks at credentials."""
    identity: Identity = request.app.state.identity
    headers = request.headers
    if identity.is_service(headers, Role.WORKER):
        return True
    mutates = request.method not in {"GET", "HEAD"}
    return identity.caller(headers) is not None and (not mutates or identity.is_service(headers, Role.GATEWAY))


async def _on_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if not is_known(request):
        unknown = Unauthenticated("a credential is required: X-API-Key, or Authorization: Bearer")
        return answer(unknown, request.url.path)
    return answer(parameter_error(error, drop_source=True), request.url.path)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _HTTP_CODES.get(error.status_code, "PARAMETER_INVALID")
    detail = ErrorDetail(code=code, message=str(error.detail), user_fixable=error.status_code < 500)
    said = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        said["Allow"] = ", ".join(_methods(request))
        detail = detail.model_copy(update={"message": f"{request.method} is not served here; there is {said['Allow']}"})
    elif error.status_code == HTTPStatus.NOT_FOUND:
        detail = detail.model_copy(update={"message": "there is no such resource", "field": "path"})
    response = problem(detail, HTTPStatus(error.status_code), request.url.path)
    response.headers.update(said)
    return response


def _methods(request: Request) -> list[str]:
    """Return the methods of a place, as its most exact path has them; the framework names those of one route."""
    app: FastAPI = request.app
    found = [r for r in app.routes if isinstance(r, Route) and r.matches(request.scope)[0] is not Match.NONE]
    exact = min((len(route.param_convertors) for route in found), default=0)
    return sorted({m for route in found if len(route.param_convertors) == exact for m in route.methods or ()})


def internal(error: BaseException, instance: str) -> Response:
    """Return INTERNAL with an id that finds the log line; nothing of the error itself leaves."""
    error_id = uuid.uuid4().hex
    log.error("unhandled error", extra={"error_id": error_id, "path": instance}, exc_info=error)
    detail = ErrorDetail(code="INTERNAL", message="something went wrong here; quote the error_id", error_id=error_id)
    return problem(detail, HTTPStatus.INTERNAL_SERVER_ERROR, instance)


class ErrorBoundary:
    """The outermost layer: whatever nobody handled becomes INTERNAL, unless the answer has begun already."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if "\0" in scope["path"]:
            # No name has it, and PostgreSQL would not compare with it.
            missing = NotFound("there is no such resource", field="path")
            await answer(missing, scope["path"])(scope, receive, send)
            return
        began = False

        async def note(message: Message) -> None:
            nonlocal began
            began = began or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, note)
        except Exception as error:
            if began:
                broken = error.__cause__ or error  # the framework's complaint that it is too late for an answer
                code = broken.detail.code if isinstance(broken, GeodagError) else "INTERNAL"
                log.error("answer broke off", extra={"code": code, "path": scope["path"], "reason": str(broken)})
                raise
            await internal(error, scope["path"])(scope, receive, send)


def install(app: FastAPI) -> None:
    """Answer every error of an app with problem details."""
    handlers: dict[Any, Any] = {
        GeodagError: _on_geodag_error,
        RequestValidationError: _on_invalid_request,
        HTTPException: _on_http_exception,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
