"""Webhooks after Standard Webhooks (https://www.standardwebhooks.com): what is told, how it is signed, when again."""

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from core.ids import canonical_json

SECRET_BYTES: Final = 32
RETRY_SECONDS: Final = (5.0, 30.0, 120.0, 600.0, 3600.0, 3 * 3600.0, 6 * 3600.0, 12 * 3600.0)
"""Pauses after failed attempts; the last one repeats."""
EXPIRY: Final = timedelta(days=3)
"""How long a delivery is tried."""
ROTATION: Final = timedelta(hours=24)
"""How long the secret before stays valid after a rotation."""


class WebhookType(StrEnum):
    """What a partner is told of."""

    COMPLETED = "completed"
    FAILED = "failed"
    PENDING_REVIEW = "pending_review"
    APPROVED = "approved"
    REJECTED = "rejected"
    REVOKED = "revoked"


TYPES_OF_ACTION: Final[Mapping[str, tuple[WebhookType, ...]]] = {
    "processed": (WebhookType.COMPLETED, WebhookType.PENDING_REVIEW),
    "processing_failed": (WebhookType.FAILED,),
    "processing_cancelled": (WebhookType.FAILED,),
    "approved": (WebhookType.APPROVED,),
    "rejected": (WebhookType.REJECTED,),
    "revoked": (WebhookType.REVOKED,),
    "unpublished": (WebhookType.REVOKED,),
    "superseded": (WebhookType.REVOKED,),
    "review_reminded": (WebhookType.PENDING_REVIEW,),
}
"""Audited action -> what goes out; everything else stays inside."""


def body(
    *,
    kind: str,
    created_at: datetime,
    request_id: str,
    asset_id: str,
    version_ordinal: int,
    state: str,
    review: str | None,
    result_url: str,
) -> bytes:
    """Return the signed bytes; the same for every attempt of a delivery, and never with an id of a job."""
    data: dict[str, Any] = {
        "request_id": request_id,
        "asset_id": asset_id,
        "version_ordinal": version_ordinal,
        "state": state,
        "review": review,
        "result_url": result_url,
    }
    return canonical_json({"type": kind, "timestamp": created_at.isoformat(), **data}).encode()


def signature(secrets: Sequence[bytes], delivery_id: str, timestamp: int, content: bytes) -> str:
    """Return `webhook-signature`: one `v1,` HMAC-SHA256 a valid secret, separated by spaces."""
    signed = f"{delivery_id}.{timestamp}.".encode() + content
    made = [base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode() for secret in secrets]
    return " ".join(f"v1,{text}" for text in made)


def headers(secrets: Sequence[bytes], delivery_id: str, now: datetime, content: bytes) -> dict[str, str]:
    """Return the headers of one attempt; without a secret it goes unsigned, and a receiver can tell."""
    timestamp = int(now.timestamp())
    said = {"Content-Type": "application/json", "webhook-id": delivery_id, "webhook-timestamp": str(timestamp)}
    return said | ({"webhook-signature": signature(secrets, delivery_id, timestamp, content)} if secrets else {})


def show_secret(secret: bytes) -> str:
    """Return a secret as integrators' libraries read it."""
    return f"whsec_{base64.b64encode(secret).decode()}"


def next_attempt(attempts: int, now: datetime) -> datetime:
    """Return when a delivery is tried again after so many failed attempts."""
    return now + timedelta(seconds=RETRY_SECONDS[min(attempts, len(RETRY_SECONDS)) - 1])
