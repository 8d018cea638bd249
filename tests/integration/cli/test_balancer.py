"""The round-robin balancer over real sockets."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from cli.stack.balancer import Address, Balancer, RoundRobin
from cli.stack.ports import HOST, choose_ports
from tests.support.waiting import await_until

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def upstream(name: bytes) -> AsyncIterator[Address]:
    """A server that answers each line with its own name and the line."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(name + b" " + line)
            await writer.drain()

    async with serving(answer) as address:
        yield address


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Address]:
    """A server whose connections are all closed at the end."""
    running: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(reader, writer)
        writer.close()
        await writer.wait_closed()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        running.add(asyncio.create_task(handle(reader, writer)))

    server = await asyncio.start_server(connected, HOST, 0)
    yield server.sockets[0].getsockname()
    server.close()
    async with asyncio.timeout(10):
        await asyncio.gather(*running)


@asynccontextmanager
async def balancer(*upstreams: Address) -> AsyncIterator[Address]:
    running = Balancer(upstreams)
    yield await running.listen((HOST, 0))
    await running.close()


def nobody() -> Address:
    return HOST, choose_ports(("nobody",), {})["nobody"]


async def ask(address: Address, *lines: bytes) -> list[bytes]:
    reader, writer = await asyncio.open_connection(*address)
    answers = []
    for line in lines:
        writer.write(line + b"\n")
        answers.append((await reader.readline()).strip())
    await hang_up(writer)
    return answers


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


async def test_connections_take_turns_and_a_connection_stays_where_it_is() -> None:
    async with upstream(b"a") as a, upstream(b"b") as b, balancer(a, b) as door:
        answers = [await ask(door, b"1", b"2") for _ in range(4)]
    assert answers == [[b"a 1", b"a 2"], [b"b 1", b"b 2"]] * 2


async def test_an_upstream_that_refuses_is_passed_over() -> None:
    async with upstream(b"a") as a, balancer(nobody(), a) as door:
        assert [await ask(door, b"x") for _ in range(3)] == [[b"a x"]] * 3


async def test_without_any_upstream_the_client_is_hung_up_on() -> None:
    async with balancer(nobody(), nobody()) as door:
        reader, writer = await asyncio.open_connection(*door)
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        await hang_up(writer)


async def test_a_half_closed_connection_still_gets_its_answer() -> None:
    async with upstream(b"a") as a, balancer(a) as door:
        reader, writer = await asyncio.open_connection(*door)
        writer.write(b"last\n")
        writer.write_eof()
        async with asyncio.timeout(10):
            assert await reader.read() == b"a last\n"
        await hang_up(writer)


async def test_a_connection_that_both_sides_ended_is_forgotten() -> None:
    async with upstream(b"a") as a:
        running = Balancer([a])
        door = await running.listen((HOST, 0))
        await ask(door, b"x")

        async def forgotten() -> bool:
            return not running.open

        await await_until(forgotten, "the connection forgotten")
        await running.close()


async def test_a_large_body_passes_whole_through_a_slow_reader() -> None:
    body = b"x" * (8 * 1024 * 1024)

    async def send_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(body)
        await writer.drain()

    async with serving(send_all) as address, balancer(address) as door:
        reader, writer = await asyncio.open_connection(*door, limit=1024)
        size = 0
        async with asyncio.timeout(30):
            while piece := await reader.read(4096):
                size += len(piece)
        await hang_up(writer)
    assert size == len(body)


async def test_the_process_serves_until_sigterm() -> None:
    port = choose_ports(("door",), {})["door"]
    async with upstream(b"a") as a:
        arguments = ["--listen", f"{HOST}:{port}", "--upstream", f"{a[0]}:{a[1]}"]
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "cli.stack.balancer", *arguments)
        try:
            await await_until(lambda: answers((HOST, port)), "the balancer listening")
            talks = [ask((HOST, port), b"1", b"2") for _ in range(200)]
            assert await asyncio.gather(*talks) == [[b"a 1", b"a 2"]] * 200
        finally:
            process.terminate()
        assert await process.wait() == 0


async def answers(address: Address) -> bool:
    try:
        return await ask(address, b"x") == [b"a x"]
    except OSError:
        return False


def test_a_balancer_without_upstreams_is_refused() -> None:
    with pytest.raises(ValueError, match="upstream"):
        RoundRobin([])
