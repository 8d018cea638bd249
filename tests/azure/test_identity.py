"""The managed identity: real tokens of a real-enough endpoint, and what happens when it gives none or wrong ones."""

import json
import os
import ssl
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
from azure.identity import ManagedIdentityCredential
from pydantic import SecretStr

from cli.stack.azurite import Azurite
from core.errors import StorageUnavailable
from core.ports import BlobRef
from repositories.blob_signatures import Signatures
from repositories.managed_identity import POSTGRES, SERVICE_BUS, STORAGE, ManagedIdentity, NoToken, Token
from tests.azure.test_blobs import by_identity
from tests.peers.identity.server import ISSUER, TENANT, IdentityPeer
from tests.support.waiting import await_until

ROOT = Path(__file__).resolve().parents[2]
REF = BlobRef("silver", "identity/a")
PATHS = ("WORKFLOWS_DIR", "WORKER_STATE_DIR", "WORKER_SCRATCH_DIR", "API_KEYS_FILE")
URLS = ("PUBLIC_ORCHESTRATOR_URL", "PUBLIC_SERVING_URL", "PUBLIC_GATEWAY_URL", "ORCHESTRATOR_URL", "DAG_CALLBACK_URL")
PROCESSES = ("orchestrator.main", "worker.main", "serving.main", "function.local_host")
SECRETS = {
    "IDENTITY_HEADER": "secret-of-the-endpoint",
    "UPLOAD_KEY": "secret-of-uploads",
    "SECRETS_KEY": "c2VjcmV0LW9mLXNlYWxzLXNlY3JldC1vZi1zZWFscyE=",
    "WORKER_SERVICE_KEY": "secret-of-the-worker",
    "GATEWAY_SERVICE_KEY": "secret-of-the-gateway",
}


def verified(identity: IdentityPeer, token: str, audience: str) -> dict[str, Any]:
    """Return the claims of a token as a service reads them: by the keys that the issuer publishes."""
    with urllib.request.urlopen(f"{identity.url}/keys", timeout=5) as answer:
        keys = jwt.PyJWKSet.from_dict(json.load(answer))
    key = keys[jwt.get_unverified_header(token)["kid"]]
    claims: dict[str, Any] = jwt.decode(token, key, ["RS256"], audience=audience, issuer=ISSUER)
    return claims


def test_the_endpoint_is_one_that_azures_own_client_knows(
    identity: IdentityPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in identity.environment().items():
        monkeypatch.setenv(name, value)
    with ManagedIdentityCredential(client_id="mine") as theirs:
        token = theirs.get_token(f"{STORAGE}/.default")
    ours = ManagedIdentity(identity.endpoint, SecretStr(identity.header), "mine").token(STORAGE)
    for text in (token.token, ours.text):
        claims = verified(identity, text, STORAGE)
        assert (claims["tid"], claims["oid"]) == (TENANT, identity.oid)
    asked = {"api-version": "2019-08-01", "resource": STORAGE, "client_id": "mine"}
    assert identity.queries == [asked, asked]


def test_virtual_machines_have_another_door_to_the_same_tokens(identity: IdentityPeer) -> None:
    provider = ManagedIdentity(identity.url)
    for resource in (POSTGRES, STORAGE, SERVICE_BUS):
        assert verified(identity, provider.token(resource).text, resource)["aud"] == resource
        assert provider.token(resource) == provider.token(resource)
    assert len(identity.issued) == 3


def test_a_key_may_be_replaced_while_tokens_of_the_old_one_live(identity: IdentityPeer) -> None:
    provider = ManagedIdentity(identity.endpoint, SecretStr(identity.header))
    before = provider.token(STORAGE).text
    identity.rotate()
    after = provider.token(SERVICE_BUS).text
    assert jwt.get_unverified_header(before)["kid"] != jwt.get_unverified_header(after)["kid"]
    assert verified(identity, before, STORAGE)
    assert verified(identity, after, SERVICE_BUS)
    forged = before.rpartition(".")[0] + "." + after.rpartition(".")[2]
    with pytest.raises(jwt.InvalidSignatureError):
        verified(identity, forged, STORAGE)


def test_who_is_nobody_there_is_told_so_at_once(identity: IdentityPeer) -> None:
    identity.clients = frozenset({"mine"})
    stranger = ManagedIdentity(identity.endpoint, SecretStr(identity.header), "another")
    intruder = ManagedIdentity(identity.endpoint, SecretStr("guessed"), "mine")
    for provider, status in ((stranger, 400), (intruder, 401)):
        with pytest.raises(NoToken, match=f"HTTP {status}") as refused:
            provider.prove(POSTGRES, patience_seconds=60)
        assert refused.value.refused
        assert identity.header not in str(refused.value)


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": SERVICE_BUS},
        {"exp": 1_000_000_000, "nbf": 999_999_000},
        {"nbf": 4_000_000_000},
        {"iss": "https://x.example/"},
    ],
    ids=["audience", "expired", "not yet", "issuer"],
)
async def test_a_token_that_the_storage_refuses_is_told_to_nobody(
    secure_azurite: Azurite, identity: IdentityPeer, secure_zones: None, claims: dict[str, Any]
) -> None:
    """The signature is not among them: Azurite looks at none. Our own peers do, see their tests."""
    identity.claims = claims
    blobs = by_identity(secure_azurite, identity)
    with pytest.raises(StorageUnavailable) as refused:
        await blobs.create(REF, b"x")
    assert "403" in str(refused.value)
    assert identity.issued[-1] not in f"{refused.value} {refused.value.detail}"
    await blobs.close()


async def test_an_endpoint_that_is_away_around_the_end_of_a_token_costs_nothing_until_then(
    secure_azurite: Azurite, identity: IdentityPeer, secure_zones: None
) -> None:
    clock, identity.life_seconds = [datetime.now(UTC).timestamp()], 200.0
    blobs = by_identity(secure_azurite, identity, now=lambda: clock[0])
    await blobs.create(REF, b"x")
    identity.broken = (503, b"")
    clock[0] += 150
    assert await blobs.read(REF, 10) == b"x", "stale, but good"
    clock[0] += 100
    with pytest.raises(NoToken) as away:
        await blobs.read(BlobRef("silver", "identity/b"), 10)
    assert away.value.detail.classification == "transient"
    identity.broken, identity.life_seconds = None, 1000.0
    assert await blobs.read(REF, 10) == b"x"
    await blobs.close()


def test_an_endpoint_that_hangs_holds_nobody_up_whose_token_is_good(identity: IdentityPeer) -> None:
    clock, asked, go_on = [0.0], threading.Event(), threading.Event()

    class Slow(ManagedIdentity):
        def _fetch(self, resource: str) -> Token:
            if clock[0]:
                asked.set()
                assert go_on.wait(10)
            return Token(f"at {clock[0]}", clock[0] + 100, clock[0] + 50)

    provider = Slow(identity.endpoint, now=lambda: clock[0])
    first = provider.token(STORAGE)
    clock[0] = 60
    with ThreadPoolExecutor(1) as beside:
        renewed = beside.submit(provider.token, STORAGE)
        assert asked.wait(10)
        assert provider.token(STORAGE) == first
        go_on.set()
        assert renewed.result(10).text == "at 60"
    assert provider.token(STORAGE).text == "at 60"


@pytest.mark.parametrize("minutes", [-4, 4])
async def test_clocks_that_differ_by_minutes_cost_nothing(
    secure_azurite: Azurite, identity: IdentityPeer, secure_zones: None, minutes: int
) -> None:
    off = timedelta(minutes=minutes)
    blobs = by_identity(secure_azurite, identity, now=lambda: (datetime.now(UTC) + off).timestamp())
    await blobs.create(REF, b"x")
    service = blobs.accounts[REF.container].service
    signature = await Signatures(service, 600, now=lambda: datetime.now(UTC) + off).of(REF)
    async with aiohttp.ClientSession() as session:
        tls = ssl.create_default_context(cafile=secure_azurite.certificate)
        async with session.get(f"{service.url}{REF}?{signature.query}", ssl=tls) as answer:
            assert (answer.status, await answer.read()) == (200, b"x")
    await blobs.close()


async def test_a_clock_that_is_hours_off_is_told_and_all_is_well_once_it_is_right(
    secure_azurite: Azurite, identity: IdentityPeer, secure_zones: None
) -> None:
    off, identity.life_seconds = [7200.0], 2.0
    blobs = by_identity(secure_azurite, identity, now=lambda: datetime.now(UTC).timestamp() + off[0])
    with pytest.raises(NoToken, match="ended before it came") as ahead:
        await blobs.create(REF, b"x")
    assert ahead.value.detail.classification == "transient"
    off[0] = -7200
    await blobs.create(REF, b"x")

    async def refused() -> bool:
        try:
            await blobs.read(REF, 10)
        except StorageUnavailable as error:
            return "403" in str(error) or "401" in str(error)
        return False

    await await_until(refused, "a token that ended is refused, whatever our clock says of it", 10, every=0.2)
    off[0] = 0
    assert await blobs.read(REF, 10) == b"x"
    await blobs.close()


@pytest.mark.parametrize("module", PROCESSES)
def test_no_process_starts_without_the_identity_it_was_told_to_have(module: str, tmp_path: Path) -> None:
    paths = {
        "WORKFLOWS_DIR": "w",
        "WORKER_STATE_DIR": "state",
        "WORKER_SCRATCH_DIR": "scratch",
        "API_KEYS_FILE": "keys",
    }
    urls = (
        "PUBLIC_ORCHESTRATOR_URL",
        "PUBLIC_SERVING_URL",
        "PUBLIC_GATEWAY_URL",
        "ORCHESTRATOR_URL",
        "DAG_CALLBACK_URL",
    )
    environment = {
        **SECRETS,
        **{name: str(tmp_path / folder) for name, folder in paths.items()},
        **dict.fromkeys(urls, "http://127.0.0.1:9"),
        "PATH": os.environ["PATH"],
        "POSTGRES_HOST": "127.0.0.1", "POSTGRES_DB": "d", "POSTGRES_USER": "u", "USE_MANAGED_IDENTITY": "true",
        "AZURE_STORAGE_ACCOUNT_NAME": "account", "ORCHESTRATOR_PORT": "0", "SERVING_PORT": "8080",
        "WORKER_QUEUE": "functionapp-tasks", "WORKER_TYPE": "light", "WORKER_HEALTH_PORT": "0",
        "IDENTITY_ENDPOINT": "http://127.0.0.1:9/msi/token", "IDENTITY_PATIENCE_SECONDS": "0",
    }  # fmt: skip
    command = [sys.executable, "-m", module]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert "USE_MANAGED_IDENTITY: the managed identity gives no token: URLError" in ended.stderr
    assert [name for name, secret in SECRETS.items() if secret in ended.stderr + ended.stdout] == []
