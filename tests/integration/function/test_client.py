"""The gateway's way to the orchestrators, against real sockets that answer, refuse or break."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from core.identity import SERVICE_HEADER
from function.client import OrchestratorClient, OrchestratorUnavailable, takes_key
from orchestrator.app import ROUTERS
from orchestrator.strict import IDEMPOTENCY_HEADER, StrictRoute
from tests.integration.function.conftest import CLOSED_PORT

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def orchestrator(handler: Handler) -> AsyncIterator[tuple[str, list[web.Request]]]:
    """Run a server that counts its requests."""
    seen: list[web.Request] = []

    async def count(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        return await handler(request)

    runner = web.ServerRunner(web.Server(count))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert isinstance(site._server, asyncio.Server)
    port = site._server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", seen
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def client(*urls: str) -> AsyncIterator[OrchestratorClient]:
    """Return a client that is closed at the end."""
    made = OrchestratorClient(urls, "service-key")
    try:
        yield made
    finally:
        await made.close()


async def well(request: web.Request) -> web.StreamResponse:
    headers = {"Location": "/there", "Retry-After": "2", "ETag": '"1"', "X-Inner": "secret", "Set-Cookie": "a=b"}
    return web.Response(status=202, text="{}", headers=headers, content_type="application/problem+json")


async def busy(request: web.Request) -> web.StreamResponse:
    return web.Response(status=503, text="busy")


async def breaks(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def test_credentials_and_contract_headers_go_out_and_nothing_else() -> None:
    async with orchestrator(well) as (url, seen), client(url) as made:
        sent = {
            "x-api-key": "caller-key",
            "authorization": "Bearer t",
            "idempotency-key": "k",
            "content-type": "application/json",
            SERVICE_HEADER.lower(): "forged",
            "cookie": "c=1",
            "x-forwarded-for": "1.2.3.4",
        }
        await made.forward("POST", "/api/v1/submit", headers=sent, body=b"{}")
        (request,) = seen
        assert request.headers[SERVICE_HEADER] == "service-key"
        assert request.headers.getall(SERVICE_HEADER) == ["service-key"]
        assert {name: request.headers.get(name) for name in ("X-API-Key", "Authorization", "Idempotency-Key")} == {
            "X-API-Key": "caller-key",
            "Authorization": "Bearer t",
            "Idempotency-Key": "k",
        }
        assert not {"Cookie", "X-Forwarded-For"} & set(request.headers)


async def test_an_answer_comes_back_with_its_contract_headers_only() -> None:
    async with orchestrator(well) as (url, _), client(url) as made:
        reply = await made.forward("POST", "/x", headers={})
        assert (reply.status, reply.body) == (202, b"{}")
        assert set(reply.headers) == {"Content-Type", "Location", "Retry-After", "ETag"}


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_dead_address_is_passed_over_and_not_asked_first_again(method: str) -> None:
    async with orchestrator(well) as (url, seen), client(CLOSED_PORT, url) as made:
        for _ in range(3):
            assert (await made.forward(method, "/x", headers={})).status == 202
        assert (len(seen), made._preferred) == (3, 1)


async def test_an_orchestrator_that_is_not_ready_is_passed_over() -> None:
    async with orchestrator(busy) as (first, asked), orchestrator(well) as (second, _), client(first, second) as made:
        assert (await made.forward("POST", "/x", headers={})).status == 202
        assert len(asked) == 1


async def test_when_all_are_busy_the_last_answer_is_passed_on() -> None:
    async with orchestrator(busy) as (first, _), client(first, CLOSED_PORT) as made:
        assert (await made.forward("POST", "/x", headers={})).body == b"busy"


async def test_when_none_is_there_the_caller_is_told_to_come_again() -> None:
    async with client(CLOSED_PORT) as made:
        with pytest.raises(OrchestratorUnavailable, match="no orchestrator answers"):
            await made.forward("POST", "/x", headers={})


async def test_a_mutation_that_broke_after_it_was_sent_is_not_sent_again() -> None:
    async with orchestrator(breaks) as (first, asked), orchestrator(well) as (second, other):
        async with client(first, second) as made:
            with pytest.raises(OrchestratorUnavailable, match="may have acted"):
                await made.forward("POST", "/x", headers={}, body=b"{}")
        assert (len(asked), len(other)) == (1, 0)


KEYED = ["jobs", "submit", "validate", "requests/batch", "requests/r%2F1/resubmit"]
UNKEYED = ["jobs/j/rerun", "jobs/batch", "jobs/", "commands/rerun", "requests/r/cancel", "requests/r/s/resubmit"]


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [("GET", "jobs", {}), *(("POST", path, {"idempotency-key": "k"}) for path in KEYED)],
)
async def test_what_may_be_repeated_is_sent_to_the_next(method: str, path: str, headers: dict[str, str]) -> None:
    async with orchestrator(breaks) as (first, _), orchestrator(well) as (second, _), client(first, second) as made:
        assert (await made.forward(method, f"/api/v1/{path}", headers=headers)).status == 202


@pytest.mark.parametrize(("path", "keyed"), [*((path, True) for path in KEYED), *((path, False) for path in UNKEYED)])
async def test_a_key_is_advised_where_it_is_read(path: str, keyed: bool) -> None:
    async with orchestrator(breaks) as (url, _), client(url) as made:
        with pytest.raises(OrchestratorUnavailable) as caught:
            await made.forward("POST", f"/api/v1/{path}", headers={}, body=b"{}")
    assert ("Idempotency-Key" in (caught.value.detail.remediation or "")) == keyed


@pytest.mark.parametrize("path", UNKEYED)
async def test_an_order_under_a_key_that_nobody_reads_is_not_sent_again(path: str) -> None:
    async with (
        orchestrator(breaks) as (first, one),
        orchestrator(well) as (second, other),
        client(first, second) as made,
    ):
        with pytest.raises(OrchestratorUnavailable, match="may have acted"):
            await made.forward("POST", f"/api/v1/{path}", headers={"Idempotency-Key": "k"}, body=b"{}")
        assert (len(one), len(other)) == (1, 0)


def test_a_key_counts_as_read_where_an_orchestrator_says_that_it_reads_it() -> None:
    said = {
        (method, route.path): IDEMPOTENCY_HEADER in str(route.openapi_extra)
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, StrictRoute)
        for method in route.methods
    }
    assert sum(said.values()) == len(KEYED)
    assert said == {(method, path): takes_key(method, re.sub(r"\{\w+\}", "x", path)) for method, path in said}
