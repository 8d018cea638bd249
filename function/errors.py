"""Problem details (RFC 9457) of what the gateway itself refuses; answers of the orchestrator pass through unchanged."""

import json
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import azure.functions as func

from core.errors import Classification, ErrorDetail, GeodagError

HTTP_STATUS: Final[Mapping[str, HTTPStatus]] = {
    "PARAMETER_MISSING": HTTPStatus.UNPROCESSABLE_ENTITY,
    "PARAMETER_INVALID": HTTPStatus.UNPROCESSABLE_ENTITY,
    "PAYLOAD_TOO_LARGE": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "UNAUTHENTICATED": HTTPStatus.UNAUTHORIZED,
    "FORBIDDEN": HTTPStatus.FORBIDDEN,
    "NOT_FOUND": HTTPStatus.NOT_FOUND,
    "DATABASE_UNAVAILABLE": HTTPStatus.SERVICE_UNAVAILABLE,
    "ORCHESTRATOR_UNAVAILABLE": HTTPStatus.SERVICE_UNAVAILABLE,
}
"""Code -> status; every other code is an error of ours."""

RETRY_AFTER_SECONDS: Final = "2"


def problem(error: GeodagError, instance: str) -> func.HttpResponse:
    """Return the answer to an error raised in the gateway."""
    return problem_response(error.detail, instance)


def problem_response(detail: ErrorDetail, instance: str) -> func.HttpResponse:
    """Return problem details with an `error_id` that the log line has too."""
    status = HTTP_STATUS.get(detail.code, HTTPStatus.INTERNAL_SERVER_ERROR)
    said = detail.model_copy(update={"error_id": detail.error_id or uuid.uuid4().hex})
    body = {
        "type": f"urn:geodag:error:{said.code.lower()}",
        "title": status.phrase,
        "status": status.value,
        "detail": said.message,
        "instance": instance,
        **said.model_dump(mode="json", exclude={"message"}, exclude_none=True),
    }
    headers = {"Cache-Control": "no-store"}
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if said.classification is not Classification.PERMANENT:
        headers["Retry-After"] = RETRY_AFTER_SECONDS
    return func.HttpResponse(
        json.dumps(body, ensure_ascii=False).encode(),
        status_code=status.value,
        headers=headers,
        mimetype="application/problem+json",
    )
