"""Entra ID access tokens (JWT) as callers; the keys that sign them come from `edge.jwks`.

Every check is here and pure: signature by an allow-listed algorithm, issuer, audience, times, roles, platform.
Source: Microsoft identity platform, access tokens; RFC 7519, RFC 8725.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import jwt
from pydantic import TypeAdapter, ValidationError

from core.errors import Unauthenticated
from core.identity import PLATFORM_ROLES, Caller, Role
from repositories.settings import SettingsError, read_secret_file

log = logging.getLogger(__name__)

ALGORITHMS: Final = ("RS256", "ES256")
MAX_TOKEN_CHARACTERS: Final = 16_384
LEEWAY_SECONDS: Final = 60
_KEY_TYPES: Final = frozenset({"RSA", "EC"})
_ROLES: Final = {role.value: role for role in Role}
_PLATFORMS: Final = TypeAdapter(dict[str, str])

Keys = Mapping[str, Any]
"""Public keys by key id, as `parse_keys` returns them."""


@dataclass(frozen=True, slots=True)
class TokenPolicy:
    """What a token must say to be ours."""

    issuer: str
    audience: str
    platforms: Mapping[str, str] = field(default_factory=dict)
    """Platform by the application or user that is bound to it (claims `azp`, `appid` or `oid`)."""


def looks_like_a_token(presented: str) -> bool:
    """Return whether a credential is meant as a JWT rather than as an API key."""
    return presented.count(".") == 2 and presented.startswith("ey")


def key_id(token: str) -> str | None:
    """Return the id of the key that a token says it was signed with; nothing is verified yet.

    Raises:
        Unauthenticated: It is not a token that we accept.
    """
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise Unauthenticated("the token is too long")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.InvalidTokenError, ValueError) as error:
        raise Unauthenticated("the token cannot be read") from error
    if header.get("alg") not in ALGORITHMS:
        raise Unauthenticated(f"tokens are signed with {' or '.join(ALGORITHMS)}")
    kid = header.get("kid")
    return kid if isinstance(kid, str) else None


def parse_keys(document: Mapping[str, Any]) -> Keys:
    """Return the signing keys of a JWKS document (RFC 7517) by their id; keys of other kinds are left out.

    Raises:
        ValueError: It is no JWKS document.
    """
    listed = document.get("keys")
    if not isinstance(listed, list):
        raise ValueError("a JWKS document has a list `keys`")
    found: dict[str, Any] = {}
    for entry in listed:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig" or not isinstance(entry.get("kid"), str):
            continue
        if entry.get("kty") not in _KEY_TYPES:
            continue
        try:
            found[entry["kid"]] = jwt.PyJWK.from_dict(entry).key
        except jwt.PyJWTError as error:  # one key that nobody can read must not cost the others
            log.warning("identity key unreadable", extra={"kid": entry["kid"][:64], "error": type(error).__name__})
    return found


def verify(token: str, keys: Keys, policy: TokenPolicy) -> Caller:
    """Return the caller that a token stands for; service roles stay in it.

    Raises:
        Unauthenticated: Signature, issuer, audience, times or subject are not right.
    """
    key = keys.get(key_id(token) or "")
    if key is None:
        raise Unauthenticated("the token was signed with an unknown key")
    try:
        claims = jwt.decode(
            token,
            key,
            algorithms=list(ALGORITHMS),
            issuer=policy.issuer,
            audience=policy.audience,
            leeway=LEEWAY_SECONDS,
            options={"require": ["exp", "iss", "aud"]},
        )
    except jwt.ExpiredSignatureError as error:
        raise Unauthenticated("the token has expired", remediation="Get a new token and send it again.") from error
    except jwt.InvalidAudienceError as error:
        raise Unauthenticated("the token is for another audience") from error
    except jwt.InvalidTokenError as error:
        raise Unauthenticated(f"the token is not valid: {type(error).__name__}") from error
    return caller_of(claims, policy.platforms)


def caller_of(claims: Mapping[str, Any], platforms: Mapping[str, str]) -> Caller:
    """Return the caller of verified claims: roles we know, and platform roles only for whom a platform is bound."""
    subject = _text(claims, "oid") or _text(claims, "sub")
    if subject is None:
        raise Unauthenticated("the token names no subject")
    named = claims.get("roles")
    roles = {_ROLES[name] for name in map(_role_name, named if isinstance(named, list) else []) if name in _ROLES}
    bound = (platforms.get(identity) for name in ("azp", "appid", "oid") if (identity := _text(claims, name)))
    platform_id = next((platform for platform in bound if platform is not None), None)
    if platform_id is None:
        roles -= PLATFORM_ROLES
    return Caller(subject=subject, roles=frozenset(roles), platform_id=platform_id)


def _text(claims: Mapping[str, Any], name: str) -> str | None:
    value = claims.get(name)
    return value if isinstance(value, str) and value else None


def _role_name(value: object) -> str:
    """App roles are named as ours, with or without the prefix `geodag.`."""
    return str(value).lower().removeprefix("geodag.")


def read_platforms(path: Path | None) -> Mapping[str, str]:
    """Return who is bound to which platform, from a JSON file {application or object id: platform_id}.

    Raises:
        SettingsError: The file cannot be read or says something else.
    """
    if path is None:
        return {}
    try:
        return _PLATFORMS.validate_json(read_secret_file(path))
    except ValidationError as error:
        raise SettingsError(f"{path} must be a JSON object of texts: {{application id: platform_id}}") from error
