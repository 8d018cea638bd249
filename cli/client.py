"""The HTTP side of the command: calls the platform's doors with the caller's own key."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from cli.errors import Refused, Unreachable
from core.dag.json_values import has_surrogate
from core.identity import CALLER_HEADER

CHUNK_BYTES = 256 * 1024
TIMEOUT_SECONDS = 60.0
Json = dict[str, Any]


def _written(value: Any) -> str:
    """Return the JSON of a body as UTF-8 has it; a lone surrogate, which it has not, for the platform to refuse."""
    text = json.dumps(value, ensure_ascii=False)
    return json.dumps(value) if has_surrogate(text) else text


class Client:
    """Calls with one key; use as an async context manager."""

    def __init__(self, key: str) -> None:
        self._headers = {CALLER_HEADER: key}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Client":
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        self._session = aiohttp.ClientSession(timeout=timeout, json_serialize=_written)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(
        self,
        method: str,
        url: str,
        body: Json | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> Any:
        """Return the JSON answer of one call.

        Raises Refused for an answer that is not a success, and Unreachable when there is none.
        """
        _check_path(url)
        timeout, sent = aiohttp.ClientTimeout(total=timeout_seconds), {**self._headers, **(headers or {})}
        try:
            async with self._open.request(method, url, json=body, headers=sent, timeout=timeout) as answer:
                return await _content(answer)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unreachable(url, error) from error

    async def get_bytes(self, url: str, *, anonymous: bool = False) -> bytes:
        """Return the body of one GET, with or without the caller's key."""
        try:
            async with self._open.get(url, headers={} if anonymous else self._headers) as answer:
                if answer.status >= 400:
                    await _content(answer)
                return await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unreachable(url, error) from error

    async def upload(self, url: str, path: Path, progress: Callable[[int], None]) -> None:
        """Stream a file to an upload address, which is its own credential; report bytes as they leave."""
        size = await asyncio.to_thread(lambda: path.stat().st_size)
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        timeout = aiohttp.ClientTimeout(total=None, sock_read=TIMEOUT_SECONDS)
        try:
            async with self._open.put(url, data=_chunks(path, progress), headers=headers, timeout=timeout) as answer:
                await _content(answer)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unreachable(f"the upload broke off: {error or type(error).__name__}") from error

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the client is used outside of its context")
        return self._session


def _check_path(url: str) -> None:
    """Refuse an address that would be another one when it is sent."""
    if {".", ".."} & set(urlsplit(url).path.split("/")):
        raise Refused(404, {"detail": "`.` and `..` are names of nothing here", "field": "path"})


def _unreachable(url: str, error: Exception) -> Unreachable:
    if isinstance(error, aiohttp.ClientConnectorError):
        return Unreachable(f"nobody listens at {urlsplit(url).netloc}; is the platform up? (`geodag up`)")
    return Unreachable(f"no answer from {url}: {error or type(error).__name__}")


async def _chunks(path: Path, progress: Callable[[int], None]) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk
            progress(len(chunk))


async def _content(answer: aiohttp.ClientResponse) -> Any:
    is_json = answer.content_type.endswith("json")
    body = await answer.json(content_type=None) if is_json else await answer.text()
    if answer.status < 400:
        return body
    if isinstance(body, dict):
        raise Refused(answer.status, body)
    raise Refused(answer.status, {"detail": f"HTTP {answer.status} from {answer.url.path}"})
