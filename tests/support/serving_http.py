"""Serves an ASGI application on a free port of the test's own event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import uvicorn

from tests.support.waiting import await_until


@contextlib.asynccontextmanager
async def serve(app: Any) -> AsyncIterator[str]:
    """Run the application; gives its base URL."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_config=None,
        ws="none",
        timeout_keep_alive=75,  # as in production; a loop that several tests share stands still between them
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())

    async def started() -> bool:
        return server.started

    await await_until(started, "the server started")
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await task
