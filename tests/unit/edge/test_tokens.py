"""Tokens of Entra ID: only what is signed, current, ours and bound counts."""

import base64
import json
import time

import jwt
import pytest

from core.errors import Unauthenticated
from core.identity import Role
from edge.easyauth import principal
from edge.tokens import Keys, TokenPolicy, key_id, looks_like_a_token, parse_keys, verify
from tests.support.tokens import AUDIENCE, ISSUER, SigningKey

KEY, OTHER = SigningKey("one"), SigningKey("other")
POLICY = TokenPolicy(ISSUER, AUDIENCE, {"app-1": "ddh"})


@pytest.fixture(scope="module")
def keys() -> Keys:
    return parse_keys({"keys": [KEY.jwk()]})


def test_a_right_token_is_its_subject_with_its_roles(keys: Keys) -> None:
    caller = verify(KEY.token(roles=["geodag.Operator", "reviewer", "unheard-of"]), keys, POLICY)
    assert (caller.subject, caller.roles) == ("alice", {Role.OPERATOR, Role.REVIEWER})


def test_a_platform_role_counts_only_for_whom_a_platform_is_bound(keys: Keys) -> None:
    bound = verify(KEY.token(roles=["submitter"], azp="app-1"), keys, POLICY)
    assert (bound.platform_id, bound.roles) == ("ddh", {Role.SUBMITTER})
    stranger = verify(KEY.token(roles=["submitter", "operator"], azp="app-2"), keys, POLICY)
    assert (stranger.platform_id, stranger.roles) == (None, {Role.OPERATOR})


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"exp": int(time.time()) - 3600}, "expired"),
        ({"nbf": int(time.time()) + 3600}, "not valid"),
        ({"exp": None}, "not valid"),
        ({"aud": "api://somebody-else"}, "another audience"),
        ({"aud": None}, "not valid"),
        ({"iss": "https://login.example/other/v2.0"}, "not valid"),
        ({"iss": None}, "not valid"),
        ({"oid": None}, "no subject"),
    ],
    ids=["expired", "not yet", "no expiry", "other audience", "no audience", "other issuer", "no issuer", "nobody"],
)
def test_a_token_with_one_wrong_claim_is_refused(keys: Keys, claims: dict[str, object], message: str) -> None:
    with pytest.raises(Unauthenticated, match=message):
        verify(KEY.token(**claims), keys, POLICY)


def test_a_token_of_another_key_under_a_known_id_is_refused(keys: Keys) -> None:
    forged = OTHER.token(headers={"kid": "one"})
    with pytest.raises(Unauthenticated, match="not valid"):
        verify(forged, keys, POLICY)
    with pytest.raises(Unauthenticated, match="unknown key"):
        verify(OTHER.token(), keys, POLICY)


def test_an_unsigned_token_and_one_signed_with_the_public_key_as_a_secret_are_refused(keys: Keys) -> None:
    claims = jwt.decode(KEY.token(), options={"verify_signature": False})
    unsigned = jwt.encode(claims, None, "none", {"kid": "one"})
    with pytest.raises(Unauthenticated, match="RS256 or ES256"):
        verify(unsigned, keys, POLICY)
    confused = jwt.encode(claims, "x" * 64, "HS256", {"kid": "one"})
    with pytest.raises(Unauthenticated, match="RS256 or ES256"):
        verify(confused, keys, POLICY)


def test_a_changed_payload_is_refused(keys: Keys) -> None:
    head, payload, signature = KEY.token(roles=["reader"]).split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    claims["roles"] = ["admin"]
    swapped = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    with pytest.raises(Unauthenticated):
        verify(f"{head}.{swapped}.{signature}", keys, POLICY)


@pytest.mark.parametrize("text", ["ey.a.b", "eyJ.." * 2, "ey" + "a" * 20_000 + ".b.c"], ids=["short", "dots", "long"])
def test_what_is_no_token_is_refused_not_raised(text: str) -> None:
    with pytest.raises(Unauthenticated):
        key_id(text)


def test_an_api_key_is_not_taken_for_a_token() -> None:
    assert not looks_like_a_token("gk_0123456789abcdef")
    assert looks_like_a_token(KEY.token())


def test_a_key_that_nobody_can_read_costs_no_other() -> None:
    broken = {"kid": "bad", "kty": "RSA", "n": "!", "e": "AQAB"}
    other_use = KEY.jwk() | {"kid": "enc", "use": "enc"}
    assert set(parse_keys({"keys": [broken, KEY.jwk(), other_use, "text", {"kty": "oct", "kid": "s"}]})) == {"one"}
    with pytest.raises(ValueError, match="list"):
        parse_keys({})


def encoded(*claims: tuple[str, str]) -> str:
    return base64.b64encode(json.dumps({"claims": [{"typ": t, "val": v} for t, v in claims]}).encode()).decode()


def test_a_principal_is_at_most_reader_and_submitter() -> None:
    header = encoded(("oid", "app-1"), ("roles", "admin"), ("roles", "submitter"), ("roles", "reviewer"))
    caller = principal(header, {"app-1": "ddh"})
    assert (caller.roles, caller.platform_id) == ({Role.SUBMITTER}, "ddh")


@pytest.mark.parametrize("header", ["%%%", "e30=", base64.b64encode(b'{"claims": [1]}').decode(), "a" * 20_000])
def test_a_principal_that_cannot_be_read_is_refused(header: str) -> None:
    with pytest.raises(Unauthenticated):
        principal(header, {})
