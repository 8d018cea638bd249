"""The contract about platforms themselves, for those who run geodag."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from core.b2b import Contract, Line
from core.b2b_assets import Reason

Count = Annotated[int, Field(ge=1, le=1_000_000)]


class PlatformChange(Contract):
    """Body of PATCH on a platform; what is not named stays."""

    is_active: bool | None = None
    review_days: Annotated[int, Field(ge=1, le=3650)] | None = None
    requests_per_minute: Count | None = None
    request_burst: Count | None = None
    max_open_requests: Count | None = None
    reason: Reason | None = None


class PlatformView(Contract):
    """A platform as its keepers see it."""

    platform_id: str
    display_name: str
    required_refs: list[str]
    optional_refs: list[str]
    version_ref: str
    allowed_workflows: list[str]
    collection_prefix: str
    is_active: bool
    review_days: int
    requests_per_minute: int
    request_burst: int
    max_open_requests: int


class PlatformList(Contract):
    """200 of platforms."""

    platforms: list[PlatformView]


class WebhookAddressRequest(Contract):
    """Body of PUT on a platform's webhook address."""

    url: Annotated[Line, Field(max_length=2048)] | None = Field(
        description="Where it is told when a submit names no callback_url; null: nowhere."
    )
    reason: Reason | None = None


class WebhookAddress(Contract):
    """200 of a webhook address: where a platform is told."""

    platform_id: str
    url: str | None


class WebhookRotation(Contract):
    """Body of a new webhook secret."""

    reason: Reason | None = None


class WebhookSecretMade(Contract):
    """201: a signing secret, shown this once."""

    secret_id: str
    secret: str = Field(repr=False, description="`whsec_` and the key in base64, as Standard Webhooks has it.")
    created_at: datetime
    former_valid_until: datetime | None = Field(description="The secret before signs too until then; null: none.")
