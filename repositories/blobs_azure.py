"""Blobs in Azure Blob Storage: one container per zone, in one account or in one each.

Large blobs travel in parts, several at a time, each with its MD5, and become visible with the one request that commits
them, which fails when the name is taken. The MD5 of the whole stays with the blob and is compared by whoever reads all
of it. A reader is bound to the ETag that it began with.
"""

import asyncio
import hashlib
import io
import uuid
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError, ResourceExistsError
from azure.storage.blob import BlobBlock, BlobProperties, ContentSettings
from azure.storage.blob.aio import BlobClient, BlobServiceClient, ContainerClient, ExponentialRetry

from core.errors import BlobDamaged, Conflict, DataError, ParameterInvalid, StorageUnavailable
from core.ports import BlobEntry, BlobFolder, BlobInfo, BlobRef, GdalSource
from repositories.blob_errors import code_of, kind_of, taken, translated
from repositories.blob_names import CONTAINERS, check_name, located
from repositories.blob_signatures import Signatures
from repositories.credentials import IdentityCredential
from repositories.managed_identity import ManagedIdentity

PART_BYTES: Final = 2 << 20
"""A blob has at most 50,000 parts, 97 GiB. The SDK and TLS hold each part on its way two or three times."""
PARALLEL: Final = 4
"""Parts of one blob on their way at a time."""
DELETES: Final = 16
RETRIES: Final = 4
"""Of a request, after 1, 3, 5 and 9 seconds, more or less."""
COPY_POLL_SECONDS: Final = 0.25
CONNECT_TIMEOUT_SECONDS: Final = 5
READ_TIMEOUT_SECONDS: Final = 60
GDAL_OPTIONS: Final = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    "GDAL_HTTP_MAX_RETRY": "2",
    "GDAL_HTTP_TIMEOUT": "30",
    "CPL_VSIL_CURL_NON_CACHED": "/vsiaz/",
}
"""The last: else GDAL remembers for ever that a blob cannot be opened, as after one refusal while rights were new."""
Parts = AsyncGenerator[bytes, None]


@dataclass(frozen=True, slots=True)
class Account:
    """A storage account, and who signs for its blobs."""

    service: BlobServiceClient
    signatures: Signatures

    @property
    def url(self) -> str:
        """Return its address."""
        return str(self.service.url).rstrip("/")


def connect(
    access: str | tuple[Mapping[str, str], ManagedIdentity],
    *,
    signature_seconds: float,
    ca_file: Path | None = None,
    retries: int = RETRIES,
) -> "AzureBlobRepository":
    """Return the repository of one or more accounts; it connects when it is first used.

    Args:
        access: A connection string with an account's key, or the address of each zone's account with the identity
            that enters them.
        signature_seconds: How long a signature for GDAL lives.
        ca_file: Certificates to trust instead of the system's.
        retries: How often a request is sent again.
    """
    options: dict[str, Any] = {
        "retry_policy": ExponentialRetry(1, 2, retry_total=retries, random_jitter_range=1),
        "connection_timeout": CONNECT_TIMEOUT_SECONDS,
        "read_timeout": READ_TIMEOUT_SECONDS,
        "max_single_put_size": PART_BYTES,
        "max_single_get_size": PART_BYTES,
        "max_chunk_get_size": PART_BYTES,
    }
    gdal = dict(GDAL_OPTIONS)
    if ca_file is not None:
        options["connection_verify"] = gdal["GDAL_CURL_CA_BUNDLE"] = str(ca_file)
    if isinstance(access, str):
        service = BlobServiceClient.from_connection_string(access, **options)
        key = str(getattr(service.credential, "account_key", "")) or None
        return AzureBlobRepository(
            dict.fromkeys(CONTAINERS, Account(service, Signatures(service, signature_seconds, key))), gdal
        )
    urls, credential = access[0], IdentityCredential(access[1])
    services = {url: BlobServiceClient(url, credential, **options) for url in dict.fromkeys(urls.values())}
    accounts = {url: Account(one, Signatures(one, signature_seconds)) for url, one in services.items()}
    return AzureBlobRepository({zone: accounts[url] for zone, url in urls.items()}, gdal)


class AzureBlobRepository:
    """`BlobRepository` over storage accounts; belongs to one event loop."""

    def __init__(self, accounts: Mapping[str, Account], gdal_options: Mapping[str, str]) -> None:
        self.accounts = accounts
        self._gdal_options = gdal_options

    async def stat(self, ref: BlobRef) -> BlobInfo:
        """Return size and ETag."""
        with translated(ref):
            found = await self._blob(ref).get_blob_properties()
        return BlobInfo(ref, found.size, _plain(found.etag))

    async def stage(self, ref: BlobRef, scratch: Path) -> Path:
        """Download a blob, its parts side by side, and return the file once it is whole."""
        check_name(ref)
        folder, _, name = str(ref).rpartition("/")
        target = scratch / f"blobs-{hashlib.sha256(folder.encode()).hexdigest()[:16]}" / name
        await asyncio.to_thread(lambda: target.parent.mkdir(mode=0o700, parents=True, exist_ok=True))
        partial = target.with_name(f".{uuid.uuid4().hex}")
        try:
            with await asyncio.to_thread(partial.open, "xb") as writer:
                async with aclosing(self.stream(ref)) as parts:
                    async for part in parts:
                        await asyncio.to_thread(writer.write, part)
            await asyncio.to_thread(partial.rename, target)
        finally:
            await asyncio.to_thread(partial.unlink, missing_ok=True)
        return target

    async def upload(self, source: Path, ref: BlobRef) -> BlobInfo:
        """Store a local file under a new name."""
        with await asyncio.to_thread(source.open, "rb") as reader:

            async def parts() -> Parts:
                while part := await asyncio.to_thread(reader.read, PART_BYTES):
                    yield part

            return await self._store(ref, parts())

    async def write_stream(self, ref: BlobRef, chunks: AsyncIterator[bytes], max_bytes: int) -> BlobInfo:
        """Store a stream under a new name; raises as the port says and leaves nothing that anybody sees."""
        return await self._store(ref, _parts_of(chunks, max_bytes))

    async def create(self, ref: BlobRef, data: bytes) -> BlobInfo:
        """Store bytes under a new name."""

        async def parts() -> Parts:
            for start in range(0, len(data), PART_BYTES):
                yield data[start : start + PART_BYTES]

        return await self._store(ref, parts())

    async def read(self, ref: BlobRef, max_bytes: int) -> bytes:
        """Return a blob's bytes, at most the first `max_bytes` of them."""
        if max_bytes > PART_BYTES:
            return b"".join([part async for part in self.stream(ref, 0, max_bytes)])
        with translated(ref):
            try:
                got = await self._blob(ref).download_blob(offset=0, length=max(1, max_bytes))
                return bytes(await got.readall())[:max_bytes]
            except HttpResponseError as error:
                if code_of(error) != "InvalidRange":
                    raise
                return b""  # it is empty

    async def stream(self, ref: BlobRef, start: int = 0, length: int | None = None) -> AsyncGenerator[bytes, None]:
        """Yield a blob's bytes in order; the next parts are on their way meanwhile.

        Raises:
            BlobDamaged: A whole blob is not what was stored; its last part is not given away then.
        """
        found = await self._properties(ref)
        end = found.size if length is None else min(found.size, start + length)
        whole = start == 0 and end == found.size
        expected = found.content_settings.content_md5 if whole else None
        digest, left = hashlib.md5(usedforsecurity=False), end - start
        async with aclosing(self._ranges(ref, found, start, end)) as parts:
            async for part in parts:
                left -= len(part)
                if expected is not None:
                    await asyncio.to_thread(digest.update, part)
                    if not left and digest.digest() != bytes(expected):
                        raise BlobDamaged(f"the bytes of blob {ref} are not those that were stored", value=str(ref))
                yield part

    async def folders(self, container: str, prefix: str) -> Sequence[BlobFolder]:
        """Return the folders directly under a prefix, each with the time of its newest blob at any depth."""
        ref = check_name(BlobRef(container, prefix.rstrip("/")))
        newest: dict[str, datetime] = {}
        with translated(ref):
            listed = self._zone(container).list_blobs(name_starts_with=f"{ref.name}/")
            async for blob in listed:
                name, slash, _ = blob.name.removeprefix(f"{ref.name}/").partition("/")
                if slash:
                    newest[name] = max(blob.last_modified, newest.get(name, blob.last_modified))
        return [BlobFolder(f"{ref.name}/{name}/", newest[name]) for name in sorted(newest)]

    async def entries(self, container: str) -> AsyncGenerator[BlobEntry, None]:
        """Yield every blob of a zone in the order of the names."""
        with translated(BlobRef(container, "")):
            async for blob in self._zone(container).list_blobs():
                yield BlobEntry(blob.name, blob.size, blob.last_modified)

    async def delete_prefix(self, container: str, prefix: str) -> int:
        """Delete every blob whose name starts with `prefix`, which ends at a folder, or is its name."""
        ref = check_name(BlobRef(container, prefix.rstrip("/")))
        room, zone = asyncio.Semaphore(DELETES), self._zone(container)

        async def delete(name: str) -> int:
            async with room:
                try:
                    with translated(BlobRef(container, name)):
                        await zone.delete_blob(name, delete_snapshots="include")
                except DataError:
                    return 0
                return 1

        with translated(ref):
            listed = zone.list_blob_names(name_starts_with=ref.name)
            names = [name async for name in listed if name == ref.name or name.startswith(f"{ref.name}/")]
        return sum(await asyncio.gather(*map(delete, names)))

    async def copy(self, source: BlobRef, target: BlobRef) -> BlobInfo:
        """Let the storage copy a blob by itself; what it cannot finish leaves nothing."""
        check_name(target)
        signed = f"{self._blob(source).url}?{(await self.accounts[source.container].signatures.of(source)).query}"
        blob, made = self._blob(target), await self._properties(source)
        with translated(target):
            started = await blob.start_copy_from_url(signed, **_IF_NEW)
            state = str(started["copy_status"])
            while state == "pending":
                await asyncio.sleep(COPY_POLL_SECONDS)
                state = str((await blob.get_blob_properties()).copy.status)
        if state != "success":
            await self.delete_prefix(target.container, target.name)
            raise StorageUnavailable(f"blob {source} could not be copied: {state}", value=str(source))
        info = await self.stat(target)
        if info.size_bytes != made.size:
            await self.delete_prefix(target.container, target.name)
            raise StorageUnavailable(f"blob {source} changed while it was copied", value=str(source))
        return info

    async def gdal_source(self, ref: BlobRef) -> GdalSource:
        """Return GDAL's path of a blob, and its signature in the settings."""
        check_name(ref)
        with translated(ref):
            account = self.accounts[ref.container]
            signature = await account.signatures.of(ref)
        access = f"BlobEndpoint={account.url};SharedAccessSignature={signature.query}"
        return GdalSource(f"/vsiaz/{ref}", {**self._gdal_options, "AZURE_STORAGE_CONNECTION_STRING": access})

    def local_path(self, ref: BlobRef) -> Path | None:
        """Return None: nothing lies on this machine."""
        return None

    def locate(self, path: str) -> BlobRef:
        """Return the blob that a path names: `container/name` or its address in this account."""
        return located(path, {zone: account.url for zone, account in self.accounts.items()})

    async def probe(self) -> None:
        """Raise `StorageUnavailable` unless the storage answers and lets us in."""
        try:
            await self._zone("silver").get_container_properties()
        except AzureError as error:
            raise StorageUnavailable(f"the blob storage is not there: {kind_of(error)}") from error

    async def make_zones(self) -> None:
        """Create the containers that are missing."""
        for zone in sorted(CONTAINERS):
            with suppress(ResourceExistsError):
                await self._zone(zone).create_container()

    async def close(self) -> None:
        """Disconnect."""
        for account in set(self.accounts.values()):
            await account.service.close()

    def _zone(self, container: str) -> ContainerClient:
        return self.accounts[container].service.get_container_client(container)

    def _blob(self, ref: BlobRef) -> BlobClient:
        check_name(ref)
        return self._zone(ref.container).get_blob_client(ref.name)

    async def _properties(self, ref: BlobRef) -> BlobProperties:
        with translated(ref):
            return await self._blob(ref).get_blob_properties()

    async def _ranges(self, ref: BlobRef, found: BlobProperties, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """Yield bytes of what was found there, in order, several parts ahead."""
        blob, under_way = self._blob(ref), deque[asyncio.Task[bytes]]()
        same: Any = {"etag": found.etag, "match_condition": MatchConditions.IfNotModified}

        async def fetch(offset: int) -> bytes:
            try:
                with translated(ref):
                    got = await blob.download_blob(offset=offset, length=min(PART_BYTES, end - offset), **same)
                    return bytes(await got.readall())
            except Conflict as error:
                raise StorageUnavailable(f"blob {ref} changed while it was read", value=str(ref)) from error

        try:
            for offset in range(start, end, PART_BYTES):
                under_way.append(asyncio.create_task(fetch(offset)))
                if len(under_way) == PARALLEL:
                    yield await under_way.popleft()
            while under_way:
                yield await under_way.popleft()
        finally:
            await _abandoned(under_way)

    async def _store(self, ref: BlobRef, parts: Parts) -> BlobInfo:
        """Send the parts, then commit them; a blob of one part is one request."""
        blob, digest, size = self._blob(ref), hashlib.md5(usedforsecurity=False), 0
        if await self._exists(ref):
            raise taken(ref)
        under_way: deque[asyncio.Task[Any]] = deque()
        mark, blocks = uuid.uuid4().hex, list[BlobBlock]()
        try:
            last = await anext(parts, b"")
            size = len(last)
            await asyncio.to_thread(digest.update, last)
            async for part in parts:
                under_way.append(self._send(ref, blob, mark, blocks, last))
                if len(under_way) == PARALLEL:
                    await under_way.popleft()
                last, size = part, size + len(part)
                await asyncio.to_thread(digest.update, part)
            if blocks:
                under_way.append(self._send(ref, blob, mark, blocks, last))
            while under_way:
                await under_way.popleft()
        finally:
            await _abandoned(under_way)
        settings: Any = ContentSettings(content_md5=bytearray(digest.digest()))
        if not blocks:
            try:
                with translated(ref):
                    whole = {"length": size, "content_settings": settings, "validate_content": True}
                    return BlobInfo(ref, size, _plain((await blob.upload_blob(io.BytesIO(last), **whole))["etag"]))
            except Conflict:
                if await self._exists(ref):
                    raise
            # Parts of an upload that broke off lie under the name; some storages take them for a blob here, and none
            # does when a list of parts is committed.
            if size:
                await self._send(ref, blob, mark, blocks, last)
        with translated(ref):
            done = await blob.commit_block_list(blocks, content_settings=settings, **_IF_NEW)
        return BlobInfo(ref, size, _plain(done["etag"]))

    def _send(
        self, ref: BlobRef, blob: BlobClient, mark: str, blocks: list[BlobBlock], data: bytes
    ) -> asyncio.Task[Any]:
        """Begin to send one part; all ids of a blob have one length, and no other writer's."""
        name = f"{mark}{len(blocks):06d}"
        blocks.append(BlobBlock(block_id=name))

        async def send() -> None:
            with translated(ref):
                await blob.stage_block(name, io.BytesIO(data), length=len(data), validate_content=True)

        return asyncio.create_task(send())

    async def _exists(self, ref: BlobRef) -> bool:
        with translated(ref):
            return await self._blob(ref).exists()


_IF_NEW: Final[dict[str, Any]] = {"match_condition": MatchConditions.IfMissing}


async def _parts_of(chunks: AsyncIterator[bytes], limit: int) -> Parts:
    """Yield chunks of any size as parts, each but the last as large as it may be."""
    held, total = bytearray(), 0
    async for chunk in chunks:
        total += len(chunk)
        if total > limit:
            raise ParameterInvalid(f"the upload is longer than {limit} bytes", field="size", value=total)
        held += chunk
        while len(held) >= PART_BYTES:
            yield bytes(held[:PART_BYTES])
            del held[:PART_BYTES]
    if held:
        yield bytes(held)


async def _abandoned(tasks: deque[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _plain(etag: object) -> str:
    return str(etag).strip('"')
