"""The public keys of the identity provider: fetched, kept, and fetched again when an unknown one is named."""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from typing import Final

import aiohttp

from core.errors import TransientError
from edge.tokens import Keys, parse_keys

log = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 3600.0
"""Age at which the keys are fetched again when somebody calls."""
KEEP_SECONDS: Final = 86_400.0
"""How long keys count while the provider cannot be reached."""
MIN_INTERVAL_SECONDS: Final = 60.0
"""Between two attempts, so that tokens with made-up key ids cannot make us ask all the time."""
TIMEOUT_SECONDS: Final = 5.0
MAX_BYTES: Final = 1024 * 1024


class IdentityUnavailable(TransientError):
    """The identity provider's keys cannot be had, so nobody's token can be judged; no other way in is tried."""

    code = "IDENTITY_UNAVAILABLE"


class JwksCache:
    """Keys of one JWKS address; `clock` is monotonic seconds."""

    def __init__(self, url: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._clock = clock
        self._keys: Keys = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._fetching = asyncio.Lock()

    def keys(self) -> Keys:
        """Return the keys known now.

        Raises:
            IdentityUnavailable: None were ever fetched, or the last success is a day old.
        """
        if self._fetched_at is None or self._clock() - self._fetched_at > KEEP_SECONDS:
            raise IdentityUnavailable("the identity provider's keys cannot be fetched; send the request again later")
        return self._keys

    async def prepare(self, kid: str | None) -> None:
        """Fetch the keys when they are old or do not have this one; at most once a minute, never raising for it."""
        if not self._wants(kid):
            return
        async with self._fetching:
            if self._wants(kid):
                await self._fetch()

    def _wants(self, kid: str | None) -> bool:
        now = self._clock()
        if self._tried_at is not None and now - self._tried_at < MIN_INTERVAL_SECONDS:
            return False
        old = self._fetched_at is None or now - self._fetched_at > REFRESH_SECONDS
        return old or (kid is not None and kid not in self._keys)

    async def _fetch(self) -> None:
        self._tried_at = self._clock()
        try:
            self._keys = parse_keys(json.loads(await self._read()))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, AttributeError) as error:
            log.warning("identity keys not fetched", extra={"error": type(error).__name__})
            return
        self._fetched_at = self._clock()
        log.info("identity keys fetched", extra={"keys": len(self._keys)})

    async def _read(self) -> bytes:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session,
            session.get(self._url, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise ValueError(f"status {response.status}")
            body = b""
            while len(body) <= MAX_BYTES and (more := await response.content.read(MAX_BYTES)):
                body += more
        if len(body) > MAX_BYTES:
            raise ValueError("the document is too long")
        return body
