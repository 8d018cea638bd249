"""Stored values: writes and reads the blobs behind a `PayloadRef`. Never call it inside a database transaction.

Storing is repeatable: the name is the digest, so a second try finds the first one's blob. Reading verifies: bytes that
are not what was stored raise `PayloadLost`.
"""

import hashlib
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from core.errors import BlobDamaged, Conflict, DataError
from core.payloads import (
    CONTAINER,
    MAX_BYTES,
    PREFIX,
    PayloadRef,
    ValueTooLarge,
    damaged,
    decode,
    job_prefix,
    missing,
    ref_to,
    verify,
)
from core.ports import BlobRef, BlobRepository


class PayloadStore:
    """Values above the limit, in the silver zone of a `BlobRepository`.

    Every method raises `StorageUnavailable` when the storage does not answer: try again.
    """

    def __init__(self, blobs: BlobRepository) -> None:
        self._blobs = blobs

    async def put(self, prefix: str, data: bytes) -> PayloadRef:
        """Store canonical JSON below a prefix of `core.payloads`; storing the same again changes nothing.

        Raises:
            PayloadLost: PAYLOAD_CORRUPT, something else lies under that name.
        """
        ref = ref_to(prefix, data)
        try:
            await self._blobs.create(_place(ref), data)
        except Conflict:
            await self.check(ref)
        return ref

    async def put_file(self, ref: PayloadRef, source: Path) -> PayloadRef:
        """Store a local file whose size and digest are known, as `put` does."""
        try:
            await self._blobs.upload(source, _place(ref))
        except Conflict:
            await self.check(ref)
        return ref

    async def put_stream(self, blob: str, parts: AsyncIterator[bytes], max_bytes: int = MAX_BYTES) -> PayloadRef:
        """Store a stream under a name that nobody used before; a stream that breaks off leaves nothing.

        Raises:
            ParameterInvalid: on field `size` when it is longer than `max_bytes`.
            Conflict: BLOB_EXISTS; nothing of the stream was read.
        """
        counted = _Counted(parts)
        await self._blobs.write_stream(BlobRef(CONTAINER, blob), counted.parts(), max_bytes)
        return PayloadRef(blob=blob, size_bytes=counted.size_bytes, sha256=counted.digest.hexdigest())

    async def get(self, ref: PayloadRef) -> bytes:
        """Return the bytes of a stored value, verified.

        Raises:
            PayloadLost: it is missing or damaged.
        """
        try:
            data = await self._blobs.read(_place(ref), ref.size_bytes + 1)
        except DataError as error:
            raise missing(ref) from error
        except BlobDamaged as error:
            raise damaged(ref) from error
        verify(ref, len(data), hashlib.sha256(data).hexdigest())
        return data

    async def value(self, ref: PayloadRef, largest_bytes: int) -> Any:
        """Return a stored value that is small enough to be held in memory.

        Raises:
            PayloadLost: it is missing or damaged.
            ValueTooLarge: it is larger than `largest_bytes`.
        """
        if ref.size_bytes > largest_bytes:
            message = f"the stored value {ref.blob} has {ref.size_bytes} bytes; at most {largest_bytes} are read here"
            raise ValueTooLarge(message, field=ref.blob, value=ref.size_bytes)
        return decode(ref, await self.get(ref))

    async def stream(self, ref: PayloadRef) -> AsyncIterator[bytes]:
        """Yield the bytes of a stored value; the last part only after what they add up to was verified.

        Raises:
            PayloadLost: it is missing (before the first part) or damaged (before the last).
        """
        counted, held = _Counted(self._blobs.stream(_place(ref))), b""
        try:
            async for part in counted.parts():
                if held:
                    yield held
                held = part
        except DataError as error:
            raise missing(ref) from error
        except BlobDamaged as error:
            raise damaged(ref) from error
        verify(ref, counted.size_bytes, counted.digest.hexdigest())
        yield held

    async def lines(self, ref: PayloadRef) -> AsyncIterator[bytes]:
        """Yield the lines of a stored value without their ends; verified at the end as `stream` does."""
        rest = b""
        async for part in self.stream(ref):
            *whole, rest = (rest + part).split(b"\n")
            for line in whole:
                yield line
        if rest:
            yield rest

    async def check(self, ref: PayloadRef) -> None:
        """Raise `PayloadLost` unless the stored value is there and whole."""
        async for _ in self.stream(ref):
            pass

    async def stage(self, ref: PayloadRef, scratch: Path) -> Path:
        """Return a local file with the blob's bytes, not verified; downloads into `scratch` where it is not local.

        Raises:
            PayloadLost: it is missing, or the storage itself finds it damaged.
        """
        try:
            return await self._blobs.stage(_place(ref), scratch)
        except DataError as error:
            raise missing(ref) from error
        except BlobDamaged as error:
            raise damaged(ref) from error

    async def jobs(self) -> Mapping[str, datetime]:
        """Return the jobs that have stored values, also those that do not exist, and when the last one came."""
        folders = await self._blobs.folders(CONTAINER, PREFIX)
        return {one.prefix.removeprefix(PREFIX).rstrip("/"): one.modified_at for one in folders}

    async def close(self) -> None:
        """Disconnect the blobs."""
        await self._blobs.close()

    async def remove(self, job_id: str) -> int:
        """Delete every stored value of a job and return how many there were."""
        return await self._blobs.delete_prefix(CONTAINER, job_prefix(job_id))


class _Counted:
    """Counts and digests the parts of a stream that pass through."""

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        self._parts = parts
        self.size_bytes = 0
        self.digest = hashlib.sha256()

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the parts."""
        async for part in self._parts:
            self.size_bytes += len(part)
            self.digest.update(part)
            yield part


def _place(ref: PayloadRef) -> BlobRef:
    return BlobRef(CONTAINER, ref.blob)
