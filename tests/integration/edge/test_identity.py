"""Keys of the provider over real HTTP: fetched once, again for an unknown key, kept while the provider is down."""

import base64
import json

import pytest

from core.errors import Unauthenticated
from core.identity import SERVICE_HEADER, Role
from edge.identity import Identity, Tokens
from edge.jwks import KEEP_SECONDS, MAX_BYTES, MIN_INTERVAL_SECONDS, REFRESH_SECONDS, IdentityUnavailable, JwksCache
from edge.tokens import TokenPolicy
from tests.support.business import key_file
from tests.support.tokens import AUDIENCE, ISSUER, Provider, SigningKey, provider

FIRST, SECOND = SigningKey("first"), SigningKey("second")


class Clock:
    """Monotonic seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def identity(source: Provider, clock: Clock, *, trusts_easyauth: bool = False) -> Identity:
    tokens = Tokens(TokenPolicy(ISSUER, AUDIENCE, {"app-1": "ddh"}), JwksCache(source.url, clock=clock))
    return Identity(key_file(), tokens, trusts_easyauth=trusts_easyauth)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def test_keys_are_fetched_once_and_again_when_they_are_old() -> None:
    async with provider(FIRST) as source:
        clock = Clock()
        door = identity(source, clock)
        for _ in range(3):
            await door.prepare(bearer(FIRST.token()))
            found = door.caller(bearer(FIRST.token()))
            assert found is not None
            assert found.subject == "alice"
        assert source.asked == 1
        clock.now += REFRESH_SECONDS + 1
        await door.prepare(bearer(FIRST.token()))
        assert source.asked == 2


async def test_a_rotated_key_is_found_and_a_made_up_one_does_not_make_us_ask_all_the_time() -> None:
    async with provider(FIRST) as source:
        clock = Clock()
        door = identity(source, clock)
        await door.prepare(bearer(FIRST.token()))
        source.keys.append(SECOND)
        clock.now += MIN_INTERVAL_SECONDS + 1
        await door.prepare(bearer(SECOND.token()))
        assert door.caller(bearer(SECOND.token())) is not None
        for _ in range(5):
            await door.prepare(bearer(SigningKey("made-up").token()))
        assert source.asked == 2


async def test_keys_outlive_an_outage_of_a_day_and_no_longer() -> None:
    async with provider(FIRST) as source:
        clock = Clock()
        door = identity(source, clock)
        await door.prepare(bearer(FIRST.token()))
        source.down = True
        clock.now += KEEP_SECONDS - 1
        await door.prepare(bearer(FIRST.token()))
        assert door.caller(bearer(FIRST.token())) is not None
        clock.now += 2
        with pytest.raises(IdentityUnavailable):
            door.caller(bearer(FIRST.token()))


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b" " * (MAX_BYTES + 1)], ids=["cut", "list", "empty", "long"])
async def test_without_usable_keys_nobody_gets_in_with_a_token(body: bytes) -> None:
    async with provider(FIRST) as source:
        source.raw = body
        door = identity(source, Clock())
        await door.prepare(bearer(FIRST.token()))
        with pytest.raises(IdentityUnavailable):
            door.caller(bearer(FIRST.token()))


async def test_a_service_may_prove_itself_with_a_token_and_is_nobody_as_a_caller() -> None:
    async with provider(FIRST) as source:
        door = identity(source, Clock())
        token = FIRST.token(roles=["geodag.gateway"])
        await door.prepare({SERVICE_HEADER: token})
        assert door.is_service({SERVICE_HEADER: token}, Role.GATEWAY)
        assert not door.is_service({SERVICE_HEADER: token}, Role.WORKER)
        with pytest.raises(Unauthenticated):
            door.caller(bearer(token))


async def test_a_spoofed_principal_counts_for_nothing_unless_the_platform_sets_it() -> None:
    claims = [{"typ": "oid", "val": "app-1"}, {"typ": "roles", "val": "submitter"}, {"typ": "roles", "val": "admin"}]
    header = {"X-MS-CLIENT-PRINCIPAL": base64.b64encode(json.dumps({"claims": claims}).encode()).decode()}
    async with provider(FIRST) as source:
        assert identity(source, Clock()).caller(header) is None
        trusted = identity(source, Clock(), trusts_easyauth=True).caller(header)
        assert trusted is not None
        assert trusted.roles == {Role.SUBMITTER}
