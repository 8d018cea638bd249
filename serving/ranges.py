"""A blob by byte ranges, whose refusals are problem details like every other."""

import re
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from anyio import from_thread
from starlette.datastructures import Headers
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from core.errors import DataError, ErrorDetail, StorageUnavailable
from core.ports import BlobInfo, BlobRef, BlobRepository
from serving.errors import problem

_CODES: Final = {400: "RANGE_INVALID", 416: "RANGE_NOT_SATISFIABLE"}
_ONE: Final = re.compile(r"bytes=(\d*)-(\d*)", re.IGNORECASE)
_SAID: Final = "the file has no such range; expected for example bytes=0-1023, within its size"


def ranged(blobs: BlobRepository, ref: BlobRef, headers: Mapping[str, str], media_type: str, filename: str) -> Response:
    """Return the answer that carries a blob, from its file where it has one; called in the thread of a request.

    Raises:
        StorageUnavailable: The blob is not there.
    """
    path = blobs.local_path(ref)
    if path is None:
        try:
            info = from_thread.run(blobs.stat, ref)
        except DataError as error:
            raise StorageUnavailable("the file of this version cannot be read") from error
        return RangedBlob(blobs, info, headers, media_type, filename)
    if not path.is_file():
        raise StorageUnavailable("the file of this version cannot be read")
    return RangedFile(path, headers=headers, media_type=media_type, filename=filename)


class RangedBlob(Response):
    """A blob of a far storage, whole or one range of it; who asks for several gets the whole (RFC 9110, 14.2)."""

    def __init__(
        self, blobs: BlobRepository, info: BlobInfo, headers: Mapping[str, str], media_type: str, filename: str
    ) -> None:
        named = {"content-disposition": f"attachment; filename*=utf-8''{quote(filename)}", "accept-ranges": "bytes"}
        super().__init__(headers={**named, **headers}, media_type=media_type)
        self.headers.setdefault("etag", f'"{info.etag}"')
        self._blobs = blobs
        self._info = info

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the blob, or say that it has no such range."""
        size, asked = self._info.size_bytes, Headers(scope=scope)
        wanted = asked.get("range", "") if asked.get("if-range") in (None, self.headers["etag"]) else ""
        start, end = 0, size
        if found := _ONE.fullmatch(wanted.strip()):
            first, last = found.groups()
            start = int(first) if first else max(0, size - int(last or 0))
            end = min(size, int(last) + 1) if first and last else size
            if not (first or last) or (first and last and int(last) < int(first)):
                return await _refusal(wanted, HTTPStatus.BAD_REQUEST, scope)(scope, receive, send)
            if start >= end:
                refused = _refusal(wanted, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, scope)
                refused.headers["Content-Range"] = f"bytes */{size}"
                return await refused(scope, receive, send)
            self.status_code = 206
            self.headers["content-range"] = f"bytes {start}-{end - 1}/{size}"
        elif wanted.lower().startswith("bytes=") and "," not in wanted:
            return await _refusal(wanted, HTTPStatus.BAD_REQUEST, scope)(scope, receive, send)
        self.headers["content-length"] = str(end - start)
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            return await send({"type": "http.response.body", "body": b""})
        parts = self._blobs.stream(self._info.ref, start, end - start)
        first = await anext(parts, b"")  # what cannot be read is an error and no answer that breaks off
        body = _joined(first, parts)
        return await StreamingResponse(body, self.status_code, dict(self.headers))(scope, receive, send)


async def _joined(first: bytes | str, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes | str]:
    yield first
    async for part in parts:
        yield part


def _refusal(wanted: str, status: HTTPStatus, scope: Scope) -> Response:
    detail = ErrorDetail(code=_CODES[status], field="Range", value=wanted[:100], message=_SAID, user_fixable=True)
    return problem(detail, scope["path"], status)


class RangedFile(FileResponse):
    """A file, whole or by byte ranges (RFC 9110, 14): other units are ignored, impossible ranges refused."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file, or say which range cannot be."""
        wanted = Headers(scope=scope).get("range", "")
        if not wanted.lower().startswith("bytes="):
            scope = {**scope, "headers": [pair for pair in scope["headers"] if pair[0] != b"range"]}
        refused: Message | None = None

        async def pass_on(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start" and message["status"] in _CODES:
                refused = message
            if refused is None:
                await send(message)

        await super().__call__(scope, receive, pass_on)
        if refused is not None:
            response = _refusal(wanted, HTTPStatus(refused["status"]), scope)
            if (size := Headers(raw=refused["headers"]).get("content-range")) is not None:
                response.headers["Content-Range"] = size
            await response(scope, receive, send)
