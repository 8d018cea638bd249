import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from psycopg import AsyncConnection

from core.handlers_catalog import LIGHT_QUEUE
from core.identity import SERVICE_HEADER
from core.ids import digest
from core.payloads import PayloadRef
from core.wire import (
    ClaimAnswer,
    ClaimOutcome,
    ClaimRequest,
    ClaimResponse,
    ExchangeRequest,
    ExchangeResponse,
    Grant,
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
from messaging.postgres import PostgresTaskQueue
from repositories import roles
from tests.support.azure_side import Azure
from tests.support.databases import Database
from tests.support.service_bus import BusSide
from tests.support.storage import Storage
from tests.support.waiting import await_until

SERVICE_KEY = "worker-key"


@dataclass
class Orchestrator:
    """A real HTTP peer that answers as it is told and keeps what it was sent."""

    url: str = ""
    dispatched: dict[str, TaskMessage] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    """Params digests by task; default: of the params in the message."""
    checkpoints: dict[str, dict[str, Any]] = field(default_factory=dict)
    outcomes: dict[str, ClaimOutcome] = field(default_factory=dict)
    """What to answer to the claims of a task; default: granted."""
    disposition: ResultDisposition = ResultDisposition.APPLIED
    failing: dict[str, int] = field(default_factory=dict)
    """Path -> HTTP status to answer instead."""
    failed: int = 0
    """Calls that were answered so."""
    poison: set[str] = field(default_factory=set)
    """Task ids whose results are refused with 422."""
    revoked: dict[str, str] = field(default_factory=dict)
    lease_seconds: float = 20
    claims_asked: int = 0
    claims: list[ClaimRequest] = field(default_factory=list)
    beats: list[HeartbeatRequest] = field(default_factory=list)
    releases: list[ReleaseRequest] = field(default_factory=list)
    result_calls: list[ResultRequest] = field(default_factory=list)
    results: dict[str, TaskResult] = field(default_factory=dict)
    silent: asyncio.Event | None = None
    """Until it is set no results are answered."""
    next: list[TaskMessage] | None = None
    """Tasks to give with answers to results; None for an orchestrator of the build before, which knows no such call."""
    exchanges: list[ExchangeRequest] = field(default_factory=list)

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        app.router.add_post("/api/v1/callbacks/claims", self._claims)
        app.router.add_post("/api/v1/callbacks/heartbeats", self._heartbeats)
        app.router.add_post("/api/v1/callbacks/task-results", self._results)
        app.router.add_post("/api/v1/callbacks/releases", self._releases)
        app.router.add_post("/api/v1/callbacks/exchange", self._exchange)
        return app

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        assert request.headers[SERVICE_HEADER] == SERVICE_KEY
        self.claims_asked += request.path.endswith("claims")
        if status := self.failing.get(request.path.rsplit("/", 1)[1]):
            self.failed += 1
            return web.Response(status=status)
        return await handler(request)

    async def _claims(self, request: web.Request) -> web.Response:
        call = ClaimRequest.model_validate_json(await request.read())
        self.claims.append(call)
        fitting = call.claims[: call.free.slots]
        answers = tuple(self._answer(claim.task_id) for claim in fitting) + tuple(
            ClaimAnswer(task_id=claim.task_id, outcome=ClaimOutcome.NO_FIT, reason="no free slot")
            for claim in call.claims[call.free.slots :]
        )
        return _json(ClaimResponse(answers=answers))

    def _answer(self, task_id: str) -> ClaimAnswer:
        outcome = self.outcomes.get(task_id, ClaimOutcome.GRANTED)
        if outcome is not ClaimOutcome.GRANTED:
            return ClaimAnswer(task_id=task_id, outcome=outcome, reason=f"test says {outcome}")
        message = self.dispatched[task_id]
        return ClaimAnswer(
            task_id=task_id,
            outcome=outcome,
            lease_seconds=self.lease_seconds,
            handler=message.handler,
            params_digest=self.digests.get(task_id, digest(message.params)),
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
        if self.silent is not None:
            await self.silent.wait()
        if any(result.task_id in self.poison for result in call.results):
            return web.Response(status=422, text="poison")
        self.results.update({result.task_id: result for result in call.results})
        answers = tuple(ResultAnswer(task_id=r.task_id, disposition=self.disposition) for r in call.results)
        return _json(ResultResponse(answers=answers))

    async def _exchange(self, request: web.Request) -> web.Response:
        if self.next is None:
            return web.Response(status=404)
        call = ExchangeRequest.model_validate_json(await request.read())
        self.exchanges.append(call)
        if self.silent is not None:
            await self.silent.wait()
        self.results.update({result.task_id: result for result in call.results})
        given, self.next = self.next[: call.free.slots], self.next[call.free.slots :]
        self.dispatched.update({message.task_id: message for message in given})
        grants = tuple(Grant(message=message, answer=self._answer(message.task_id)) for message in given)
        answers = tuple(ResultAnswer(task_id=r.task_id, disposition=self.disposition) for r in call.results)
        return _json(ExchangeResponse(answers=answers, grants=grants))

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


def task(task_id: str, handler: str, params: dict[str, Any] | None = None) -> TaskMessage:
    """Return the message of a task that is dispatched by other means than the queue."""
    job_id, node_id, attempt = task_id.split("_")
    return TaskMessage(
        task_id=task_id,
        job_id=job_id,
        node_id=node_id,
        attempt=int(attempt),
        dispatch_no=1,
        handler=handler,
        queue=LIGHT_QUEUE,
        params=params or {},
        timeout_seconds=30,
        token="aa",
    )


class Dispatcher:
    """Puts tasks on the real queue, as an orchestrator's transaction does."""

    def __init__(self, orchestrator: Orchestrator, conn: AsyncConnection[Any], side: BusSide | None = None) -> None:
        self.orchestrator = orchestrator
        self._conn = conn
        self._side = side

    async def __call__(
        self,
        task_id: str,
        handler: str,
        params: dict[str, Any] | None = None,
        *,
        queue: str = LIGHT_QUEUE,
        timeout_seconds: float = 30,
        token: str = "aa",
        dispatch_no: int = 1,
        params_ref: PayloadRef | None = None,
        items: tuple[int, ...] | None = None,
    ) -> TaskMessage:
        job_id, node_id, attempt = task_id.split("_")
        message = TaskMessage(
            task_id=task_id,
            job_id=job_id,
            node_id=node_id,
            attempt=int(attempt),
            dispatch_no=dispatch_no,
            handler=handler,
            queue=queue,
            params=params or {},
            params_ref=params_ref,
            items=items,
            timeout_seconds=timeout_seconds,
            token=token,
        )
        self.orchestrator.dispatched[task_id] = message
        await PostgresTaskQueue().enqueue(self._conn, [message])
        await self._conn.commit()
        return message

    async def waiting(self) -> list[str]:
        """Return the tasks whose messages are still in the queue, or in the outbox on their way to it."""
        cursor = await self._conn.execute("SELECT task_id FROM dagqueue.messages ORDER BY task_id")
        rows = await cursor.fetchall()
        await self._conn.commit()
        held = [] if self._side is None else list(self._side.peer.broker.find(LIGHT_QUEUE).messages.values())
        return sorted({*(row[0] for row in rows), *(str(one.envelope.message_id).rpartition(".")[0] for one in held)})

    async def dead(self) -> dict[str, str]:
        """Return dead letters: task -> reason."""
        if self._side is not None and self._side.peer.broker.find(f"{LIGHT_QUEUE}/$DeadLetterQueue").messages:
            await self._side.carrier().carry(20)
        cursor = await self._conn.execute("SELECT task_id, reason FROM dagqueue.dead_letters")
        rows = await cursor.fetchall()
        await self._conn.commit()
        return {row[0]: row[1] for row in rows}

    async def result(self, task_id: str, timeout_seconds: float = 60) -> TaskResult:
        """Wait for a task's result."""

        async def arrived() -> TaskResult | None:
            return self.orchestrator.results.get(task_id)

        found = await await_until(arrived, f"result of {task_id}", timeout_seconds)
        assert found is not None
        return found

    async def empty(self) -> None:
        """Wait until the queue has no message."""

        async def nothing() -> bool:
            return await self.waiting() == []

        await await_until(nothing, "the queue is empty")

    async def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until a condition about the orchestrator holds, and return its value."""

        async def holds() -> Any:
            return condition()

        return await await_until(holds, what, 60)


@pytest.fixture
def dispatch(orchestrator: Orchestrator, conn: AsyncConnection[Any], queue_side: BusSide | None) -> Dispatcher:
    return Dispatcher(orchestrator, conn, queue_side)


@pytest.fixture
def worker_environment(
    database: Database,
    orchestrator: Orchestrator,
    tmp_path: Path,
    storage: Storage,
    azure: Azure | None,
    queue_side: BusSide | None,
) -> dict[str, str]:
    """Return the settings of a light worker that beats often."""
    queue = {} if azure is None or queue_side is None else azure.at(queue_side.peer)
    return {
        **storage.environment(database, roles.WORKER),
        "WORKER_QUEUE": LIGHT_QUEUE,
        "WORKER_TYPE": "light",
        "WORKER_STATE_DIR": str(tmp_path / "state"),
        "WORKER_SCRATCH_DIR": str(tmp_path / "work"),
        "WORKER_HEALTH_PORT": "0",
        "WORKER_HEARTBEAT_SECONDS": "0.2",
        "WORKER_JOURNAL_FILE": str(tmp_path / "journal"),
        "WORKER_SERVICE_KEY": SERVICE_KEY,
        "DAG_CALLBACK_URL": orchestrator.url,
        "LOG_FORMAT": "text",
        **queue,
    }


@pytest.fixture
def environment(worker_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Put the worker's settings into this process's environment."""
    for name, value in worker_environment.items():
        monkeypatch.setenv(name, value)
    return worker_environment
