"""A dumb layer-4 round-robin balancer for loopback: it knows connections, not requests.

Each new connection goes to the next upstream; one that refuses is passed over. Nothing is retried once bytes flow:
clients have time-outs of their own. `python -m cli.stack.balancer --listen 127.0.0.1:8000 --upstream …`
"""

import argparse
import asyncio
import signal
import socket
from collections.abc import Coroutine, Iterator, Sequence
from itertools import chain
from typing import cast

import uvloop

CONNECT_TIMEOUT_SECONDS = 2.0
Address = tuple[str, int]


def parse_address(text: str) -> Address:
    """Return host and port of `host:port`."""
    host, _, port = text.rpartition(":")
    return host, int(port)


class RoundRobin:
    """The order in which upstreams are tried, one step further for every connection."""

    def __init__(self, upstreams: Sequence[Address]) -> None:
        if not upstreams:
            raise ValueError("a balancer needs at least one upstream")
        self._upstreams = tuple(upstreams)
        self._next = 0

    def order(self) -> Iterator[Address]:
        """Return every upstream once, starting with the one whose turn it is."""
        start = self._next
        self._next = (start + 1) % len(self._upstreams)
        return chain(self._upstreams[start:], self._upstreams[:start])


class Pipe(asyncio.Protocol):
    """One side of a proxied connection; writes what it reads to its peer, with flow control both ways."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer: Pipe | None = None
        self.ended = False
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send small writes at once, since Nagle would add 40 ms."""
        # uvloop's transports are no subclass of asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def join(self, peer: "Pipe") -> None:
        """Pass everything on to a peer from now on, and what came before it was there."""
        self.peer = peer
        if self.transport is None or peer.transport is None:
            return
        if self._early:
            peer.transport.writelines(self._early)
            self._early.clear()
            self.transport.resume_reading()
        if self.ended:
            peer.transport.write_eof()

    def data_received(self, data: bytes) -> None:
        """Pass bytes on; without a peer keep them, and read no more until there is one."""
        if self.peer is None:
            if not self._early and self.transport:
                # Not earlier: uvloop forgets a pause that is asked for in connection_made.
                self.transport.pause_reading()
            self._early.append(data)
        elif self.peer.transport:
            self.peer.transport.write(data)

    def eof_received(self) -> bool:
        """Pass a half-close on and keep the other direction open; close once both directions have ended."""
        self.ended = True
        if self.peer is None:
            return True
        if self.peer.transport is None or self.peer.ended:
            return False
        self.peer.transport.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other side too."""
        if self.peer and self.peer.transport:
            self.peer.transport.close()
        self.transport = None

    def pause_writing(self) -> None:
        """Stop reading from the peer while this side's buffer is full."""
        if self.peer and self.peer.transport:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read from the peer again."""
        if self.peer and self.peer.transport:
            self.peer.transport.resume_reading()


class ClientPipe(Pipe):
    """The accepting side, which finds its upstream."""

    def __init__(self, balancer: "Balancer") -> None:
        super().__init__()
        self._balancer = balancer
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Look for an upstream."""
        super().connection_made(transport)
        self._balancer.open.add(self)
        self._balancer.spawn(self._connect())

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the upstream's side too."""
        super().connection_lost(exc)
        self._balancer.open.discard(self)
        self.gone.set_result(None)

    async def _connect(self) -> None:
        upstream = await self._balancer.first_reachable()
        if upstream is None or upstream.transport is None or self.transport is None:
            for side in (upstream, self):
                if side and side.transport:
                    side.transport.close()
            return
        self.join(upstream)
        upstream.join(self)


class Balancer:
    """Accepts connections and gives each to the upstream whose turn it is."""

    def __init__(self, upstreams: Sequence[Address]) -> None:
        self.open: set[ClientPipe] = set()
        self._turns = RoundRobin(upstreams)
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, address: Address) -> Address:
        """Start to accept; return the address, with the port that was given for port 0."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: ClientPipe(self), *address, backlog=512)
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def close(self) -> None:
        """Stop accepting and hang up on everybody."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        for pipe in list(self.open):
            if pipe.transport:
                pipe.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(pipe.gone for pipe in list(self.open)))

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run something beside, and keep it from being collected."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def first_reachable(self) -> Pipe | None:
        """Return a connection to the first upstream, in turn, that accepts one."""
        loop = asyncio.get_running_loop()
        for host, port in self._turns.order():
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                    _, pipe = await loop.create_connection(Pipe, host, port)
            except OSError:
                continue
            return pipe
        return None


async def _serve(listen: Address, upstreams: Sequence[Address]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    balancer = Balancer(upstreams)
    await balancer.listen(listen)
    await stop.wait()
    await balancer.close()


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", type=parse_address, required=True, metavar="HOST:PORT")
    parser.add_argument("--upstream", type=parse_address, action="append", required=True, metavar="HOST:PORT")
    arguments = parser.parse_args()
    uvloop.run(_serve(arguments.listen, arguments.upstream))


if __name__ == "__main__":
    main()
