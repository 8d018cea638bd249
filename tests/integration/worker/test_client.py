"""The client over real sockets."""

import socket
from collections.abc import AsyncIterator, Sequence

import pytest
from aiohttp import web

from cli.stack.ports import choose_ports
from core.wire import Capacity, HeartbeatRequest, WorkerIdentity
from tests.integration.worker.conftest import SERVICE_KEY, Orchestrator, serve
from worker.client import CallbackClient, NoAnswer, Refused

REQUEST = HeartbeatRequest(
    worker=WorkerIdentity(worker_id="w", queue="q", host="h", pid=1, build_id="b"), free=Capacity(slots=1), beats=()
)
PATIENT = 20.0
"""Seconds for peers that answer, also on a machine that is busy with something else."""
IMPATIENT = 2.0


class Clients:
    """Makes clients and closes them."""

    def __init__(self) -> None:
        self.made: list[CallbackClient] = []

    def __call__(self, urls: Sequence[str], seconds: float = PATIENT) -> CallbackClient:
        self.made.append(CallbackClient(urls, SERVICE_KEY, seconds))
        return self.made[-1]


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Clients]:
    """Yield what makes clients; each asks its first address first."""
    monkeypatch.setattr("worker.client.random.randrange", lambda _: 0)
    clients = Clients()
    yield clients
    for made in clients.made:
        await made.close()


@pytest.fixture
def nobody() -> str:
    return f"http://127.0.0.1:{choose_ports(('nobody',), {})['nobody']}/api/v1/callbacks"


async def test_a_call_moves_on_from_a_dead_address(client: Clients, orchestrator: Orchestrator, nobody: str) -> None:
    answer = await client([nobody, orchestrator.url]).heartbeats(REQUEST)
    assert answer.lease_seconds == 20


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_a_call_moves_on_from_an_instance_that_cannot_answer(
    client: Clients, orchestrator: Orchestrator, status: int
) -> None:
    other = Orchestrator(failing={"heartbeats": status})
    runner = await serve(other)
    await client([other.url, orchestrator.url]).heartbeats(REQUEST)
    await runner.cleanup()
    assert len(orchestrator.beats) == 1


async def test_a_call_moves_on_from_an_instance_that_hangs(client: Clients, orchestrator: Orchestrator) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        two = client([f"http://127.0.0.1:{silent.getsockname()[1]}", orchestrator.url], IMPATIENT)
        await two.heartbeats(REQUEST)
        await two.heartbeats(REQUEST)
        silent.settimeout(0)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()
    assert len(orchestrator.beats) == 2


async def test_without_any_answer_the_call_says_so_and_names_the_addresses(client: Clients, nobody: str) -> None:
    lonely = client([nobody])
    with pytest.raises(NoAnswer, match=nobody):
        await lonely.heartbeats(REQUEST)
    assert lonely.last_answer_at is None


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 422])
async def test_a_refusal_is_not_asked_again(client: Clients, orchestrator: Orchestrator, status: int) -> None:
    orchestrator.failing["heartbeats"] = status
    with pytest.raises(Refused) as caught:
        await client([orchestrator.url]).heartbeats(REQUEST)
    assert caught.value.status == status


async def test_an_answer_that_is_no_answer_may_be_asked_again(client: Clients) -> None:
    async def say(request: web.Request) -> web.Response:
        return web.Response(text="<html>proxy</html>")

    app = web.Application()
    app.router.add_post("/heartbeats", say)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    with pytest.raises(NoAnswer):
        await client([f"http://127.0.0.1:{runner.addresses[0][1]}"]).heartbeats(REQUEST)
    await runner.cleanup()


async def test_a_restarted_orchestrator_is_found_again_over_the_same_client(client: Clients) -> None:
    peer = Orchestrator()
    runner = await serve(peer)
    port = runner.addresses[0][1]
    lasting = client([peer.url])
    await lasting.heartbeats(REQUEST)
    await runner.cleanup()
    with pytest.raises(NoAnswer):
        await lasting.heartbeats(REQUEST)
    runner = await serve(peer, port)
    await lasting.heartbeats(REQUEST)
    await runner.cleanup()
    assert len(peer.beats) == 2
