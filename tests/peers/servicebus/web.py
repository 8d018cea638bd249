"""The little HTTP that the administration and control endpoints need: one request a connection."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

LOOPBACK: Final = "127.0.0.1"
MAX_BODY_BYTES: Final = 1 << 20
_REASONS: Final = {
    200: "OK",
    201: "Created",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    409: "Conflict",
}


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked; names of headers are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """What is answered."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


async def serve(answer: Callable[[Request], Response], port: int, tls: ssl.SSLContext | None = None) -> asyncio.Server:
    """Listen on loopback; every request is answered at once in the loop, by a function that does not wait."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(_encode(answer(await _read(reader))))
            await writer.drain()
        except (ValueError, EOFError, ConnectionError):
            writer.write(_encode(Response(400)))
        finally:
            writer.close()

    return await asyncio.start_server(handle, LOOPBACK, port, ssl=tls)


async def _read(reader: asyncio.StreamReader) -> Request:
    """Return the next request.

    Raises:
        ValueError: it cannot be read.
        EOFError: it ends early.
    """
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    lines = (line.partition(":") for line in head[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in lines}
    size = int(headers.get("content-length", "0"))
    if not 0 <= size <= MAX_BODY_BYTES:
        raise ValueError("the body is too large")
    parts = urlsplit(target)
    return Request(method, unquote(parts.path), dict(parse_qsl(parts.query)), headers, await reader.readexactly(size))


def _encode(response: Response) -> bytes:
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        "Connection": "close",
        **response.headers,
    }
    lines = [f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'Error')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + response.body
