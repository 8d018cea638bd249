"""The way to the orchestrators: forward a request with both credentials, pass the answer back as it is.

A call moves on to the next address after a failed connect or a 503, which both mean that nothing happened; a
connection that breaks later may have had an effect, so only safe methods are sent again, and calls with an idempotency
key which is read there. Connections are not kept: one that the other side closed meanwhile would look exactly like a
lost answer.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import aiohttp

from core.errors import TransientError
from core.identity import CALLER_HEADER, SERVICE_HEADER

_FORWARDED: Final = (CALLER_HEADER, "Authorization", "Idempotency-Key", "Content-Type", "If-None-Match", "traceparent")
_RETURNED: Final = ("Content-Type", "Location", "Retry-After", "ETag", "Cache-Control", "WWW-Authenticate")
_HARMLESS: Final = ("Content-Type", "If-None-Match", "traceparent")
CONNECT_SECONDS: Final = 2.0
PROBE_SECONDS: Final = 3.0
TOTAL_SECONDS: Final = 150.0
_SAFE: Final = frozenset({"GET", "HEAD"})
_TAKES_KEY: Final = re.compile(r"/api/v1/(?:jobs|submit|validate|requests/batch|requests/[^/]+/resubmit)")


def takes_key(method: str, path: str) -> bool:
    """Return whether an orchestrator reads the idempotency key of a call; others that change something refuse it."""
    return method == "POST" and _TAKES_KEY.fullmatch(path) is not None


class OrchestratorUnavailable(TransientError):
    """No orchestrator answered; with a connection that broke late, whether it acted is not known."""

    code = "ORCHESTRATOR_UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class Reply:
    """An orchestrator's answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class OrchestratorClient:
    """Forwards requests; made once per process, used on one event loop."""

    def __init__(self, base_urls: Sequence[str], service_key: str | None) -> None:
        """Take the addresses of one kind of process; without a service key no credential at all is passed on."""
        self._base_urls = tuple(base_urls)
        self._service_key = service_key
        self._preferred = 0
        self._session: aiohttp.ClientSession | None = None

    async def forward(
        self, method: str, path: str, *, headers: Mapping[str, str], query: str = "", body: bytes = b""
    ) -> Reply:
        """Send a request to the first orchestrator that takes it.

        Args:
            method: HTTP method.
            path: Already encoded, with a leading slash.
            headers: The caller's; only credentials and what the contract names are passed on.
            query: Already encoded, without the question mark.
            body: Sent as it is.

        Raises:
            OrchestratorUnavailable: none took it, or a connection broke after the request was sent.
        """
        sent = self._headers(headers)
        keyed = takes_key(method, path)
        repeatable = method in _SAFE or (keyed and "Idempotency-Key" in sent)
        last: Reply | None = None
        for turn in range(len(self._base_urls)):
            index = (self._preferred + turn) % len(self._base_urls)
            url = f"{self._base_urls[index]}{path}{'?' if query else ''}{query}"
            try:
                reply = await self._attempt(method, url, sent, body)
            except (TimeoutError, aiohttp.ClientError) as error:
                if not repeatable:
                    raise _may_have_acted(keyed) from error
                continue
            if reply is not None and reply.status != 503:
                self._preferred = index
                return reply
            last = reply or last
        if last is not None:
            return last
        raise OrchestratorUnavailable("no orchestrator answers", remediation="Try again in some seconds.")

    @property
    def size(self) -> int:
        """How many addresses there are."""
        return len(self._base_urls)

    async def probe(self, number: int, path: str) -> bool:
        """Return whether one address answers a harmless question with 200."""
        timeout = aiohttp.ClientTimeout(total=PROBE_SECONDS)
        try:
            async with self._open().get(f"{self._base_urls[number]}{path}", timeout=timeout) as response:
                return response.status == 200
        except (TimeoutError, aiohttp.ClientError):
            return False

    async def close(self) -> None:
        """Close the session; the next call opens a new one."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _headers(self, caller: Mapping[str, str]) -> dict[str, str]:
        lowered = {name.lower(): value for name, value in caller.items()}
        names = _FORWARDED if self._service_key is not None else _HARMLESS
        passed = {name: lowered[name.lower()] for name in names if name.lower() in lowered}
        return passed if self._service_key is None else passed | {SERVICE_HEADER: self._service_key}

    async def _attempt(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Reply | None:
        """Return the answer, or None when nothing was sent and the next address may be tried."""
        try:
            async with self._open().request(
                method, url, headers=headers, data=body or None, allow_redirects=False
            ) as response:
                return Reply(response.status, _returned(response.headers), await response.read())
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            return None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            timeout = aiohttp.ClientTimeout(total=TOTAL_SECONDS, sock_connect=CONNECT_SECONDS)
            connector = aiohttp.TCPConnector(force_close=True, limit=64)
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=timeout, skip_auto_headers=("Content-Type", "User-Agent")
            )
        return self._session


def _may_have_acted(keyed: bool) -> OrchestratorUnavailable:
    again = "next time an Idempotency-Key lets you send the same call again." if keyed else "send it again if need be."
    message = "the connection to the orchestrator broke; it may have acted"
    return OrchestratorUnavailable(message, remediation=f"Look at the state first; {again}")


def _returned(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in _RETURNED if name in headers}
