"""Secrets at rest: AES-256-GCM under SECRETS_KEY, which may hold two keys while it is rotated."""

import base64
import binascii
import secrets
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from core.errors import GeodagError
from repositories.settings import SettingsError

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12


class SealBroken(GeodagError):
    """A sealed value was made under a key that is not here any more, or was changed."""

    code = "SEAL_BROKEN"


class Seal:
    """Seals and opens; `context` binds a value to its place, so that it opens nowhere else."""

    def __init__(self, keys: str) -> None:
        """Take one or two base64 keys of 32 bytes, separated by a comma; the first one seals.

        Raises:
            SettingsError: They are something else.
        """
        self._keys = [_key(text) for text in keys.split(",")]

    def seal(self, plain: bytes, context: str) -> bytes:
        """Return nonce and ciphertext."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + self._keys[0].encrypt(nonce, plain, context.encode())

    def open(self, sealed: bytes, context: str) -> bytes:
        """Return the plain value; raises `SealBroken`."""
        nonce, text = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
        for key in self._keys:
            try:
                return key.decrypt(nonce, text, context.encode())
            except (InvalidTag, ValueError):
                continue
        raise SealBroken("a sealed value cannot be opened; SECRETS_KEY lacks the key it was sealed with")


def _key(text: str) -> AESGCM:
    try:
        raw = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise SettingsError("SECRETS_KEY must be base64") from error
    if len(raw) != KEY_BYTES:
        raise SettingsError(f"SECRETS_KEY must hold keys of {KEY_BYTES} bytes in base64, got one of {len(raw)}")
    return AESGCM(raw)
