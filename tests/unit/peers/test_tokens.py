"""Only what is signed, current, and for this place opens anything; and a refusal repeats nothing of the token."""

import base64
import hmac
from typing import Any
from urllib.parse import quote_plus

import jwt
import pytest

from tests.peers.servicebus.auth import ALL, Claim, Directory, Gatekeeper, Grant, SharedKey, covers, path_of
from tests.peers.servicebus.errors import UNAUTHORIZED, BrokerError
from tests.support.tokens import ISSUER, SigningKey

NOW = 1_800_000_000.0
BUS = "https://servicebus.azure.net"
KEY, STRANGER = SigningKey("one"), SigningKey("one")
RULES = (SharedKey("owner", "secret-of-owner"), SharedKey("reader", "secret-of-reader", frozenset({Claim.LISTEN})))
RIGHTS = {"worker": {"work": frozenset({Claim.LISTEN})}, "lead": {"": ALL}, "nobody": {}}
GATE = Gatekeeper(RULES, Directory({"keys": [KEY.jwk()]}, ISSUER, rights=RIGHTS))


def _signature(
    scope: str = "sb://bus/work", rule: str = "owner", key: str = "secret-of-owner", expires_at: float = NOW + 60
) -> str:
    signed = f"{quote_plus(scope)}\n{int(expires_at)}"
    digest = base64.b64encode(hmac.digest(key.encode(), signed.encode(), "sha256")).decode()
    return f"SharedAccessSignature sr={quote_plus(scope)}&sig={quote_plus(digest)}&se={int(expires_at)}&skn={rule}"


def _token(key: SigningKey = KEY, **claims: Any) -> str:
    usual = {"aud": BUS, "oid": "worker", "exp": int(NOW) + 60, "nbf": int(NOW) - 10, "roles": None}
    return key.token(**(usual | claims))


def _refusal(token: str, audience: str = "sb://bus/work", now: float = NOW) -> str:
    with pytest.raises(BrokerError) as refused:
        GATE.admit(token, audience, now)
    assert refused.value.condition == UNAUTHORIZED
    assert not token or token[-20:] not in refused.value.description
    return refused.value.description


def test_a_signature_opens_its_path_for_the_rights_of_its_rule() -> None:
    grant = GATE.admit(_signature(), "sb://bus/work", NOW)
    assert grant == Grant("work", ALL, NOW + 60)
    below = GATE.admit(_signature("sb://bus/", "reader", "secret-of-reader"), "amqps://bus:5671/other", NOW)
    assert below == Grant("other", frozenset({Claim.LISTEN}), NOW + 60)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (_signature(key="guessed"), "signature is wrong"),
        (_signature(rule="nobody"), "no such rule"),
        (_signature(rule="reader"), "signature is wrong"),
        (_signature(expires_at=NOW), "expired"),
        (_signature(scope="sb://bus/other"), "another path"),
        (_signature(scope="sb://bus/wor"), "another path"),
        (_signature().replace("se=1", "se=2"), "signature is wrong"),
        (_signature().replace("sr=sb", "sr=SB"), "signature is wrong"),
        ("SharedAccessSignature sr=x&se=1&skn=owner", "cannot be read"),
        ("SharedAccessSignature sr=x&sig=!&se=1&skn=owner", "cannot be read"),
        ("SharedAccessSignature sr=x&sig=YQ%3D%3D&se=soon&skn=owner", "cannot be read"),
        ("SharedAccessSignature sr=x&sig=YQ%3D%3D&se=nan&skn=owner", "signature is wrong"),
        ("SharedAccessSignature", "no token"),
        ("", "no token"),
    ],
    ids=lambda value: value if " " in value and "=" not in value else "",
)
def test_a_signature_that_is_not_right_opens_nothing(token: str, reason: str) -> None:
    assert reason in _refusal(token)


def test_a_token_opens_what_its_bearer_may_do() -> None:
    assert GATE.admit(_token(), "sb://bus/work/$management", NOW).claims == {Claim.LISTEN}
    assert GATE.admit(_token(oid="lead"), "sb://bus/other", NOW) == Grant("other", ALL, NOW + 60)


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": int(NOW)}, "expired"),
        ({"exp": None}, "expired"),
        ({"exp": True}, "expired"),
        ({"exp": "never"}, "expired"),
        ({"nbf": int(NOW) + 1}, "not valid yet"),
        ({"nbf": "now"}, "not valid yet"),
        ({"aud": "https://storage.azure.com"}, "another audience"),
        ({"aud": [BUS, "https://storage.azure.com"]}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"iss": "https://login.example/other/v2.0"}, "another issuer"),
        ({"oid": "stranger"}, "no right"),
        ({"oid": "nobody"}, "no right"),
        ({"oid": None}, "no right"),
        ({"key": STRANGER}, "signature is wrong"),
        ({"key": SigningKey("two")}, "no trusted key"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_token_that_is_not_right_opens_nothing(claims: dict[str, Any], reason: str) -> None:
    assert reason in _refusal(_token(**claims))


def test_a_bearer_may_do_nothing_elsewhere() -> None:
    assert "no right" in _refusal(_token(), "sb://bus/other")
    assert "no right" in _refusal(_token(), "sb://bus/")


@pytest.mark.parametrize("form", ["none", "hmac", "cut", "swapped", "garbled", "short", "claims"])
def test_a_forged_token_opens_nothing(form: str) -> None:
    head, claims, signature = _token().split(".")
    forged = {
        "none": jwt.encode({"aud": BUS, "oid": "lead"}, "", "none", {"kid": "one"}),
        "hmac": jwt.encode({"aud": BUS, "oid": "lead"}, "n" * 64, "HS256", {"kid": "one"}),
        "cut": f"{head}.{claims}.",
        "swapped": f"{head}.{_token(oid='lead').split('.')[1]}.{signature}",
        "garbled": f"{head}.{claims}.{signature[:-8]}AAAAAAAA",
        "short": f"{head}.{claims}.{signature[:100]}",
        "claims": f"{head}.W10.{signature}",
    }[form]
    assert _refusal(forged)


def test_without_a_directory_no_token_opens_anything() -> None:
    with pytest.raises(BrokerError, match="no directory"):
        Gatekeeper(RULES).admit(_token(), "sb://bus/work", NOW)


def test_a_grant_ends_and_covers_only_what_lies_below() -> None:
    grant = Grant("work", frozenset({Claim.SEND}), 100)
    assert grant.allows("Work/$DeadLetterQueue", Claim.SEND, 99)
    assert not grant.allows("work", Claim.LISTEN, 99)
    assert not grant.allows("work", Claim.SEND, 100)
    assert not grant.allows("workshop", Claim.SEND, 0)
    assert Grant("", frozenset({Claim.MANAGE}), 100).allows("any", Claim.LISTEN, 0)
    assert (covers("", "a"), covers("a", ""), path_of("amqps://h:1/a/b"), path_of("a")) == (True, False, "a/b", "a")
