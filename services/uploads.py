"""Upload addresses of the embedded blob adapter: write-only, for one blob, for a quarter of an hour.

The address carries a token: what may be written, how much, until when, and an HMAC over all of it. Whoever holds it
can do that one thing; nothing is stored about it.
"""

import base64
import hashlib
import hmac
import json
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from core import b2b, lifecycle, submission
from core.b2b import UploadAddress, UploadRequest
from core.errors import ParameterInvalid, Unauthenticated
from core.identity import Caller, Role
from core.lifecycle import Command
from core.ports import BlobInfo, BlobRef, BlobRepository
from repositories.audit import AuditRepository, NewAuditEntry
from repositories.database import AsyncPool, transaction
from repositories.platforms import PlatformRepository
from services.quotas import take_call

LIFETIME: Final = timedelta(minutes=15)
UPLOAD_CONTAINER: Final = "bronze"
MAX_FILENAME_BYTES: Final = 200
_CONTEXT: Final = b"geodag-upload-1\x00"


@dataclass(frozen=True, slots=True)
class UploadGrant:
    """What one token allows."""

    ref: BlobRef
    expires_at: int
    """Seconds since 1970."""
    max_bytes: int


def sign(key: bytes, grant: UploadGrant) -> str:
    """Return the token of a grant."""
    claims = [grant.ref.container, grant.ref.name, grant.expires_at, grant.max_bytes]
    payload = json.dumps(claims, ensure_ascii=False, separators=(",", ":")).encode()
    return f"{_encode(payload)}.{_encode(_mac(key, payload))}"


def verify(key: bytes, token: str, now: datetime) -> UploadGrant:
    """Return what a token allows.

    Raises:
        Unauthenticated: it is not ours, was changed, or its time is over.
    """
    head, _, tail = token.partition(".")
    payload, mac = _decode(head), _decode(tail)
    if payload is None or mac is None or not hmac.compare_digest(mac, _mac(key, payload)):
        raise Unauthenticated("this upload address is not valid", field="token")
    container, name, expires_at, max_bytes = json.loads(payload)
    if now.timestamp() >= expires_at:
        raise Unauthenticated(
            "this upload address has expired", field="token", remediation="Ask for a new upload address."
        )
    return UploadGrant(BlobRef(container, name), expires_at, max_bytes)


def _mac(key: bytes, payload: bytes) -> bytes:
    return hmac.new(key, _CONTEXT + payload, hashlib.sha256).digest()


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> bytes | None:
    """Return the bytes of unpadded base64url, or None when a text is none."""
    try:
        raw = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    return raw if _encode(raw) == text else None


class UploadService:
    """Grants and takes uploads."""

    def __init__(self, pool: AsyncPool, blobs: BlobRepository, *, key: bytes, max_bytes: int, base_url: str) -> None:
        self._pool = pool
        self._blobs = blobs
        self._key = key
        self._max_bytes = max_bytes
        self._base_url = base_url

    async def grant(self, caller: Caller, body: Mapping[str, Any], now: datetime) -> UploadAddress:
        """Return an address under the caller's own platform.

        Raises:
            CallerError: wrong role or platform, a bad file name, or a file that would be too large.
        """
        lifecycle.check_role(Command.SUBMIT, caller)
        platform_id = submission.platform_id_of(body)
        async with transaction(self._pool) as conn:
            row = await PlatformRepository(conn).get(platform_id)
            await take_call(conn, submission.own_platform(row, platform_id, caller))
            wanted = b2b.parse(UploadRequest, body)
            name = f"uploads/{platform_id}/{uuid.uuid4().hex}/{check_filename(wanted.filename)}"
            expires = now + LIFETIME
            ref, limit = BlobRef(UPLOAD_CONTAINER, name), self._limit(wanted.size_bytes)
            await AuditRepository(conn).add(_audit_entry(caller, platform_id, ref))
        grant = UploadGrant(ref, int(expires.timestamp()), limit)
        return UploadAddress(
            upload_url=f"{self._base_url}/uploads/{sign(self._key, grant)}",
            container_name=UPLOAD_CONTAINER,
            blob_name=name,
            max_bytes=grant.max_bytes,
            expires_at=expires.isoformat(timespec="seconds"),
        )

    def _limit(self, size_bytes: int | None) -> int:
        """The stated size is the limit, so an address for a small file takes no large one."""
        if size_bytes is not None and size_bytes > self._max_bytes:
            raise ParameterInvalid(
                f"the file has {size_bytes} bytes; expected at most {self._max_bytes}",
                field="size_bytes",
                value=size_bytes,
            )
        return size_bytes or self._max_bytes

    async def receive(
        self, token: str, chunks: AsyncIterator[bytes], now: datetime, announced: int | None = None
    ) -> BlobInfo:
        """Store the bytes of an upload; the blob appears whole or not at all, and is never overwritten.

        Args:
            token: The signed address.
            chunks: Its bytes; none is taken of a file that was announced as too long.
            now: The time.
            announced: How long it will be, where the sender said.

        Raises:
            Unauthenticated: the token.
            ParameterInvalid: longer than granted.
            Conflict: BLOB_EXISTS.
        """
        grant = verify(self._key, token, now)
        if announced is not None and announced > grant.max_bytes:
            raise ParameterInvalid(
                f"the file has {announced} bytes; expected at most {grant.max_bytes}", field="size", value=announced
            )
        return await self._blobs.write_stream(grant.ref, chunks, grant.max_bytes)


def _audit_entry(caller: Caller, platform_id: str, ref: BlobRef) -> NewAuditEntry:
    return NewAuditEntry(
        asset_id=None,
        version_ordinal=None,
        action="upload_granted",
        actor=caller.subject,
        actor_role=str(Role.SUBMITTER),
        after={"blob": str(ref)},
        platform_id=platform_id,
    )


def check_filename(filename: str) -> str:
    """Return a file name that may be the last segment of a blob name, or raise `ParameterInvalid` on `filename`."""
    if "/" in filename:
        raise ParameterInvalid("filename: expected a name without folders", field="filename", value=filename[:100])
    submission.check_blob_name(filename, field="filename")
    if len(filename.encode()) > MAX_FILENAME_BYTES:
        raise ParameterInvalid(
            f"filename has {len(filename.encode())} bytes; expected at most {MAX_FILENAME_BYTES}", field="filename"
        )
    return filename
