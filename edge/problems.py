"""Problem details (RFC 9457): the one document and the headers that tell an error, whatever the framework."""

import uuid
from http import HTTPStatus
from typing import Any, Final

from core.errors import Classification, ErrorDetail

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = "2"


def identified(detail: ErrorDetail) -> ErrorDetail:
    """Return an error with an id, made now when it has none."""
    return detail if detail.error_id else detail.model_copy(update={"error_id": uuid.uuid4().hex})


def document(detail: ErrorDetail, status: HTTPStatus, instance: str) -> dict[str, Any]:
    """Return the document; what is missing has no member."""
    return {
        "type": f"urn:geodag:error:{detail.code.lower()}",
        "title": status.phrase,
        "status": status.value,
        "detail": detail.message,
        "instance": instance,
        **detail.model_dump(mode="json", exclude={"message"}, exclude_none=True),
    }


def headers(detail: ErrorDetail, status: HTTPStatus, cache_control: str = "no-store") -> dict[str, str]:
    """Return the headers that go with it: nobody keeps it, and who may try again learns when."""
    found = {"Cache-Control": cache_control}
    if status is HTTPStatus.UNAUTHORIZED:
        found["WWW-Authenticate"] = "Bearer"
    if detail.classification is not Classification.PERMANENT:
        known = detail.retry_after_seconds
        found["Retry-After"] = RETRY_AFTER_SECONDS if known is None else str(known)
    return found
