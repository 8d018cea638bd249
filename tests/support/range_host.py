"""A host of one large file that gives ranges, counts them, and misbehaves as it is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web


@dataclass
class RangeHost:
    """Answers GET for any path with its file."""

    file: Path
    url: str = ""
    seen: list[str] = field(default_factory=list)
    """Raw paths with queries, as they came over the wire."""
    sent_bytes: int = 0
    mood: str = "good"
    """good, or: without_ranges, changing, shifted, short, unbounded, inside, moved."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        self.seen.append(request.raw_path)
        if self.mood in ("inside", "moved") and request.path != "/there.tif":
            to = "/there.tif?own=1" if self.mood == "moved" or len(self.seen) == 1 else "https://169.254.169.254/a.tif"
            return web.Response(status=302, headers={"Location": to})
        if self.mood == "inside" and len(self.seen) > 2:
            return web.Response(status=302, headers={"Location": "https://169.254.169.254/a.tif"})
        size = self.file.stat().st_size
        asked = request.http_range
        if asked.start is None or self.mood == "without_ranges":
            return web.FileResponse(self.file)
        start, stop = asked.start, min(asked.stop or size, size)
        if start >= size:
            return web.Response(status=416, headers={"Content-Range": f"bytes */{size}"})
        body = await asyncio.to_thread(self._part, start, stop)
        self.sent_bytes += len(body)
        return self._reply(body, start, stop, size)

    def _reply(self, body: bytes, start: int, stop: int, size: int) -> web.Response:
        etag = f'"{len(self.seen)}"' if self.mood == "changing" else '"same"'
        told = {
            "shifted": f"bytes {start + 1}-{stop}/{size}",
            "unbounded": f"bytes {start}-{size - 1}/{size}",
        }.get(self.mood, f"bytes {start}-{stop - 1}/{size}")
        if self.mood == "short":
            body = body[:10]
        return web.Response(status=206, body=body, headers={"Content-Range": told, "ETag": etag})

    def _part(self, start: int, stop: int) -> bytes:
        with self.file.open("rb") as file:
            file.seek(start)
            return file.read(stop - start)


@asynccontextmanager
async def range_host(file: Path) -> AsyncIterator[RangeHost]:
    """Serve a file on loopback."""
    host = RangeHost(file)
    app = web.Application()
    app.router.add_get("/{what}", host.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host.url = f"http://127.0.0.1:{runner.addresses[0][1]}/far.tif"
    try:
        yield host
    finally:
        await runner.cleanup()
