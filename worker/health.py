"""The worker's own small HTTP server: is it alive, should it be counted, what is it doing."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

_STALE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class HealthState:
    """What the server tells."""

    draining: bool
    last_answer_at: float | None
    """Monotonic time at which an orchestrator answered last."""
    details: dict[str, Any]

    @property
    def ready(self) -> bool:
        """Whether work given to this worker would be done now."""
        heard = self.last_answer_at is not None and time.monotonic() - self.last_answer_at < _STALE_SECONDS
        return heard and not self.draining


class HealthServer:
    """Serves /livez, /readyz and /health."""

    def __init__(self, state: Callable[[], HealthState]) -> None:
        self._state = state
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; `port` then says where."""
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/health", self._health)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _livez(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "alive"})

    async def _readyz(self, request: web.Request) -> web.Response:
        ready = self._state().ready
        return web.json_response({"ready": ready}, status=200 if ready else 503)

    async def _health(self, request: web.Request) -> web.Response:
        state = self._state()
        ago = None if state.last_answer_at is None else round(time.monotonic() - state.last_answer_at, 3)
        body = {"ready": state.ready, "draining": state.draining, "last_answer_seconds_ago": ago, **state.details}
        return web.json_response(body)
