"""A namespace for the conformance suite: the peer, or a real one when SERVICE_BUS_CONNECTION_STRING leads to it."""

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from azure.servicebus.management import ServiceBusAdministrationClient

from tests.peers.servicebus.model import QueueSettings
from tests.peers.servicebus.peer import PeerSettings, ThreadedPeer, threaded_peer

REAL = os.environ.get("SERVICE_BUS_CONNECTION_STRING", "")
KINDS = ("peer", "azure") if REAL else ("peer",)
"""Which namespaces a run is about."""


class Namespace(Protocol):
    """What the suite needs of a namespace beside the SDK."""

    connection_string: str

    def create(self, settings: QueueSettings) -> str:
        """Create a queue under a name of its own, which is returned."""

    def pass_time(self, seconds: float) -> None:
        """Let time pass there."""

    def now(self) -> datetime:
        """Return the time there."""


@dataclass
class PeerNamespace:
    """The peer: time passes at once."""

    peer: ThreadedPeer

    def __post_init__(self) -> None:
        self.connection_string = self.peer.connection_string

    def create(self, settings: QueueSettings) -> str:
        """Create a queue."""
        self.peer.call(lambda running: running.broker.create(settings))
        return settings.name

    def pass_time(self, seconds: float) -> None:
        """Put the peer's clock forward."""
        self.peer.call(lambda running: running.advance(seconds))

    def now(self) -> datetime:
        """Return the peer's time."""
        return datetime.fromtimestamp(self.peer.peer.clock.now(), UTC)


class RealNamespace:
    """Service Bus itself: time takes its time, and queues are deleted afterwards."""

    connection_string = REAL

    def __init__(self) -> None:
        self._admin = ServiceBusAdministrationClient.from_connection_string(REAL)
        self._made: list[str] = []

    def create(self, settings: QueueSettings) -> str:
        """Create a queue."""
        name = f"conformance-{settings.name}-{secrets.token_hex(4)}"
        window = settings.duplicate_window_seconds
        given = {
            "requires_duplicate_detection": window is not None,
            "dead_lettering_on_message_expiration": settings.dead_letter_expired,
            "duplicate_detection_history_time_window": timedelta(seconds=window) if window else None,
        }
        lock = timedelta(seconds=settings.lock_seconds)
        self._admin.create_queue(name, lock_duration=lock, max_delivery_count=settings.max_delivery_count, **given)
        self._made.append(name)
        return name

    def pass_time(self, seconds: float) -> None:
        """Wait: there is no other way to let a real lock expire."""
        time.sleep(seconds)

    def now(self) -> datetime:
        """Return the time, which is the same everywhere."""
        return datetime.now(UTC)

    def close(self) -> None:
        """Delete what was made."""
        for name in self._made:
            self._admin.delete_queue(name)
        self._admin.close()


@contextlib.contextmanager
def namespace(kind: str) -> Iterator[Namespace]:
    """Yield a namespace."""
    if kind == "peer":
        with threaded_peer(PeerSettings()) as peer:
            yield PeerNamespace(peer)
        return
    real = RealNamespace()
    try:
        yield real
    finally:
        real.close()
