"""Signatures (SAS) of single blobs for readers that cannot carry a credential, as GDAL cannot.

Each opens one blob for reading, for a while. They are kept until half of their life is over, so whoever asks has the
other half to read; they are in no path, no log line and no message.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from azure.storage.blob import BlobSasPermissions, UserDelegationKey, generate_blob_sas
from azure.storage.blob.aio import BlobServiceClient

from core.ports import BlobRef

KEPT: Final = 10_000
SKEW: Final = timedelta(minutes=5)
"""By which clocks may differ."""
KEY_LIVES: Final = 4
"""A user delegation key lives as long as so many signatures, and signs until only one of them fits in."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A query that opens one blob; kept byte for byte, for every changed one is refused."""

    query: str = field(repr=False)
    expires_at: datetime


class Signatures:
    """Makes signatures: with the account's key, or with a user delegation key of the identity."""

    def __init__(
        self,
        service: BlobServiceClient,
        seconds: float,
        account_key: str | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._service = service
        self.life = timedelta(seconds=seconds)
        self._account_key = account_key
        self._now = now
        self._kept: OrderedDict[BlobRef, Signature] = OrderedDict()
        self._key: tuple[UserDelegationKey, datetime] | None = None
        self._key_lock = asyncio.Lock()

    async def of(self, ref: BlobRef) -> Signature:
        """Return a signature of which at least half of the life is left."""
        known = self._kept.get(ref)
        if known is not None and self._now() < known.expires_at - self.life / 2:
            self._kept.move_to_end(ref)
            return known
        made = await self._sign(ref)
        self._kept[ref] = made
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return made

    async def _sign(self, ref: BlobRef) -> Signature:
        expires_at = self._now() + self.life
        secret: dict[str, Any] = {"account_key": self._account_key}
        if self._account_key is None:
            secret = {"user_delegation_key": await self._delegation_key(expires_at)}
        query = generate_blob_sas(
            str(self._service.account_name),
            ref.container,
            ref.name,
            permission=BlobSasPermissions(read=True),
            expiry=expires_at,
            protocol="https" if self._service.scheme == "https" else None,
            **secret,
        )
        return Signature(query, expires_at)

    async def _delegation_key(self, until: datetime) -> UserDelegationKey:
        async with self._key_lock:
            if self._key is None or self._key[1] <= until:
                start = self._now() - SKEW
                ends = self._now() + KEY_LIVES * self.life + SKEW
                self._key = await self._service.get_user_delegation_key(start, ends), ends
            return self._key[0]
