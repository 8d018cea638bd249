"""Runs one orchestrator: `python -m orchestrator.main`. SIGTERM drains, then ends with exit code 0."""

import asyncio
import logging
import signal
import sys
from types import FrameType

import uvicorn
from fastapi import FastAPI

from core.errors import GeodagError
from edge.heap import settle_heap
from orchestrator.app import create_app
from orchestrator.drain import LAST_CALLS_SECONDS
from orchestrator.settings import OrchestratorSettings
from repositories.logs import setup_logging

log = logging.getLogger(__name__)

GRACE_SECONDS = 1


class DrainingServer(uvicorn.Server):
    """A server that gives up its jobs before it closes its socket."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app
        self._leaving: asyncio.Task[None] | None = None
        self._running_loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Start, and remember the loop for the signal handler."""
        self._running_loop = asyncio.get_running_loop()
        await super().startup(sockets)  # type: ignore[arg-type]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Leave in order on the first signal; end at once on a second Ctrl-C."""
        if self._running_loop is None or (self._leaving is not None and sig == signal.SIGINT):
            self.should_exit = self.force_exit = True
            return
        self._running_loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        if self._leaving is None:
            self._leaving = asyncio.create_task(self._drain(), name="drain")

    async def _drain(self) -> None:
        try:
            await self._app.state.drain()
            await asyncio.sleep(LAST_CALLS_SECONDS)
        finally:
            self.should_exit = True


def main() -> int:
    """Run until a signal ends it."""
    try:
        settings = OrchestratorSettings.load()
        setup_logging(settings.log_level, settings.log_format, "orchestrator")
        app = create_app(settings)
    except GeodagError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    config = uvicorn.Config(
        app,
        host=settings.orchestrator_host,
        port=settings.orchestrator_port,
        loop="uvloop",
        http="httptools",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = DrainingServer(config, app)
    settle_heap()
    server.run()
    return 0 if server.started else 1


if __name__ == "__main__":
    sys.exit(main())
