"""A client of AMQP frames without a socket, for the peer's own tests."""

import asyncio
from collections.abc import Iterator
from typing import Any, TypeVar

from tests.peers.servicebus.codec import encode
from tests.peers.servicebus.connection import Connection
from tests.peers.servicebus.messages import Envelope, compose, parse, render
from tests.peers.servicebus.peer import Peer
from tests.peers.servicebus.performatives import (
    AMQP_HEADER,
    SASL_HEADER,
    Attach,
    Begin,
    Detach,
    Flow,
    Open,
    Performative,
    SaslInit,
    Transfer,
    decode_frame,
    encode_frame,
)
from tests.peers.servicebus.types import Described, Symbol, ULong

_P = TypeVar("_P", bound=Performative)
WINDOW = 1000


class Wire(asyncio.Transport):
    """What a connection writes to, and what writes to it."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self.connection = Connection(peer)
        self.written = bytearray()
        self.ended = ""
        """How the peer ended it: closed or aborted."""
        self.connection.connection_made(self)

    # What the connection calls

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes."""
        self.written += data

    def is_closing(self) -> bool:
        """Return whether the peer ended the connection."""
        return bool(self.ended)

    def close(self) -> None:
        """End after what was written."""
        self._end("closed")

    def abort(self) -> None:
        """End at once."""
        self._end("aborted")

    def _end(self, how: str) -> None:
        if not self.ended:
            self.ended = how
            self.connection.connection_lost(None)

    # What tests call

    def hear(self) -> list[Performative]:
        """Return the frames that came since the last time, without protocol headers."""
        return list(self._frames())

    def hear_one(self, kind: type[_P]) -> _P:
        """Return the one frame of a kind among those that came."""
        [found] = [frame for frame in self.hear() if isinstance(frame, kind)]
        return found

    def _frames(self) -> Iterator[Performative]:
        data, pos = bytes(self.written), 0
        self.written.clear()
        while pos < len(data):
            if data[pos : pos + 4] == b"AMQP":
                pos += 8
                continue
            size = int.from_bytes(data[pos : pos + 4], "big")
            _, performative = decode_frame(data[pos : pos + size])
            pos += size
            if performative is not None:
                yield performative

    def say(self, *performatives: Performative) -> None:
        """Send frames on channel 0."""
        for performative in performatives:
            self.connection.data_received(encode_frame(0, performative))

    def open(self, mechanism: str = "ANONYMOUS", response: bytes = b"", frame_bytes: int = 65536) -> None:
        """Authenticate, open, and begin a session."""
        self.connection.data_received(SASL_HEADER)
        self.say(SaslInit(Symbol(mechanism), response))
        self.connection.data_received(AMQP_HEADER)
        self.say(Open("client", "bus", frame_bytes), Begin(None, 1, WINDOW, WINDOW))
        self.hear()

    def open_as_owner(self, frame_bytes: int = 65536) -> None:
        """The same, with every right from the start."""
        rule = self.connection.peer.gatekeeper.keys[0]
        self.open("PLAIN", f"\0{rule.name}\0{rule.key}".encode(), frame_bytes)

    def send_to(self, path: str, handle: int = 0) -> None:
        """Attach a link that sends."""
        self.say(Attach(f"in{handle}", handle, role=False, target=target(path), source=source("me")))

    def receive_from(self, path: str, handle: int = 1, credit: int = 10, *, settled: bool = False) -> None:
        """Attach a link that receives, and give it credit."""
        mode = 1 if settled else 0
        self.say(
            Attach(f"out{handle}", handle, role=True, send_settle_mode=mode, source=source(path), target=target("me"))
        )
        self.say(Flow(1, WINDOW, 1, WINDOW, handle=handle, delivery_count=0, link_credit=credit))

    def ask(self, path: str, said: dict[str, Any], value: Any) -> Envelope:
        """Send a request to a node and return the answer."""
        for handle, role in ((8, True), (9, False)):
            self.say(Attach(f"{path}{role}", handle, role=role, source=source(path), target=target(path)))
        self.say(Flow(1, WINDOW, 1, WINDOW, handle=8, delivery_count=0, link_credit=1))
        self.hear()
        request = compose(properties=[ULong(7)], application=said, value=value)
        self.say(Transfer(9, 100, b"ask", 0, settled=False, payload=request))
        [answer] = [frame for frame in self.hear() if isinstance(frame, Transfer) and frame.handle == 8]
        self.say(Detach(8, closed=True), Detach(9, closed=True))
        self.hear()
        return parse(answer.payload)


def source(path: str) -> Described:
    """Return where a link takes from."""
    return Described(ULong(0x28), [path])


def target(path: str) -> Described:
    """Return where a link brings to."""
    return Described(ULong(0x29), [path])


def message(body: bytes = b"x", **properties: Any) -> bytes:
    """Return the payload of a message with a data section."""
    envelope = Envelope(body=encode(Described(ULong(0x75), body)))
    envelope.properties = [properties.get("message_id")]
    return render(envelope)
