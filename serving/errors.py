"""Problem details (RFC 9457) of serving, and its table from codes to HTTP statuses.

What a caller may not see and what does not exist answer with the same document.
"""

import json
import logging
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from rasterio.errors import RasterioError
from rio_tiler.errors import RioTilerError
from starlette.exceptions import HTTPException

from core.access import PRIVATE_CACHE
from core.errors import (
    ErrorDetail,
    GeodagError,
    NotFound,
    ParameterInvalid,
    StorageUnavailable,
)
from edge.problems import MEDIA_TYPE, document, headers

log = logging.getLogger(__name__)

HTTP_STATUS: Final[Mapping[str, HTTPStatus]] = {
    "PARAMETER_INVALID": HTTPStatus.UNPROCESSABLE_ENTITY,
    "UNAUTHENTICATED": HTTPStatus.UNAUTHORIZED,
    "NOT_FOUND": HTTPStatus.NOT_FOUND,
    "DATABASE_UNAVAILABLE": HTTPStatus.SERVICE_UNAVAILABLE,
    "IDENTITY_UNAVAILABLE": HTTPStatus.SERVICE_UNAVAILABLE,
    "STORAGE_UNAVAILABLE": HTTPStatus.SERVICE_UNAVAILABLE,
}
"""Code -> status; every other code is an error of ours."""


def hidden() -> NotFound:
    """Return the one answer for what does not exist and for what this caller may not see."""
    return NotFound("there is no such resource")


def problem(detail: ErrorDetail, instance: str, status: HTTPStatus | None = None) -> Response:
    """Return problem details; nobody may keep them, because tomorrow the answer may be another."""
    status = status or HTTP_STATUS.get(detail.code, HTTPStatus.INTERNAL_SERVER_ERROR)
    content = json.dumps(document(detail, status, instance), ensure_ascii=False).encode(errors="replace")
    return Response(content, status.value, headers(detail, status, PRIVATE_CACHE), MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer every error of the app with problem details."""
    handlers: dict[Any, Any] = {
        GeodagError: _on_geodag_error,
        RequestValidationError: _on_invalid_request,
        HTTPException: _on_http_exception,
        RasterioError: _on_unreadable,
        RioTilerError: _on_unreadable,
        OSError: _on_unreadable,
        Exception: _on_unexpected,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


async def _on_geodag_error(request: Request, error: GeodagError) -> Response:
    if HTTP_STATUS.get(error.detail.code, HTTPStatus.INTERNAL_SERVER_ERROR) < HTTPStatus.INTERNAL_SERVER_ERROR:
        return problem(error.detail, request.url.path)
    if isinstance(error, StorageUnavailable):  # which may name the blob
        return await _on_unreadable(request, error)
    return _logged(request, error, error.detail)


async def _on_invalid_request(request: Request, error: RequestValidationError) -> Response:
    first = error.errors()[0]
    field = str(first["loc"][-1])
    value = str(first.get("input"))[:40]
    said = ParameterInvalid(f"{field} is {value!r}: {first['msg']}", field=field, value=value)
    return problem(said.detail, request.url.path)


async def _on_http_exception(request: Request, error: HTTPException) -> Response:
    if error.status_code == HTTPStatus.NOT_FOUND:
        return problem(hidden().detail, request.url.path)
    status = HTTPStatus(error.status_code)
    detail = ErrorDetail(code=status.name, message=str(error.detail), user_fixable=status < 500)
    response = problem(detail, request.url.path, status)
    response.headers.update(error.headers or {})
    return response


async def _on_unreadable(request: Request, error: Exception) -> Response:
    return _logged(request, error, StorageUnavailable("the file of this version cannot be read").detail)


async def _on_unexpected(request: Request, error: Exception) -> Response:
    detail = ErrorDetail(code="INTERNAL", message="something went wrong here; quote the error_id")
    return _logged(request, error, detail)


def _logged(request: Request, error: Exception, detail: ErrorDetail) -> Response:
    """Return an error of ours with an id that finds its log line; nothing of the error itself leaves."""
    error_id = uuid.uuid4().hex
    log.error("request failed", extra={"error_id": error_id, "path": request.url.path}, exc_info=error)
    return problem(detail.model_copy(update={"error_id": error_id}), request.url.path)
