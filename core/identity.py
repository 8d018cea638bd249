"""Who may call: roles, callers, and the local key file of the embedded default.

The key file holds only SHA-256 digests; reading it is the caller's business. Entra tokens map to the same `Caller`.
"""

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property

from pydantic import BaseModel, ConfigDict, Field

CALLER_HEADER = "X-API-Key"
"""Or `Authorization: Bearer <key>`; the caller's own credential."""
SERVICE_HEADER = "X-Geodag-Service-Key"
"""The gateway's or a worker's service credential, beside the caller's."""


class Role(StrEnum):
    """What a credential may do; GATEWAY and WORKER are service credentials and never a caller's."""

    SUBMITTER = "submitter"
    READER = "reader"
    REVIEWER = "reviewer"
    ADMIN = "admin"
    OPERATOR = "operator"
    GATEWAY = "gateway"
    WORKER = "worker"


SERVICE_ROLES = frozenset({Role.GATEWAY, Role.WORKER})
PLATFORM_ROLES = frozenset({Role.SUBMITTER, Role.READER})


class Caller(BaseModel):
    """A verified caller. `platform_id` binds submitters and readers to one platform."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    subject: str
    roles: frozenset[Role]
    platform_id: str | None = None

    def has(self, *roles: Role) -> bool:
        """Return whether the caller holds at least one of the roles."""
        return not self.roles.isdisjoint(roles)


class KeyEntry(BaseModel):
    """One key of the local file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    subject: str
    roles: frozenset[Role]
    platform_id: str | None = None


class KeyFile(BaseModel):
    """Every key that the embedded default knows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: tuple[KeyEntry, ...]

    def find(self, presented: str) -> Caller | None:
        """Return who a presented key belongs to; the lookup is by digest, so timing tells nothing of the key."""
        return self._callers.get(hashlib.sha256(presented.encode()).hexdigest())

    @cached_property
    def _callers(self) -> Mapping[str, Caller]:
        return {
            entry.sha256: Caller(subject=entry.subject, roles=entry.roles, platform_id=entry.platform_id)
            for entry in reversed(self.keys)
        }


def presented_key(headers: Mapping[str, str]) -> str | None:
    """Return the caller's own credential out of request headers (any mapping with lower-case or exact names)."""
    lowered = {name.lower(): value for name, value in headers.items()}
    if key := lowered.get(CALLER_HEADER.lower()):
        return key
    scheme, _, token = lowered.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
