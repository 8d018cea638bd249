from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from core.identity import SERVICE_HEADER
from core.ids import digest
from core.wire import (
    ClaimAnswer,
    ClaimOutcome,
    ClaimRequest,
    ClaimResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ReleaseRequest,
    ResultAnswer,
    ResultDisposition,
    ResultRequest,
    ResultResponse,
    Revocation,
    TaskMessage,
    TaskResult,
)

SERVICE_KEY = "worker-key"


@dataclass
class Orchestrator:
    """A real HTTP peer that answers as it is told and keeps what it was sent."""

    url: str = ""
    dispatched: dict[str, TaskMessage] = field(default_factory=dict)
    checkpoints: dict[str, dict[str, Any]] = field(default_factory=dict)
    outcomes: dict[str, ClaimOutcome] = field(default_factory=dict)
    """What to answer to the claims of a task; default: granted."""
    disposition: ResultDisposition = ResultDisposition.APPLIED
    failing: dict[str, int] = field(default_factory=dict)
    """Path -> HTTP status to answer instead."""
    poison: set[str] = field(default_factory=set)
    """Task ids whose results are refused with 422."""
    revoked: dict[str, str] = field(default_factory=dict)
    claims: list[ClaimRequest] = field(default_factory=list)
    beats: list[HeartbeatRequest] = field(default_factory=list)
    releases: list[ReleaseRequest] = field(default_factory=list)
    result_calls: list[ResultRequest] = field(default_factory=list)
    results: dict[str, TaskResult] = field(default_factory=dict)

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        app.router.add_post("/api/v1/callbacks/claims", self._claims)
        app.router.add_post("/api/v1/callbacks/heartbeats", self._heartbeats)
        app.router.add_post("/api/v1/callbacks/task-results", self._results)
        app.router.add_post("/api/v1/callbacks/releases", self._releases)
        return app

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        assert request.headers[SERVICE_HEADER] == SERVICE_KEY
        if status := self.failing.get(request.path.rsplit("/", 1)[1]):
            return web.Response(status=status)
        return await handler(request)

    async def _claims(self, request: web.Request) -> web.Response:
        call = ClaimRequest.model_validate_json(await request.read())
        self.claims.append(call)
        answers = tuple(self._answer(claim.task_id) for claim in call.claims)
        return _json(ClaimResponse(answers=answers))

    def _answer(self, task_id: str) -> ClaimAnswer:
        outcome = self.outcomes.get(task_id, ClaimOutcome.GRANTED)
        if outcome is not ClaimOutcome.GRANTED:
            return ClaimAnswer(task_id=task_id, outcome=outcome, reason=f"test says {outcome}")
        message = self.dispatched[task_id]
        return ClaimAnswer(
            task_id=task_id,
            outcome=outcome,
            lease_seconds=20,
            handler=message.handler,
            params_digest=digest(message.params),
            checkpoint=self.checkpoints.get(task_id),
        )

    async def _heartbeats(self, request: web.Request) -> web.Response:
        call = HeartbeatRequest.model_validate_json(await request.read())
        self.beats.append(call)
        ids = {beat.task_id for beat in call.beats}
        revoked = tuple(Revocation(task_id=t, reason=r) for t, r in self.revoked.items() if t in ids)
        return _json(HeartbeatResponse(lease_seconds=20, revoked=revoked))

    async def _results(self, request: web.Request) -> web.Response:
        call = ResultRequest.model_validate_json(await request.read())
        self.result_calls.append(call)
        if any(result.task_id in self.poison for result in call.results):
            return web.Response(status=422, text="poison")
        self.results.update({result.task_id: result for result in call.results})
        answers = tuple(ResultAnswer(task_id=r.task_id, disposition=self.disposition) for r in call.results)
        return _json(ResultResponse(answers=answers))

    async def _releases(self, request: web.Request) -> web.Response:
        self.releases.append(ReleaseRequest.model_validate_json(await request.read()))
        return web.json_response({})

    def released(self) -> dict[str, dict[str, Any] | None]:
        return {release.task_id: release.checkpoint for call in self.releases for release in call.releases}


def _json(model: Any) -> web.Response:
    return web.Response(text=model.model_dump_json(), content_type="application/json")


async def serve(peer: Orchestrator, port: int = 0) -> web.AppRunner:
    runner = web.AppRunner(peer.app(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    peer.url = f"http://127.0.0.1:{runner.addresses[0][1]}/api/v1/callbacks"
    return runner


@pytest.fixture
async def orchestrator() -> AsyncIterator[Orchestrator]:
    peer = Orchestrator()
    runner = await serve(peer)
    yield peer
    await runner.cleanup()


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"
