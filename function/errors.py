"""Problem details (RFC 9457) of what the gateway itself refuses; answers of the orchestrator pass through unchanged."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import azure.functions as func

from core.errors import ErrorDetail, GeodagError
from edge.problems import MEDIA_TYPE, document, headers, identified

HTTP_STATUS: Final[Mapping[str, HTTPStatus]] = {
    "PARAMETER_MISSING": HTTPStatus.UNPROCESSABLE_ENTITY,
    "PARAMETER_INVALID": HTTPStatus.UNPROCESSABLE_ENTITY,
    "PAYLOAD_TOO_LARGE": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "UNAUTHENTICATED": HTTPStatus.UNAUTHORIZED,
    "FORBIDDEN": HTTPStatus.FORBIDDEN,
    "NOT_FOUND": HTTPStatus.NOT_FOUND,
    "METHOD_NOT_ALLOWED": HTTPStatus.METHOD_NOT_ALLOWED,
    "DATABASE_UNAVAILABLE": HTTPStatus.SERVICE_UNAVAILABLE,
    "IDENTITY_UNAVAILABLE": HTTPStatus.SERVICE_UNAVAILABLE,
    "ORCHESTRATOR_UNAVAILABLE": HTTPStatus.SERVICE_UNAVAILABLE,
}
"""Code -> status; every other code is an error of ours."""


def problem(error: GeodagError, instance: str) -> func.HttpResponse:
    """Return the answer to an error raised in the gateway."""
    return problem_response(error.detail, instance)


def problem_response(detail: ErrorDetail, instance: str) -> func.HttpResponse:
    """Return problem details with the `error_id` that the log line has too."""
    status = HTTP_STATUS.get(detail.code, HTTPStatus.INTERNAL_SERVER_ERROR)
    return func.HttpResponse(
        json.dumps(document(identified(detail), status, instance), ensure_ascii=False).encode(),
        status_code=status.value,
        headers=dict(headers(detail, status)),
        mimetype=MEDIA_TYPE,
    )
