"""Webhooks to a real receiver: told once it is committed, tried again, signed, replayed, and never sent inside."""

import base64
import hashlib
import hmac
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from core.b2b_platforms import WebhookAddressRequest
from core.errors import NotFound, ParameterInvalid
from core.outgoing import OutgoingPolicy
from core.webhooks import EXPIRY
from edge.outgoing import OutgoingClient
from edge.seal import Seal, SealBroken
from repositories.settings import SettingsError
from repositories.webhooks import WebhookRepository
from services.webhooks import WebhookService
from tests.support.business import ADMIN, URLS, Business

LOCAL = OutgoingPolicy(allow_loopback=True)
KEY, OTHER_KEY = (base64.b64encode(letter * 32).decode() for letter in (b"k", b"o"))


@dataclass
class Receiver:
    """A partner's end."""

    url: str = ""
    answers: list[int] = field(default_factory=list)
    seen: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        self.seen.append(({name.lower(): value for name, value in request.headers.items()}, await request.read()))
        status = self.answers.pop(0) if self.answers else 204
        return web.Response(status=status, headers={"Location": "http://10.0.0.1/"} if 300 <= status < 400 else {})

    def types(self) -> list[str]:
        return [json.loads(content)["type"] for _, content in self.seen]


@asynccontextmanager
async def receiver(*answers: int) -> AsyncIterator[Receiver]:
    made = Receiver(answers=list(answers))
    app = web.Application()
    app.router.add_post("/hook", made.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield made
    finally:
        await runner.cleanup()


def service(business: Business, keys: str = KEY, resolver: AbstractResolver | None = None) -> WebhookService:
    return WebhookService(business.pool, OutgoingClient(LOCAL, resolver), Seal(keys), URLS, LOCAL)


async def query(business: Business, statement: Any, *values: Any) -> list[dict[str, Any]]:
    return await business.engine.query(statement, *values)


async def make_due(business: Business) -> None:
    await query(
        business, "UPDATE dagapp.webhook_deliveries SET next_attempt_at = dagapp.clock() WHERE state = 'pending'"
    )


async def processed(business: Business, url: str) -> Any:
    """Submit with an address and let the job end."""
    await service(business).set_url(ADMIN, "ddh", WebhookAddressRequest(url=url))
    return await business.processed()


async def test_a_platform_hears_of_the_end_and_of_the_decision_in_order(business: Business) -> None:
    async with receiver() as partner:
        accepted = await processed(business, partner.url)
        await business.approve(accepted)
        await service(business).deliver_due()
        assert sorted(partner.types()) == ["approved", "completed", "pending_review"]
        said = {json.loads(content)["type"]: json.loads(content) for _, content in partner.seen}
        assert said["approved"]["review"] == "approved"
        assert said["completed"]["state"] == "completed"
        assert said["approved"]["request_id"] == accepted.request_id
        jobs = await query(business, "SELECT job_id FROM dagapp.dag_jobs")
        assert all(job["job_id"].encode() not in content for job in jobs for _, content in partner.seen)
        assert await service(business).deliver_due() is None


async def test_a_receiver_that_fails_twice_gets_the_same_delivery_again(business: Business) -> None:
    async with receiver(500, 500) as partner:
        await service(business).set_url(ADMIN, "ddh", WebhookAddressRequest(url=partner.url))
        accepted = await business.processed()
        await business.reject(accepted)
        await query(business, "DELETE FROM dagapp.webhook_deliveries WHERE type <> 'rejected'")
        for _ in range(3):
            await make_due(business)
            await service(business).deliver_due()
        assert len({(headers["webhook-id"], content) for headers, content in partner.seen}) == 1
        assert len(partner.seen) == 3
        [row] = await query(business, "SELECT state, attempts, last_status FROM dagapp.webhook_deliveries")
        assert row == {"state": "delivered", "attempts": 3, "last_status": 204}


async def test_every_valid_secret_signs_and_the_newest_replaces_the_one_before_the_last(business: Business) -> None:
    hooks = service(business)
    shown = [await hooks.rotate(ADMIN, "ddh") for _ in range(3)]
    async with receiver() as partner:
        await processed(business, partner.url)
        await hooks.deliver_due()
        headers, content = partner.seen[0]
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + content
        keys = [base64.b64decode(one.secret.removeprefix("whsec_")) for one in reversed(shown[1:])]
        expected = [base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode() for key in keys]
        assert headers["webhook-signature"] == " ".join(f"v1,{text}" for text in expected)
    stored = await query(business, "SELECT sealed FROM dagapp.webhook_secrets")
    assert all(key not in base64.b64decode(row["sealed"]) for row in stored for key in keys)


async def test_a_redirect_is_not_followed_and_counts_as_a_failure(business: Business) -> None:
    async with receiver(302, 302) as partner:
        await processed(business, partner.url)
        await service(business).deliver_due()
        rows = await query(business, "SELECT state, last_status FROM dagapp.webhook_deliveries")
        assert {(row["state"], row["last_status"]) for row in rows} == {("pending", 302)}


class Rebinding(AbstractResolver):
    """A name server that answers with an address inside."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        one = ResolveResult(
            hostname=host, host="10.0.0.1", port=port, family=family, proto=0, flags=socket.AI_NUMERICHOST
        )
        return [one]

    async def close(self) -> None:
        return None


async def test_a_name_that_leads_inside_is_not_connected_to(business: Business) -> None:
    await processed(business, "https://partner.example/hook")
    await service(business, resolver=Rebinding()).deliver_due()
    rows = await query(business, "SELECT state, last_status, last_error FROM dagapp.webhook_deliveries")
    assert {row["last_error"] for row in rows} == {"partner.example leads to an address that is not public"}
    assert {row["state"] for row in rows} == {"pending"}


async def test_nobody_listening_is_noted_and_tried_again(business: Business) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        await processed(business, f"http://127.0.0.1:{unused.getsockname()[1]}/hook")
        await service(business).deliver_due()
    rows = await query(business, "SELECT state, last_error FROM dagapp.webhook_deliveries")
    assert {(row["state"], row["last_error"]) for row in rows} == {("pending", "ClientConnectorError")}


async def test_what_nobody_took_for_three_days_expires_and_can_be_replayed(business: Business) -> None:
    async with receiver() as partner:
        await processed(business, partner.url)
        await query(business, "UPDATE dagapp.webhook_deliveries SET expires_at = dagapp.clock()")
        await service(business).deliver_due()
        assert partner.seen == []
        first, *_ = await service(business).deliveries("ddh", "expired", 10)
        again = await service(business).replay(ADMIN, first["delivery_id"])
        assert again["state"] == "pending"
        await service(business).deliver_due()
        assert [headers["webhook-id"] for headers, _ in partner.seen] == [first["delivery_id"]]
    with pytest.raises(NotFound):
        await service(business).replay(ADMIN, "msg_unknown")
    assert EXPIRY.days == 3


async def test_a_callback_url_of_the_submit_goes_before_the_platforms_own(business: Business) -> None:
    async with receiver() as partner, receiver() as other:
        await service(business).set_url(ADMIN, "ddh", WebhookAddressRequest(url=other.url))
        await business.processed(callback_url=partner.url)
        await service(business).deliver_due()
        assert len(partner.seen) == 2
        assert other.seen == []


async def test_a_platform_without_an_address_is_told_nothing(business: Business) -> None:
    await business.approve(await business.processed())
    assert await query(business, "SELECT 1 FROM dagapp.webhook_deliveries") == []


async def test_a_decision_that_rolls_back_tells_nobody(business: Business) -> None:
    async with receiver() as partner:
        accepted = await processed(business, partner.url)
        await query(business, "DELETE FROM dagapp.webhook_deliveries")
        async with business.pool.connection() as conn:
            await WebhookRepository(conn).announce(accepted.request_id, "approved")
            await conn.rollback()
        await service(business).deliver_due()
        assert partner.seen == []


async def test_an_unreadable_secret_is_logged_and_costs_no_delivery(business: Business) -> None:
    await service(business, keys=OTHER_KEY).rotate(ADMIN, "ddh")
    async with receiver() as partner:
        await processed(business, partner.url)
        await service(business).deliver_due()
        assert len(partner.seen) == 2
        assert "webhook-signature" not in partner.seen[0][0]


async def test_wrong_addresses_and_platforms_are_refused(business: Business) -> None:
    with pytest.raises(ParameterInvalid):
        await service(business).set_url(ADMIN, "ddh", WebhookAddressRequest(url="http://10.0.0.1/"))
    for call in (
        service(business).set_url(ADMIN, "nobody", WebhookAddressRequest(url=None)),
        service(business).rotate(ADMIN, "nobody"),
    ):
        with pytest.raises(NotFound):
            await call


def test_a_sealed_value_opens_only_in_its_place_and_with_its_key() -> None:
    seal = Seal(KEY)
    sealed = seal.seal(b"plain", "here")
    assert seal.open(sealed, "here") == b"plain"
    assert Seal(f"{OTHER_KEY},{KEY}").open(sealed, "here") == b"plain"
    for opener, text, place in ((seal, sealed, "there"), (Seal(OTHER_KEY), sealed, "here"), (seal, b"x", "here")):
        with pytest.raises(SealBroken):
            opener.open(text, place)


@pytest.mark.parametrize("keys", ["%", base64.b64encode(b"short").decode(), ""])
def test_a_key_that_is_none_stops_the_start(keys: str) -> None:
    with pytest.raises(SettingsError, match="SECRETS_KEY"):
        Seal(keys)
