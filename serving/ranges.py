"""A file by byte ranges, whose refusals are problem details like every other."""

from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import FileResponse
from starlette.types import Message, Receive, Scope, Send

from core.errors import ErrorDetail
from serving.errors import problem

_CODES: Final = {400: "RANGE_INVALID", 416: "RANGE_NOT_SATISFIABLE"}
_SAID: Final = "the file has no such range; expected for example bytes=0-1023, within its size"


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
            code = _CODES[refused["status"]]
            detail = ErrorDetail(code=code, field="Range", value=wanted[:100], message=_SAID, user_fixable=True)
            response = problem(detail, scope["path"], HTTPStatus(refused["status"]))
            if (size := Headers(raw=refused["headers"]).get("content-range")) is not None:
                response.headers["Content-Range"] = size
            await response(scope, receive, send)
