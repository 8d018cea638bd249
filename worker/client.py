"""Calls the orchestrators: any instance can answer any call, so the client moves on when one does not."""

import random
import time
from collections.abc import Sequence
from typing import TypeVar

import aiohttp
from pydantic import BaseModel, ValidationError

from core.identity import SERVICE_HEADER
from core.wire import (
    ClaimRequest,
    ClaimResponse,
    ExchangeRequest,
    ExchangeResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ReleaseRequest,
    ResultRequest,
    ResultResponse,
)

MOVE_ON_STATUSES = frozenset({429, 500, 502, 503, 504})
_MAX_QUOTED = 500
Answer = TypeVar("Answer", bound=BaseModel)


class NoAnswer(Exception):
    """No orchestrator answered; the call may or may not have been carried out, and is safe to repeat."""


class Refused(Exception):
    """An orchestrator understood the call and refuses it; repeating it unchanged does not help."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"answered {status}: {body[:_MAX_QUOTED]}")
        self.status = status


class CallbackClient:
    """One session over several base URLs (each up to `/api/v1/callbacks`)."""

    def __init__(self, base_urls: Sequence[str], service_key: str, timeout_seconds: float = 4.0) -> None:
        self._urls = [url.rstrip("/") for url in base_urls]
        self._current = random.randrange(len(self._urls))  # noqa: S311 - spreads load, keeps no secret
        self._headers = {SERVICE_HEADER: service_key, "Content-Type": "application/json"}
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=min(timeout_seconds, 2.0))
        self._session: aiohttp.ClientSession | None = None
        self.last_answer_at: float | None = None
        """Monotonic time of the last answer of any orchestrator."""

    async def claims(self, request: ClaimRequest) -> ClaimResponse:
        """Ask for leases of delivered tasks."""
        return _read(ClaimResponse, await self._post("claims", request))

    async def heartbeats(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Renew all leases."""
        return _read(HeartbeatResponse, await self._post("heartbeats", request))

    async def results(self, request: ResultRequest) -> ResultResponse:
        """Report finished tasks."""
        return _read(ResultResponse, await self._post("task-results", request))

    async def exchange(self, request: ExchangeRequest, *, once: bool = False) -> ExchangeResponse:
        """Report finished tasks and take others, or wait for some; `once` when somebody else is asked next."""
        return _read(ExchangeResponse, await self._post("exchange", request, request.wait_seconds, once=once))

    async def releases(self, request: ReleaseRequest) -> None:
        """Give leases back."""
        await self._post("releases", request)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def _post(self, path: str, request: BaseModel, wait_seconds: float = 0.0, *, once: bool = False) -> bytes:
        """Try every address once (a single one twice, for a keep-alive connection that had just been closed).

        With `once` only one address is tried.

        Raises:
            NoAnswer: none answered, or none was able to.
            Refused: one answered with another status than 2xx.
        """
        body = request.model_dump_json().encode()
        reasons = []
        for _ in range(1 if once else max(2, len(self._urls))):
            url = f"{self._urls[self._current]}/{path}"
            try:
                return await self._post_once(url, body, wait_seconds)
            except (aiohttp.ClientError, TimeoutError, _MoveOn) as exc:
                reasons.append(f"{url}: {type(exc).__name__} {exc}".strip())
                self._current = (self._current + 1) % len(self._urls)
        raise NoAnswer("; ".join(reasons))

    async def _post_once(self, url: str, body: bytes, wait_seconds: float) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers, timeout=self._timeout)
        total = (self._timeout.total or 0.0) + wait_seconds
        timeout = aiohttp.ClientTimeout(total=total, sock_connect=self._timeout.sock_connect)
        async with self._session.post(url, data=body, allow_redirects=False, timeout=timeout) as response:
            content = await response.read()
        if response.status in MOVE_ON_STATUSES:
            raise _MoveOn(str(response.status))
        self.last_answer_at = time.monotonic()
        if not 200 <= response.status < 300:
            raise Refused(response.status, content.decode(errors="replace"))
        return content


class _MoveOn(Exception):
    """This instance cannot answer now; another may."""


def _read(model: type[Answer], content: bytes) -> Answer:
    try:
        return model.model_validate_json(content)
    except ValidationError as exc:
        raise NoAnswer(f"the answer is no {model.__name__}: {exc.error_count()} errors") from exc
