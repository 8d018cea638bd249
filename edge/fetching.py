"""Files behind URLs that partners chose: every hop is checked, the credential goes to the first host alone."""

import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, NoReturn

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from core.errors import DataError, ParameterInvalid, Throttled, TransientError
from core.outgoing import OutgoingPolicy, check_url
from core.ports import BlobRef, BlobRepository
from core.sources import Fetched
from edge.outgoing import AddressForbidden, GuardedResolver

MAX_REDIRECTS: Final = 3
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_GONE: Final = frozenset({404, 410})
_REFUSED: Final = frozenset({401, 403})
_BUSY: Final = frozenset({429, 503})
_CHUNK_BYTES: Final = 1 << 18
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, connect=15.0, sock_connect=15.0, sock_read=60.0)
"""Between two parts; how long the whole may take is the task's own limit."""
_FORBIDDEN: Final = "SOURCE_URL_FORBIDDEN"


class SourceUnavailable(TransientError):
    """The host of a source does not answer as it should; it may later."""

    code = "SOURCE_UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class SourceClient:
    """Fetches to blobs; trusts no proxy variable, keeps no cookie, takes bytes as they are."""

    policy: OutgoingPolicy
    blobs: BlobRepository
    max_bytes: int
    resolver: AbstractResolver | None = None

    async def fetch(self, url: str, query: str | None, ref: BlobRef) -> Fetched:
        """Copy what lies behind a URL to a new blob.

        Args:
            url: Without its query.
            query: The credential, sent byte for byte; errors and logs never repeat it, redirects do not inherit it.
            ref: Where to; nothing is left there when this raises.

        Raises:
            DataError: FILE_NOT_FOUND, SOURCE_FORBIDDEN, SOURCE_URL_FORBIDDEN, FILE_EMPTY, FILE_TOO_LARGE.
            TransientError: the host does not answer, is busy, or breaks off.
        """
        async with self.session() as session, self.answer(session, source_url(url, query)) as (answer, _):
            check_status(answer.status)
            return await self._store(answer, ref)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """Lend a session whose connections are guarded; its failures become our own.

        Raises:
            DataError: SOURCE_URL_FORBIDDEN, a name led inside.
            TransientError: the host does not answer, or breaks off.
        """
        connector = aiohttp.TCPConnector(resolver=GuardedResolver(self.policy, self.resolver), use_dns_cache=False)
        try:
            async with aiohttp.ClientSession(
                connector=connector,
                timeout=_TIMEOUT,
                trust_env=False,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            ) as session:
                yield session
        except (aiohttp.ClientError, TimeoutError) as error:
            if isinstance(error.__cause__, AddressForbidden):
                _inside(str(error.__cause__))
            raise SourceUnavailable(f"the source's host did not deliver: {type(error).__name__}") from None

    @asynccontextmanager
    async def answer(
        self, session: aiohttp.ClientSession, target: URL, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[tuple[aiohttp.ClientResponse, URL]]:
        """Lend the answer to a GET and the URL that gave it, every hop checked.

        Raises:
            DataError: SOURCE_URL_FORBIDDEN.
        """
        for _ in range(1 + MAX_REDIRECTS):
            self._check(target)
            sent = {"Accept-Encoding": "identity", **(headers or {})}
            async with session.get(target, allow_redirects=False, headers=sent) as answer:
                if answer.status not in _REDIRECTS:
                    yield answer, target
                    return
                target = _next(target, answer.headers.get("Location", ""))
        raise DataError(f"the source redirects more than {MAX_REDIRECTS} times", code=_FORBIDDEN, field="source")

    def _check(self, target: URL) -> None:
        try:
            check_url(str(target.with_query(None)), self.policy, "source", _FORBIDDEN)
        except ParameterInvalid as error:
            _inside(str(error))

    async def _store(self, answer: aiohttp.ClientResponse, ref: BlobRef) -> Fetched:
        if (answer.content_length or 0) > self.max_bytes:
            raise too_large(self.max_bytes)
        sha256 = hashlib.sha256()

        async def chunks() -> AsyncIterator[bytes]:
            async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
                sha256.update(chunk)
                yield chunk

        try:
            info = await self.blobs.write_stream(ref, chunks(), self.max_bytes)
        except ParameterInvalid as error:
            if error.detail.field != "size":
                raise
            raise too_large(self.max_bytes) from None
        if info.size_bytes == 0:
            await self.blobs.delete_prefix(ref.container, ref.name)
            raise empty()
        return Fetched(info.size_bytes, sha256.hexdigest(), _plain(answer.headers.get("ETag")))


def _inside(why: str) -> NoReturn:
    raise DataError(
        f"the source is not read: {why}",
        code=_FORBIDDEN,
        field="source",
        remediation="Give an https URL that leads to public hosts only.",
    )


def _next(target: URL, location: str) -> URL:
    """Return where a redirect leads; its query is the redirect's own."""
    try:
        return target.with_query(None).join(URL(location, encoded=True))
    except (ValueError, TypeError):
        _inside("a redirect cannot be read")


def source_url(url: str, query: str | None) -> URL:
    """Return the URL to ask, its credential byte for byte as it came."""
    return URL(url if query is None else f"{url}?{query}", encoded=True)


def check_status(status: int, expected: int = 200) -> None:
    """Raise what a status means for a source, unless it is the expected one."""
    if status == expected:
        return
    if status in _GONE:
        raise DataError(f"the source's host answered {status}: no such file", code="FILE_NOT_FOUND", field="source")
    if status in _REFUSED:
        raise DataError(
            f"the source's host answered {status}",
            code="SOURCE_FORBIDDEN",
            field="source",
            remediation="Submit the URL with a credential that is valid long enough.",
        )
    if status in _BUSY:
        raise Throttled(f"the source's host answered {status}", field="source")
    if status >= 500 or status == 408:
        raise SourceUnavailable(f"the source's host answered {status}", field="source")
    raise DataError(f"the source's host answered {status}; expected {expected}", code="FILE_UNREADABLE", field="source")


def empty() -> DataError:
    """Return the error of a source without bytes."""
    return DataError("the source has 0 bytes", code="FILE_EMPTY", field="file")


def too_large(limit: int) -> DataError:
    """Return the error of a source beyond the limit."""
    return DataError(
        f"the source is longer than {limit} bytes",
        code="FILE_TOO_LARGE",
        field="source",
        remediation="Send it in several smaller files.",
    )


def _plain(etag: str | None) -> str | None:
    """A host's own text is kept only when it is what it says it is: short and plain."""
    return etag if etag is not None and len(etag) <= 200 and etag.isascii() and etag.isprintable() else None
