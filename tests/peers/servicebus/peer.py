"""The peer as a whole: settings, listeners, timers; in the loop of its caller or in a thread of its own."""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from tests.peers.servicebus import atom, control
from tests.peers.servicebus.auth import Directory, Gatekeeper, SharedKey
from tests.peers.servicebus.broker import Broker
from tests.peers.servicebus.clock import Clock
from tests.peers.servicebus.connection import Connection
from tests.peers.servicebus.faults import Plan
from tests.peers.servicebus.journal import FileJournal
from tests.peers.servicebus.model import QueueSettings
from tests.peers.servicebus.queues import Queue
from tests.peers.servicebus.web import LOOPBACK, serve

STANDARD_BYTES: Final = 256 * 1024
PREMIUM_BYTES: Final = 1024 * 1024
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """What a peer is started with. `max_message_bytes` is the tier: 256 kB standard, 1 MB premium."""

    queues: tuple[QueueSettings, ...] = ()
    keys: tuple[SharedKey, ...] = (SharedKey(),)
    directory: Directory | None = None
    max_message_bytes: int = STANDARD_BYTES
    idle_seconds: float = 240.0
    port: int | None = 0
    """Of the door without TLS; None: there is none."""
    tls: ssl.SSLContext | None = None
    tls_port: int = 0
    admin_port: int = 0
    control_port: int | None = None
    journal: Path | None = None


@dataclass
class Peer:
    """A namespace that listens on loopback. Everything here belongs to the loop that `start` ran in."""

    settings: PeerSettings
    clock: Clock = field(default_factory=Clock)
    faults: Plan = field(default_factory=Plan)
    connections: set[Connection] = field(default_factory=set)
    ports: dict[str, int] = field(default_factory=dict)
    """Where it listens: amqp, amqps, admin and control, as far as they are asked for."""

    def __post_init__(self) -> None:
        self._journal = FileJournal(self.settings.journal) if self.settings.journal is not None else None
        self.broker = Broker(self.settings.queues, self.clock, self._journal)
        self.gatekeeper = Gatekeeper(self.settings.keys, self.settings.directory)
        self.max_message_bytes = self.settings.max_message_bytes
        self.idle_seconds = self.settings.idle_seconds
        self._servers: list[asyncio.Server] = []
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def connection_string(self) -> str:
        """Leads to the plain listener with the first rule's key."""
        rule = self.settings.keys[0]
        return connection_string(rule, self.ports["amqp"])

    async def start(self) -> None:
        """Listen."""
        settings = self.settings
        self.broker.on_due = self._arm
        if settings.port is not None:
            self.ports["amqp"] = await self._listen(settings.port, None)
        if settings.tls is not None:
            self.ports["amqps"] = await self._listen(settings.tls_port, settings.tls)
            self.ports["admin"] = self._keep(await serve(atom.answering(self), settings.admin_port, settings.tls))
        if settings.control_port is not None:
            self.ports["control"] = self._keep(await serve(control.answering(self), settings.control_port))
        self.broker.settle()

    async def stop(self) -> None:
        """Stop listening and drop every connection."""
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.drop()
        for server in self._servers:
            await server.wait_closed()
        await asyncio.gather(*(connection.gone.wait() for connection in list(self.connections)))
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._servers.clear()
        if self._journal is not None:
            self._journal.close()

    async def _listen(self, port: int, tls: ssl.SSLContext | None) -> int:
        loop = asyncio.get_running_loop()
        return self._keep(await loop.create_server(lambda: Connection(self), LOOPBACK, port, ssl=tls))

    def _keep(self, server: asyncio.Server) -> int:
        self._servers.append(server)
        found: int = server.sockets[0].getsockname()[1]
        return found

    def _arm(self, queue: Queue) -> None:
        """See to it that a queue is looked at when time next changes something in it."""
        at, armed = queue.next_due(), self._timers.get(queue.name)
        if at is None:
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + max(0.0, at - self.clock.now())
        if armed is not None:
            if armed.when() <= when and not armed.cancelled():
                return
            armed.cancel()
        self._timers[queue.name] = loop.call_at(when, self._fire, queue)

    def _fire(self, queue: Queue) -> None:
        self._timers.pop(queue.name, None)
        self.broker.changed(queue)

    # What tests do

    def advance(self, seconds: float) -> None:
        """Put the clock forward, and do everything that becomes due."""
        self.clock.advance(seconds)
        for connection in list(self.connections):
            connection.check_grants()
        self.broker.settle()

    def drop_connections(self, queue: str | None = None) -> int:
        """Drop the connections with a link to a queue, or all; return how many there were."""
        found = [connection for connection in self.connections if queue is None or connection.uses(queue)]
        for connection in found:
            connection.drop()
        return len(found)

    def expire_locks(self, queue: str) -> int:
        """Let every lock of a queue expire now; return how many there were."""
        found = self.broker.find(queue)
        count = found.expire_locks(self.clock.now())
        self.broker.changed(found)
        return count


def connection_string(rule: SharedKey, port: int) -> str:
    """Return a connection string for a rule that leads to a plain listener on loopback."""
    return (
        f"Endpoint=sb://{LOOPBACK}:{port};SharedAccessKeyName={rule.name};"
        f"SharedAccessKey={rule.key};UseDevelopmentEmulator=true;"
    )


@dataclass
class ThreadedPeer:
    """A peer in a thread of its own, for tests whose thread the SDK blocks."""

    peer: Peer
    _loop: asyncio.AbstractEventLoop

    @property
    def connection_string(self) -> str:
        """Leads to the plain listener."""
        return self.peer.connection_string

    def call(self, what: Callable[[Peer], _T]) -> _T:
        """Do something with the peer in its own thread, and return what comes of it."""

        async def there() -> _T:
            return what(self.peer)

        return asyncio.run_coroutine_threadsafe(there(), self._loop).result()


@contextlib.contextmanager
def threaded_peer(settings: PeerSettings) -> Iterator[ThreadedPeer]:
    """Run a peer in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="service-bus-peer", daemon=True)
    thread.start()
    peer = Peer(settings)
    asyncio.run_coroutine_threadsafe(peer.start(), loop).result()
    try:
        yield ThreadedPeer(peer, loop)
    finally:
        asyncio.run_coroutine_threadsafe(peer.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextlib.asynccontextmanager
async def running_peer(settings: PeerSettings) -> AsyncIterator[Peer]:
    """Run a peer in the caller's loop."""
    peer = Peer(settings)
    await peer.start()
    try:
        yield peer
    finally:
        await peer.stop()
