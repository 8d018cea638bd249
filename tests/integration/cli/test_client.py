"""The command's HTTP side against a real server on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from cli.client import Client
from cli.commands.submit import Order, SubmitDisplay, wait_for_request
from cli.errors import Refused, Unreachable
from cli.stack.files import write_json
from cli.stack.layout import Urls
from cli.stack.ports import HOST, choose_ports
from cli.target import KEY_VARIABLE, URL_VARIABLES, Target

PROBLEM = {"code": "FORBIDDEN", "detail": "not yours", "field": "platform_id"}


class Peer:
    """A server that remembers what it was sent."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.states = iter(["queued", "processing", "processing", "completed"])
        self.away = 0
        """How many more status calls meet a platform that restarts."""

    async def answer(self, request: web.Request) -> web.Response:
        self.seen.append((request.method, request.path_qs, dict(request.headers), await request.read()))
        if request.path == "/refused":
            return web.json_response(PROBLEM, status=403, content_type="application/problem+json")
        if request.path == "/broken":
            return web.Response(status=502, text="<html>secret inside</html>", content_type="text/html")
        if request.path.startswith("/api/platform/status/") and self.away:
            self.away -= 1
            if self.away % 2 and request.transport:
                request.transport.abort()
            return web.json_response({"code": "DATABASE_UNAVAILABLE"}, status=503)
        if request.path.startswith("/api/platform/status/"):
            return web.json_response({"request_id": "r1", "state": next(self.states), "progress": {}})
        return web.json_response({"ok": True})


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", peer.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0)
    await site.start()
    peer.url = f"http://{HOST}:{runner.addresses[0][1]}"
    yield peer
    await runner.cleanup()


async def test_a_call_carries_the_key_and_returns_the_answer(peer: Peer) -> None:
    async with Client("k1") as client:
        assert await client.call("POST", f"{peer.url}/x", {"a": 1}) == {"ok": True}
    method, path, headers, body = peer.seen[0]
    assert (method, path, headers["X-API-Key"], json.loads(body)) == ("POST", "/x", "k1", {"a": 1})


@pytest.mark.parametrize(("text", "size_bytes"), [("é" * 1000, 2000), ("\ud800", 6)], ids=["letters", "surrogate"])
async def test_a_body_has_the_size_of_its_text_in_utf_8(peer: Peer, text: str, size_bytes: int) -> None:
    """A lone surrogate, which UTF-8 has not, is for the platform to refuse."""
    async with Client("k1") as client:
        await client.call("POST", f"{peer.url}/x", {"a": text})
    body = peer.seen[0][3]
    assert (len(body), json.loads(body)) == (size_bytes + len('{"a": ""}'), {"a": text})


async def test_a_problem_document_becomes_a_refusal(peer: Peer) -> None:
    async with Client("k1") as client:
        with pytest.raises(Refused) as refused:
            await client.call("GET", f"{peer.url}/refused")
    assert (refused.value.status, refused.value.problem) == (403, PROBLEM)


async def test_an_answer_that_is_no_json_is_not_quoted(peer: Peer) -> None:
    async with Client("k1") as client:
        with pytest.raises(Refused) as refused:
            await client.call("GET", f"{peer.url}/broken")
    assert "secret" not in str(refused.value)


async def test_nobody_listening_is_unreachable() -> None:
    port = choose_ports(("nobody",), {})["nobody"]
    async with Client("k1") as client:
        with pytest.raises(Unreachable, match=f"{port}.*geodag up"):
            await client.call("GET", f"http://{HOST}:{port}/x")


async def test_an_upload_streams_the_file_without_the_callers_key(peer: Peer, tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000
    path = tmp_path / "a.tif"
    await asyncio.to_thread(path.write_bytes, content)
    sent: list[int] = []
    async with Client("k1") as client:
        await client.upload(f"{peer.url}/uploads/token", path, sent.append)
    method, _, headers, body = peer.seen[0]
    assert (method, headers["Content-Length"], body) == ("PUT", str(len(content)), content)
    assert "X-API-Key" not in headers
    assert sum(sent) == len(content)
    assert len(sent) > 1


async def test_waiting_ends_with_the_final_state_and_long_polls_on_the_way(peer: Peer, tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    await asyncio.to_thread(path.write_bytes, b"x")
    target = Target(Urls(peer.url, peer.url, peer.url), tmp_path)
    order = Order(path, "ddh", {}, None)
    async with Client("k1") as client:
        with SubmitDisplay(order) as display:
            status = await wait_for_request(client, target, "r1", display)
    assert status["state"] == "completed"
    assert [path.partition("?")[2] for _, path, _, _ in peer.seen] == ["", "wait=20", "wait=20", "wait=20"]


async def test_waiting_outlasts_a_platform_that_restarts(peer: Peer, tmp_path: Path) -> None:
    peer.away = 3
    path = tmp_path / "a.tif"
    await asyncio.to_thread(path.write_bytes, b"x")
    target = Target(Urls(peer.url, peer.url, peer.url), tmp_path)
    async with Client("k1") as client:
        with SubmitDisplay(Order(path, "ddh", {}, None)) as display:
            status = await wait_for_request(client, target, "r1", display)
    assert (status["state"], peer.away) == ("completed", 0)


async def test_the_display_ends_its_last_line_where_it_cannot_draw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.tif"
    await asyncio.to_thread(path.write_bytes, b"x")
    with SubmitDisplay(Order(path, "ddh", {}, None)) as display:
        display.status({"state": "completed", "progress": {}})
    assert capsys.readouterr().err.endswith("\n")


def test_a_home_that_was_never_started_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in URL_VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(Unreachable, match="geodag up"):
        Target.of(tmp_path)


def test_the_environment_names_another_platform_and_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(
        tmp_path / "stack.json", {"urls": {"gateway": "http://a", "orchestrator": "http://b", "serving": "http://c"}}
    )
    monkeypatch.setenv("GEODAG_GATEWAY_URL", "https://elsewhere")
    monkeypatch.setenv(KEY_VARIABLE, "k2")
    target = Target.of(tmp_path)
    assert target.urls == Urls("https://elsewhere", "http://b", "http://c")
    assert target.key("reviewer") == "k2"
