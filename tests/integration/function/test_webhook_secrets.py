"""A platform's webhooks from the order of an admin to a receiver that verifies what it gets."""

import asyncio
import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from orchestrator.settings import OrchestratorSettings
from tests.integration.business.test_webhooks import receiver
from tests.integration.function.conftest import Platform
from tests.support.waiting import await_until

SECRETS, ADDRESS = "/api/platform/webhooks/ddh/secrets", "/api/platform/webhooks/ddh"


@pytest.fixture
def settings(settings: OrchestratorSettings) -> OrchestratorSettings:
    """Return settings with which a receiver may listen here."""
    return settings.model_copy(update={"webhook_allow_loopback": True})


def is_signed(secret: str, headers: Any, content: bytes) -> bool:
    """Verify as Standard Webhooks says."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + content
    wanted = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return f"v1,{wanted}" in headers["webhook-signature"].split(" ")


async def geodag(platform: Platform, *words: str) -> Any:
    env = {"GEODAG_GATEWAY_URL": platform.gateway, "GEODAG_API_KEY": "key-admin"}
    result = await asyncio.to_thread(CliRunner().invoke, app, ["webhooks", *words, "--json"], env=env)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def test_an_admin_makes_a_secret_and_the_receiver_verifies_with_it(platform: Platform, caplog: Any) -> None:
    async with receiver() as partner:
        url, seen = partner.url, partner.seen
        first = await platform.call("POST", SECRETS, "admin", {"reason": "first secret"})
        assert (first.status, first.headers["Cache-Control"]) == (201, "no-store")
        assert first.body["former_valid_until"] is None
        assert (await geodag(platform, "address", "ddh", url, "--reason", "theirs"))["url"] == url
        second = await geodag(platform, "rotate", "ddh")
        assert second["former_valid_until"] is not None
        accepted = await platform.submit()
        await platform.end_job(accepted["request_id"])
        await await_until(lambda: asyncio.sleep(0, len(seen) == 2), "both are told")
        for secret in (first.body["secret"], second["secret"]):
            assert all(is_signed(secret, headers, content) for headers, content in seen)
        third = (await platform.call("POST", SECRETS, "admin")).body["secret"]
        seen.clear()
        rejection = {"reason": "feet"}
        await platform.call("POST", f"/api/assets/{accepted['asset_id']}/versions/0/reject", "reviewer", rejection)
        await await_until(lambda: asyncio.sleep(0, len(seen) == 1), "the rejection is told")
        (told,) = seen
        assert [is_signed(secret, *told) for secret in (first.body["secret"], second["secret"], third)] == [
            False,
            True,
            True,
        ]
    audit = (await platform.call("GET", "/api/admin/audit?platform_id=ddh", "operator")).body["entries"]
    made = [entry for entry in audit if entry["action"].startswith("webhook_")]
    assert [(e["action"], e["actor"], e["reason"]) for e in made][-2:] == [
        ("webhook_address_set", "admin", "theirs"),
        ("webhook_secret_made", "admin", "first secret"),
    ]
    for secret in (first.body["secret"], second["secret"], third):
        assert secret.removeprefix("whsec_") not in json.dumps(audit) + caplog.text
        async with platform.orchestrator.context.pool.connection() as conn:
            rows = await (await conn.execute("SELECT s::text FROM dagapp.webhook_secrets AS s")).fetchall()
            assert not [row for row in rows if secret.removeprefix("whsec_") in row[0]]


async def test_secrets_and_addresses_are_for_admins_alone(platform: Platform) -> None:
    for method, path, body in (("POST", SECRETS, {}), ("PUT", ADDRESS, {"url": None})):
        for caller in ("submitter", "reader", "reviewer", "operator"):
            assert (await platform.call(method, path, caller, body)).status == 403
        assert (await platform.call(method, path, None, body)).status == 401
        assert (await platform.call(method, path.replace("ddh", "nobody"), "admin", body)).status == 404
    for wrong in (
        {},
        {"url": 5},
        {"url": "http://10.0.0.1/"},
        {"url": "https://x.example/\u202e"},
        {"url": None, "x": 1},
    ):
        reply = await platform.call("PUT", ADDRESS, "admin", wrong)
        assert (reply.status, reply.body["field"]) == (422, "x" if "x" in wrong else "url")
    assert (await platform.call("POST", SECRETS, "admin", {"secret": "mine"})).body["field"] == "secret"
