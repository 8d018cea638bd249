"""Who may do what: shared access signatures and tokens of Entra, judged for one audience each.

A token opens the path it was put for and everything below it, for its rights, until it expires.
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final
from urllib.parse import parse_qs

from tests.peers.servicebus.errors import UNAUTHORIZED, BrokerError

DEVELOPMENT_RULE: Final = "RootManageSharedAccessKey"
DEVELOPMENT_KEY: Final = "SAS_KEY_VALUE"
"""What the official emulator takes."""
_SIGNATURE: Final = "SharedAccessSignature "
_SHA256_INFO: Final = bytes.fromhex("3031300d060960864801650304020105000420")
"""What stands before a SHA-256 hash in a signature of RSA PKCS #1 1.5 (RFC 8017, 9.2)."""


class Claim(StrEnum):
    """A right; Manage holds the other two."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


ALL: Final = frozenset(Claim)


@dataclass(frozen=True, slots=True)
class SharedKey:
    """An authorization rule."""

    name: str = DEVELOPMENT_RULE
    key: str = field(default=DEVELOPMENT_KEY, repr=False)
    claims: frozenset[Claim] = ALL


@dataclass(frozen=True, slots=True)
class Directory:
    """Whose tokens are believed, and what their bearers may do.

    `rights` leads from an `oid` to its claims by path; the path "" is the whole namespace.
    """

    jwks: Mapping[str, Any]
    issuer: str
    audiences: frozenset[str] = frozenset({"https://servicebus.azure.net", "https://servicebus.azure.net/"})
    rights: Mapping[str, Mapping[str, frozenset[Claim]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Grant:
    """What one token opens."""

    path: str
    claims: frozenset[Claim]
    expires_at: float

    def allows(self, path: str, claim: Claim, now: float) -> bool:
        """Return whether it opens a path for a right now."""
        held = claim in self.claims or Claim.MANAGE in self.claims
        return held and now < self.expires_at and covers(self.path, path)


def path_of(address: str) -> str:
    """Return the path in an address such as `amqps://host:5671/queue`, or `queue`."""
    if "://" in address:
        address = address.partition("://")[2].partition("/")[2]
    return address.strip("/")


def covers(above: str, path: str) -> bool:
    """Return whether a path is, or lies below, another one."""
    above, path = above.lower(), path.lower()
    return not above or path == above or path.startswith(above + "/")


@dataclass(frozen=True, slots=True)
class Gatekeeper:
    """Judges tokens."""

    keys: tuple[SharedKey, ...] = (SharedKey(),)
    directory: Directory | None = None

    def admit(self, token: str, audience: str, now: float) -> Grant:
        """Return what a token opens of the audience it was put for.

        Raises:
            BrokerError: nothing; the reason names no part of the token.
        """
        if token.startswith(_SIGNATURE):
            return self._admit_signature(token.removeprefix(_SIGNATURE), path_of(audience), now)
        return self._admit_jwt(token, path_of(audience), now)

    def admit_password(self, name: str, key: str) -> Grant:
        """Return what a rule's name and key open when SASL PLAIN brings them."""
        rule = self._rule(name)
        if not hmac.compare_digest(rule.key, key):
            raise _refused("the key is wrong")
        return Grant("", rule.claims, float("inf"))

    def _rule(self, name: str) -> SharedKey:
        for rule in self.keys:
            if rule.name == name:
                return rule
        raise _refused("there is no such rule")

    def _admit_signature(self, query: str, path: str, now: float) -> Grant:
        raw = dict(part.partition("=")[::2] for part in query.split("&"))
        fields = {name: values[0] for name, values in parse_qs(query).items()}
        try:
            expires_at, signature = float(fields["se"]), base64.b64decode(fields["sig"], validate=True)
            name, scope, signed = fields["skn"], path_of(fields["sr"]), f"{raw['sr']}\n{raw['se']}"
        except (KeyError, ValueError, binascii.Error):
            raise _refused("the signature's fields cannot be read") from None
        rule = self._rule(name)
        if not hmac.compare_digest(hmac.digest(rule.key.encode(), signed.encode(), "sha256"), signature):
            raise _refused("the signature is wrong")
        if expires_at <= now:
            raise _refused("the signature has expired")
        if not covers(scope, path):
            raise _refused("the signature is for another path")
        return Grant(path, rule.claims, expires_at)

    def _admit_jwt(self, token: str, path: str, now: float) -> Grant:
        if self.directory is None:
            raise _refused("no directory is trusted here")
        claims = verified_claims(token, self.directory.jwks)
        if (audience := claims.get("aud")) is None or str(audience) not in self.directory.audiences:
            raise _refused("the token is for another audience")
        if claims.get("iss") != self.directory.issuer:
            raise _refused("the token is of another issuer")
        expires_at, begins_at = claims.get("exp"), claims.get("nbf", 0)
        if not isinstance(expires_at, int | float) or expires_at <= now:
            raise _refused("the token has expired")
        if not isinstance(begins_at, int | float) or begins_at > now:
            raise _refused("the token is not valid yet")
        rights = self.directory.rights.get(str(claims.get("oid")), {})
        held = frozenset(claim for above, given in rights.items() if covers(above, path) for claim in given)
        if not held:
            raise _refused("the bearer has no right here")
        return Grant(path, held, float(expires_at))


def verified_claims(token: str, jwks: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claims of a JWT that one of the keys signed with RS256.

    Raises:
        BrokerError: none did, or this is no such token.
    """
    try:
        header_part, claims_part, signature_part = token.split(".")
        header, claims = json.loads(_unpadded(header_part)), json.loads(_unpadded(claims_part))
        signature = _unpadded(signature_part)
        algorithm, kid = header["alg"], header["kid"]
    except (ValueError, KeyError, TypeError):
        raise _refused("this is no token") from None
    key = next((key for key in jwks["keys"] if key.get("kid") == kid and key.get("kty") == "RSA"), None)
    if algorithm != "RS256" or key is None or not isinstance(claims, dict):
        raise _refused("no trusted key signs so")
    if not _is_signed(f"{header_part}.{claims_part}".encode(), signature, key):
        raise _refused("the token's signature is wrong")
    return claims


def _is_signed(signed: bytes, signature: bytes, key: Mapping[str, str]) -> bool:
    modulus, exponent = (int.from_bytes(_unpadded(key[part]), "big") for part in ("n", "e"))
    size = (modulus.bit_length() + 7) // 8
    found = int.from_bytes(signature, "big")
    if len(signature) != size or found >= modulus:
        return False
    tail = _SHA256_INFO + hashlib.sha256(signed).digest()
    wanted = b"\x00\x01" + b"\xff" * (size - len(tail) - 3) + b"\x00" + tail
    return hmac.compare_digest(pow(found, exponent, modulus).to_bytes(size, "big"), wanted)


def _unpadded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _refused(reason: str) -> BrokerError:
    return BrokerError(UNAUTHORIZED, f"Unauthorized access: {reason}.")
