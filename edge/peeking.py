"""Headers of files behind URLs: as many bytes as a header needs, through the same guard, into a sparse copy.

The copy is as long as the whole file, so that whoever reads it sees sizes and offsets as they are. What is no header,
or is too much of it, is copied whole; so is what comes from a host that gives no ranges.
"""

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
from yarl import URL

from core.errors import DataError
from core.sources import READ_WHOLE_BYTES
from edge.fetching import SourceClient, SourceUnavailable, check_status, empty, source_url, too_large
from edge.partial import Missing, PartialFile, Walk

FIRST_BYTES: Final = 1 << 16
MAX_REQUEST_BYTES: Final = 1 << 22
MAX_REQUESTS: Final = 32
MAX_HEADER_BYTES: Final = 32 << 20
"""Beyond these the file is copied whole."""
_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_PARTIAL: Final = 206
_UNSATISFIABLE: Final = 416
_CHUNK_BYTES: Final = 1 << 18


@dataclass(slots=True)
class _Remote:
    """A file behind a URL, as far as is known."""

    client: SourceClient
    session: aiohttp.ClientSession
    url: URL
    etag: str | None = None
    size_bytes: int | None = None
    requests: int = 0
    received_bytes: int = 0

    async def part(self, start: int, end: int) -> bytes | None:
        """Return the bytes from `start` up to `end`, or up to the file's end; None when the host gives no ranges."""
        self.requests += 1
        headers = {"Range": f"bytes={start}-{end - 1}"}
        async with self.client.answer(self.session, self.url, headers) as (answer, self.url):
            if answer.status == 200:
                answer.close()
                return None
            if answer.status == _UNSATISFIABLE and start == 0:
                raise empty()
            check_status(answer.status, _PARTIAL)
            length = self._length(answer, start, end)
            try:
                data = await answer.content.readexactly(length)
            except asyncio.IncompleteReadError as error:
                raise SourceUnavailable("the source's host broke off a range", field="source") from error
        self.received_bytes += len(data)
        return data

    def _length(self, answer: aiohttp.ClientResponse, start: int, end: int) -> int:
        """Return how many bytes follow; what does not fit the question, or the parts before, is refused."""
        found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        if found is None:
            raise SourceUnavailable("the source's host sent a range that cannot be understood", field="source")
        first, last, size = map(int, found.groups())
        etag = answer.headers.get("ETag")
        if self.size_bytes is not None and (size, etag) != (self.size_bytes, self.etag):
            raise DataError("the file changed while it was read", code="SOURCE_CHANGED", field="source")
        self.size_bytes, self.etag = size, etag
        if first != start or last + 1 != min(end, size):
            raise SourceUnavailable("the source's host sent another range than asked for", field="source")
        if size > self.client.max_bytes:
            raise too_large(self.client.max_bytes)
        return last + 1 - first


async def peek(client: SourceClient, url: str, query: str | None, target: Path, walk: Walk) -> bool:
    """Copy what a header needs of the file behind a URL to `target`, and return whether that is all of the file.

    Args:
        client: guard and limits.
        url: without its query.
        query: the credential.
        target: a new file; it may stay when this raises.
        walk: reads the header.

    Raises:
        DataError, TransientError: as `SourceClient.fetch`; SOURCE_CHANGED when it changed between two ranges.
    """
    async with client.session() as session:
        remote = _Remote(client, session, source_url(url, query))
        head = await remote.part(0, FIRST_BYTES)
        if head is not None and remote.size_bytes is not None:
            partial = PartialFile(target, remote.size_bytes)
            partial.add(0, head)
            if partial.is_whole:
                return True
            if remote.size_bytes > READ_WHOLE_BYTES and await _filled(remote, partial, walk):
                return partial.is_whole
        await _copy(client, session, source_url(url, query), target)
        return True


async def _filled(remote: _Remote, partial: PartialFile, walk: Walk) -> bool:
    """Fetch what the walk asks for, ever longer parts; return whether a header is what it found."""
    ahead = FIRST_BYTES
    while remote.requests < MAX_REQUESTS and remote.received_bytes < MAX_HEADER_BYTES:
        try:
            return await asyncio.to_thread(walk, partial)
        except Missing as gap:
            end = min(max(gap.end, gap.start + ahead), gap.start + MAX_REQUEST_BYTES)
            ahead = min(2 * ahead, MAX_REQUEST_BYTES)
            part = await remote.part(gap.start, end)
            if part is None:
                return False
            partial.add(gap.start, part)
    return False


async def _copy(client: SourceClient, session: aiohttp.ClientSession, url: URL, target: Path) -> None:
    """Copy a whole file."""
    async with client.answer(session, url) as (answer, _):
        check_status(answer.status)
        if (answer.content_length or 0) > client.max_bytes:
            raise too_large(client.max_bytes)
        received = 0
        with target.open("wb") as file:
            async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
                received += len(chunk)
                if received > client.max_bytes:
                    raise too_large(client.max_bytes)
                await asyncio.to_thread(file.write, chunk)
    if received == 0:
        raise empty()
