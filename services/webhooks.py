"""Tells platforms what became of their requests: one attempt is a claim, a request, and a note of how it went."""

import asyncio
import base64
import logging
import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from psycopg import AsyncConnection

from core import webhooks
from core.b2b_platforms import WebhookAddress, WebhookAddressRequest, WebhookSecretMade
from core.errors import GeodagError, NotFound
from core.identity import Caller, Role
from core.models.business import WebhookDelivery, WebhookSecret
from core.outgoing import OutgoingPolicy, check_url
from core.ports import Sealer
from core.status_view import PublicUrls
from repositories.audit import AuditRepository, NewAuditEntry
from repositories.database import AsyncPool, transaction
from repositories.platforms import PlatformRepository
from repositories.webhooks import WebhookRepository

log = logging.getLogger(__name__)

ROLES = frozenset({Role.OPERATOR, Role.ADMIN})
"""Who changes anything here."""
BATCH = 20
HOLD_SECONDS = 60.0
"""How long a claimed delivery is held back from other instances: longer than an attempt can take."""


class Answer(Protocol):
    """How an attempt ended."""

    @property
    def status(self) -> int | None:
        """HTTP status, None when there was no answer."""

    @property
    def error(self) -> str | None:
        """Why there was none."""


class Sender(Protocol):
    """Posts to an address that the guard permits; never raises for what the other side does."""

    async def post(self, url: str, content: bytes, headers: dict[str, str]) -> Answer:
        """Return how it went."""


class WebhookService:
    """Deliveries, their replay, and the secrets that sign them."""

    def __init__(
        self, pool: AsyncPool, sender: Sender, sealer: Sealer, urls: PublicUrls, policy: OutgoingPolicy
    ) -> None:
        self._pool = pool
        self._sender = sender
        self._sealer = sealer
        self._urls = urls
        self._policy = policy

    async def deliver_due(self) -> float | None:
        """Attempt what is due, one batch, and return the seconds to what is due next, None when nothing waits."""
        async with transaction(self._pool) as conn:
            repository = WebhookRepository(conn)
            due = await repository.take_due(BATCH, HOLD_SECONDS)
            known = await repository.secrets_of(sorted({one.platform_id for one in due})) if due else []
        keys = self._opened(known)
        await asyncio.gather(*(self._attempt(one, keys.get(one.platform_id, [])) for one in due))
        async with transaction(self._pool) as conn:
            return await WebhookRepository(conn).seconds_to_next()

    async def _attempt(self, delivery: WebhookDelivery, keys: Sequence[bytes]) -> None:
        now = datetime.now(UTC)
        content = webhooks.body(
            kind=delivery.type,
            created_at=delivery.created_at,
            request_id=delivery.request_id,
            asset_id=delivery.asset_id,
            version_ordinal=delivery.version_ordinal,
            state=delivery.request_state,
            review=delivery.review,
            result_url=self._urls.status(delivery.request_id),
        )
        reply = await self._sender.post(
            delivery.url, content, webhooks.headers(keys, delivery.delivery_id, now, content)
        )
        delivered = reply.status is not None and 200 <= reply.status < 300
        again_at = None if delivered else webhooks.next_attempt(delivery.attempts, now)
        async with transaction(self._pool) as conn:
            await WebhookRepository(conn).note(delivery, status=reply.status, error=reply.error, again_at=again_at)
        log.info(
            "webhook attempted",
            extra={"delivery_id": delivery.delivery_id, "status": reply.status, "attempt": delivery.attempts},
        )

    def _opened(self, stored: Sequence[WebhookSecret]) -> Mapping[str, list[bytes]]:
        found: defaultdict[str, list[bytes]] = defaultdict(list)
        for one in stored:
            try:
                found[one.platform_id].append(self._sealer.open(base64.b64decode(one.sealed), _context(one)))
            except GeodagError as error:
                log.error("webhook secret unreadable", extra={"secret_id": one.secret_id, "reason": str(error)})
        return found

    async def deliveries(self, platform_id: str | None, state: str | None, limit: int) -> list[dict[str, Any]]:
        """Return the newest deliveries with how they went."""
        async with transaction(self._pool) as conn:
            found = await WebhookRepository(conn).newest(platform_id, state, limit)
        return [one.model_dump(mode="json") for one in found]

    async def replay(self, caller: Caller, delivery_id: str) -> dict[str, Any]:
        """Send one again under its own id; a receiver that had it can tell by that. Raises `NotFound`."""
        async with transaction(self._pool) as conn:
            found = await WebhookRepository(conn).replay(delivery_id)
            if found is None:
                raise NotFound(f"there is no delivery {delivery_id[:64]}", field="delivery_id", value=delivery_id[:64])
            await _audit(conn, caller, found.platform_id, "webhook_replayed", {"delivery_id": delivery_id})
        return found.model_dump(mode="json")

    async def rotate(self, caller: Caller, platform_id: str, reason: str | None = None) -> WebhookSecretMade:
        """Make a new secret and return it, this once; the one before signs too for a day. Raises `NotFound`."""
        plain = secrets.token_bytes(webhooks.SECRET_BYTES)
        secret_id = secrets.token_hex(8)
        sealed = base64.b64encode(self._sealer.seal(plain, f"webhook|{platform_id}|{secret_id}")).decode()
        async with transaction(self._pool) as conn:
            repository = WebhookRepository(conn)
            if await PlatformRepository(conn).lock(platform_id) is None:
                raise _unknown(platform_id)
            keep = webhooks.ROTATION.total_seconds()
            created = await repository.add_secret(platform_id, secret_id, sealed, caller.subject, keep)
            valid = len(await repository.secrets_of([platform_id]))
            await _audit(conn, caller, platform_id, "webhook_secret_made", {"secret_id": secret_id}, reason=reason)
        log.info("webhook secret made", extra={"platform_id": platform_id, "secret_id": secret_id})
        return WebhookSecretMade(
            secret_id=secret_id,
            secret=webhooks.show_secret(plain),
            created_at=created,
            former_valid_until=created + webhooks.ROTATION if valid > 1 else None,
        )

    async def set_url(self, caller: Caller, platform_id: str, wanted: WebhookAddressRequest) -> WebhookAddress:
        """Say where a platform is told when a submit names no callback_url. Raises `ParameterInvalid`, `NotFound`."""
        url = wanted.url
        if url is not None:
            check_url(url, self._policy, "url")
        async with transaction(self._pool) as conn:
            platform = await PlatformRepository(conn).lock(platform_id)
            if platform is None or not await WebhookRepository(conn).set_url(platform_id, url):
                raise _unknown(platform_id)
            before = {"webhook_url": platform.webhook_url}
            after = {"webhook_url": url}
            await _audit(conn, caller, platform_id, "webhook_address_set", after, before, wanted.reason)
        return WebhookAddress(platform_id=platform_id, url=url)


async def _audit(
    conn: AsyncConnection[Any],
    caller: Caller,
    platform_id: str,
    action: str,
    after: Mapping[str, Any],
    before: Mapping[str, Any] | None = None,
    reason: str | None = None,
) -> None:
    role = min(str(role) for role in caller.roles & ROLES)
    await AuditRepository(conn).add(
        NewAuditEntry(
            asset_id=None,
            version_ordinal=None,
            action=action,
            actor=caller.subject,
            actor_role=role,
            reason=reason,
            before=before,
            after=after,
            platform_id=platform_id,
        )
    )


def _context(secret: WebhookSecret) -> str:
    return f"webhook|{secret.platform_id}|{secret.secret_id}"


def _unknown(platform_id: str) -> NotFound:
    return NotFound(f"there is no platform {platform_id[:64]}", field="platform_id", value=platform_id[:64])
