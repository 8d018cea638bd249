"""Rows of /api/platform/webhooks/*."""

from collections.abc import Mapping
from typing import Final

from core import b2b_platforms
from core.openapi import Operation
from function.contract.parts import ADMINS, Route, order

PLATFORM_WEBHOOK: Final = "api/platform/webhooks/{platform_id}"

ROUTES: Final[Mapping[str, Route]] = {
    "webhook_address": Route(
        "PUT",
        PLATFORM_WEBHOOK,
        order(
            "Say where a platform is told when a submit names no callback_url.",
            ADMINS,
            b2b_platforms.WebhookAddressRequest,
            b2b_platforms.WebhookAddress,
            needed=True,
            tag="platform",
        ),
    ),
    "webhook_secret": Route(
        "POST",
        f"{PLATFORM_WEBHOOK}/secrets",
        Operation(
            "Make a new signing secret and show it this once; the one before signs too for a day.",
            "platform",
            ADMINS,
            b2b_platforms.WebhookSecretMade,
            201,
            b2b_platforms.WebhookRotation,
            body_required=False,
        ),
    ),
}
