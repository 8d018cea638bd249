"""Keys and passwords of the local stack: made once, kept under its home, never on a command line or in a log.

`keys.json` holds digests and is all that the servers read; `credentials.json` (0600) holds the keys themselves, for
the `geodag` command of the same machine.
"""

import base64
import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from cli.stack.files import PRIVATE, READABLE, read_json, write_json
from core.identity import KeyEntry, KeyFile, Role
from repositories.roles import LOGIN_ROLES

KEY_OWNERS: Mapping[str, tuple[Role, str | None]] = {
    "submitter-ddh": (Role.SUBMITTER, "ddh"),
    "reader-ddh": (Role.READER, "ddh"),
    "reviewer": (Role.REVIEWER, None),
    "admin": (Role.ADMIN, None),
    "operator": (Role.OPERATOR, None),
    "gateway": (Role.GATEWAY, None),
    "worker": (Role.WORKER, None),
}
"""Subject of every key of the local stack, with its role and the platform it is bound to."""


class Credentials(BaseModel):
    """Everything secret of one local stack."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: dict[str, str] = Field(description="API and service keys by subject.", repr=False)
    passwords: dict[str, str] = Field(description="Database passwords by role.", repr=False)
    upload_key: str = Field(description="HMAC key of upload addresses.", repr=False)
    secrets_key: str = Field(default="", description="Base64 key that seals secrets in the database.", repr=False)
    service_bus_key: str = Field(default="", description="Base64 key of the Service Bus peer.", repr=False)
    storage_key: str = Field(default="", description="Base64 key of the storage account in Azurite.", repr=False)

    def key_file(self) -> KeyFile:
        """Return what the servers may know: digests, subjects and roles."""
        return KeyFile(keys=tuple(_entry(subject, self.keys[subject]) for subject in KEY_OWNERS))


def _entry(subject: str, key: str) -> KeyEntry:
    role, platform_id = KEY_OWNERS[subject]
    digest = hashlib.sha256(key.encode()).hexdigest()
    return KeyEntry(sha256=digest, subject=subject, roles=frozenset({role}), platform_id=platform_id)


def _missing(names: Mapping[str, object] | tuple[str, ...], known: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name: known.get(name) or f"{prefix}{secrets.token_urlsafe(32)}" for name in names}


def credentials_path(home: Path) -> Path:
    """Return where the plain keys of a home lie."""
    return home / "credentials.json"


def keys_path(home: Path) -> Path:
    """Return where the digests of a home lie."""
    return home / "keys.json"


def load_credentials(home: Path) -> Credentials | None:
    """Return the credentials of a home that was started before, else None."""
    stored = read_json(credentials_path(home))
    return None if stored is None else Credentials.model_validate(stored)


def ensure_credentials(home: Path) -> Credentials:
    """Return the credentials of a home, making those that are missing; files are rewritten only when they change."""
    known = load_credentials(home)
    credentials = Credentials(
        keys=_missing(KEY_OWNERS, known.keys if known else {}, "gd_"),
        passwords=_missing(LOGIN_ROLES, known.passwords if known else {}, ""),
        upload_key=known.upload_key if known else secrets.token_hex(32),
        secrets_key=(known.secrets_key if known else "") or base64.b64encode(secrets.token_bytes(32)).decode(),
        service_bus_key=(known.service_bus_key if known else "") or base64.b64encode(secrets.token_bytes(32)).decode(),
        storage_key=(known.storage_key if known else "") or base64.b64encode(secrets.token_bytes(64)).decode(),
    )
    if credentials != known:
        write_json(credentials_path(home), credentials.model_dump(mode="json"), PRIVATE)
    before = read_json(keys_path(home))
    digests = credentials.key_file().model_dump(mode="json")
    for entry in digests["keys"]:
        entry["roles"] = sorted(entry["roles"])
    digests["keys"] += _added_by_hand(before)
    if before != digests:
        write_json(keys_path(home), digests, READABLE)
    return credentials


def _added_by_hand(stored: Any) -> list[Any]:
    """Return the entries of a stored key file whose subjects are not ours: partners that somebody let in."""
    entries = stored.get("keys", []) if isinstance(stored, dict) else []
    return [entry for entry in entries if isinstance(entry, dict) and entry.get("subject") not in KEY_OWNERS]
