"""One connection: protocol headers, SASL, frames in and out, heartbeats; sessions do the rest."""

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Final, Protocol
from uuid import UUID, uuid4

from tests.peers.servicebus.auth import Claim, Gatekeeper, Grant
from tests.peers.servicebus.broker import Broker
from tests.peers.servicebus.errors import DECODE, UNAUTHORIZED, BrokerError
from tests.peers.servicebus.faults import Plan
from tests.peers.servicebus.performatives import (
    AMQP_HEADER,
    SASL_HEADER,
    Begin,
    Close,
    End,
    Open,
    Performative,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    decode_frame,
    encode_frame,
    error,
    symbols,
)
from tests.peers.servicebus.session import Session
from tests.peers.servicebus.types import DecodeError

_LOG: Final = logging.getLogger(__name__)
MAX_FRAME_BYTES: Final = 65536
MIN_FRAME_BYTES: Final = 512
EXPIRY_MARGIN_SECONDS: Final = 0.05
"""Timers of the loop and the clock are not the same to the millisecond."""
FRAMING_ERROR: Final = "amqp:connection:framing-error"
MECHANISMS: Final = ("ANONYMOUS", "MSSBCBS", "PLAIN", "EXTERNAL")


class Surrounding(Protocol):
    """What a connection needs of the peer around it."""

    broker: Broker
    faults: Plan
    gatekeeper: Gatekeeper
    max_message_bytes: int
    idle_seconds: float
    connections: "set[Connection]"


class Connection(asyncio.Protocol):
    """A client's connection, from its first byte to its last."""

    def __init__(self, peer: Surrounding) -> None:
        self.peer = peer
        self.grants: dict[str, Grant] = {}
        """What tokens opened, by the path they were put for."""
        self.remote_max_frame = MIN_FRAME_BYTES
        self.container_id = ""
        self.gone = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._state = "header"
        self._authenticated = False
        self._sessions: dict[int, Session] = {}
        self._heartbeat: asyncio.TimerHandle | None = None
        self._reaper: asyncio.TimerHandle | None = None
        self._expiries: list[asyncio.TimerHandle] = []

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer.connections.add(self)
        self._expect_life()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the links off their queues; locks stay until they expire, as on Service Bus."""
        del exc
        self._transport = None
        self.peer.connections.discard(self)
        for timer in (self._heartbeat, self._reaper, *self._expiries):
            if timer is not None:
                timer.cancel()
        for session in self._sessions.values():
            session.end()
        self._sessions.clear()
        self.gone.set()

    def data_received(self, data: bytes) -> None:
        """Take bytes in and act on every whole frame among them."""
        self._buffer += data
        self._expect_life()
        try:
            while self._transport is not None and self._step():
                pass
        except DecodeError as problem:
            self.close(DECODE, str(problem))
        except BrokerError as problem:
            self.close(problem.condition, problem.description)
        except Exception:  # noqa: BLE001 - one connection's trouble must not end the peer
            _LOG.exception("service_bus_peer_failed")
            self.drop()

    def _step(self) -> bool:
        """Act on one header or frame; return whether there was one."""
        if self._state in ("header", "sasl_done"):
            if len(self._buffer) < 8:
                return False
            header = bytes(self._buffer[:8])
            del self._buffer[:8]
            self._on_header(header)
            return True
        if len(self._buffer) < 8:
            return False
        size = int.from_bytes(self._buffer[:4], "big")
        if not 8 <= size <= MAX_FRAME_BYTES:
            self.close(FRAMING_ERROR, f"a frame of {size} bytes")
            return False
        if len(self._buffer) < size:
            return False
        frame = bytes(self._buffer[:size])
        del self._buffer[:size]
        channel, performative = decode_frame(frame)
        if performative is not None:
            self._on_frame(channel, performative)
        return True

    def _on_header(self, header: bytes) -> None:
        if header == SASL_HEADER and self._state == "header":
            self._write(SASL_HEADER)
            self.send(0, SaslMechanisms(symbols(*MECHANISMS)))
            self._state = "sasl"
        elif header == AMQP_HEADER and self._authenticated:
            self._write(AMQP_HEADER)
            self._state = "open"
        else:
            self._write(SASL_HEADER)
            self._hang_up()

    def _on_frame(self, channel: int, performative: Performative) -> None:
        if self._state == "sasl":
            self._on_sasl(performative)
        elif isinstance(performative, Open):
            self._on_open(performative)
        elif self._state != "opened":
            self.close(FRAMING_ERROR, "no open frame came first")
        elif isinstance(performative, Close):
            self.send(0, Close())
            self._hang_up()
        elif isinstance(performative, Begin):
            self._sessions[channel] = Session(self, channel, performative)
        elif (session := self._sessions.get(channel)) is None:
            self.close("amqp:not-allowed", f"no session has channel {channel}")
        elif isinstance(performative, End):
            del self._sessions[channel]
            session.end()
            self.send(channel, End())
        else:
            session.receive(performative)

    def _on_sasl(self, performative: Performative) -> None:
        if not isinstance(performative, SaslInit):
            raise DecodeError("sasl-init is awaited")
        code = 0
        if performative.mechanism == "PLAIN":
            code = self._take_password(performative.initial_response or b"")
        elif performative.mechanism not in MECHANISMS:
            code = 1
        self.send(0, SaslOutcome(code))
        self._authenticated = code == 0
        self._state = "sasl_done"
        if code:
            self._hang_up()

    def _take_password(self, response: bytes) -> int:
        _, name, key = (*response.split(b"\0"), b"", b"", b"")[:3]
        try:
            grant = self.peer.gatekeeper.admit_password(name.decode("utf-8", "replace"), key.decode("utf-8", "replace"))
        except BrokerError:
            return 1
        self.admit(grant)
        return 0

    def _on_open(self, opened: Open) -> None:
        self.container_id = opened.container_id
        self.remote_max_frame = max(MIN_FRAME_BYTES, min(opened.max_frame_size or MAX_FRAME_BYTES, MAX_FRAME_BYTES))
        self._state = "opened"
        idle = round(self.peer.idle_seconds * 1000)
        self.send(0, Open(f"peer-{uuid4().hex}", opened.hostname, MAX_FRAME_BYTES, 255, idle, properties={}))
        if opened.idle_time_out:
            self._beat(opened.idle_time_out / 1000 / 3)

    # What sessions use

    def send(self, channel: int, *performatives: Performative) -> None:
        """Write frames, in one piece."""
        self._write(b"".join(encode_frame(channel, performative) for performative in performatives))

    def close(self, condition: str, description: str) -> None:
        """Close the connection with an error."""
        if self._state == "opened":
            self.send(0, Close(error(condition, description)))
        self._hang_up()

    def allowed(self, path: str, claim: Claim) -> Grant:
        """Return the grant that opens a path for a right.

        Raises:
            BrokerError: no token that was put does.
        """
        now = self.peer.broker.clock.now()
        for grant in self.grants.values():
            if grant.allows(path, claim, now):
                return grant
        raise BrokerError(
            UNAUTHORIZED, f"Unauthorized access. '{claim}' claim(s) are required to perform this operation."
        )

    def admit(self, grant: Grant) -> None:
        """Let a token open what it opens until it expires; then its links are detached."""
        self.grants[grant.path] = grant
        left = grant.expires_at - self.peer.broker.clock.now()
        if left < math.inf:
            self._expiries.append(self._loop.call_later(left + EXPIRY_MARGIN_SECONDS, self.check_grants))

    def check_grants(self) -> None:
        """Detach the links whose tokens have expired."""
        for session in list(self._sessions.values()):
            session.check_grants()

    def uses(self, queue: str) -> bool:
        """Return whether a link of this connection leads to a queue."""
        return any(session.uses(queue) for session in self._sessions.values())

    # What faults reach

    def drop(self) -> None:
        """End the connection without a word."""
        if self._transport is not None:
            self._transport.abort()

    def expire(self, queue: str, tokens: tuple[UUID, ...]) -> None:
        """Let locks expire."""
        found = self.peer.broker.find(queue)
        for token in tokens:
            found.expire(token, self.peer.broker.clock.now())
        self.peer.broker.changed(found)

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Call something after a while, whether the client is still there or not."""
        self._loop.call_later(seconds, what)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _hang_up(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _beat(self, seconds: float) -> None:
        self._write(encode_frame(0, None))
        self._heartbeat = self._loop.call_later(seconds, self._beat, seconds)

    def _expect_life(self) -> None:
        """Close the connection when nothing comes for twice the time that it was told."""
        if self._reaper is not None:
            self._reaper.cancel()
        self._reaper = self._loop.call_later(2 * self.peer.idle_seconds, self.close, *IDLE)


IDLE: Final = ("amqp:connection:forced", "The connection was inactive for longer than the allowed time.")
