"""The two kinds of links that lead to queues."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

from tests.peers.servicebus.auth import Claim
from tests.peers.servicebus.errors import DECODE, TOO_LARGE, BrokerError
from tests.peers.servicebus.faults import Operation, Step
from tests.peers.servicebus.messages import milliseconds, render, split
from tests.peers.servicebus.model import Message
from tests.peers.servicebus.performatives import ACCEPTED, REJECTED, Flow, Transfer, error, outcome
from tests.peers.servicebus.queues import Queue
from tests.peers.servicebus.types import DecodeError, Int

if TYPE_CHECKING:
    from tests.peers.servicebus.session import Session

CREDIT: Final = 1000


class Link:
    """The peer's end of a link: `path` is what it leads to, `claim` what keeping it takes."""

    claim: Claim | None = None

    def __init__(self, session: "Session", handle: int, path: str) -> None:
        self.session = session
        self.handle = handle
        self.path = path

    def begin(self) -> None:
        """Do what follows once the client knows that it is attached."""

    def flow(self, flow: Flow) -> None:
        """Take the client's word about credit."""

    def resume(self) -> None:
        """Go on after the session's window opened."""

    def receive(self, transfer: Transfer) -> None:
        """Take a part of a message in."""
        raise DecodeError("the client is this link's receiver")

    def leave(self) -> None:
        """Forget the link."""


class Inbound(Link):
    """A link that the client sends on: credit for it, and messages put together from their frames."""

    def __init__(self, session: "Session", handle: int, path: str) -> None:
        super().__init__(session, handle, path)
        self._received = 0
        self._credit = 0
        self._first: Transfer | None = None
        self._payload = bytearray()

    def begin(self) -> None:
        """Let the client send."""
        self._credit = CREDIT
        self.session.send_flow(handle=self.handle, delivery_count=self._received, link_credit=self._credit)

    def flow(self, flow: Flow) -> None:
        """Answer when asked to."""
        if flow.echo:
            self.begin()

    def receive(self, transfer: Transfer) -> None:
        """Put a part of a message to the others; act on it when it is the last one."""
        first = self._first = self._first or transfer
        self._payload += transfer.payload
        limit = self.session.peer.max_message_bytes
        if len(self._payload) > limit:
            self.session.detach(self.handle, BrokerError(TOO_LARGE, f"The message is larger than {limit} bytes."))
            return
        if transfer.more and not transfer.aborted:
            return
        payload, self._payload, self._first = bytes(self._payload), bytearray(), None
        self._received += 1
        self._credit -= 1
        if self._credit <= CREDIT // 2:
            self.begin()
        if first.delivery_id is None:
            raise DecodeError("the first transfer of a delivery has no delivery-id")
        if not transfer.aborted:
            settled = bool(transfer.settled or first.settled)
            self.take(payload, first, None if settled else first.delivery_id)

    def take(self, payload: bytes, first: Transfer, answer_to: int | None) -> None:
        """Act on a whole message."""


class InLink(Inbound):
    """A client sends to a queue."""

    def __init__(self, session: "Session", handle: int, queue: Queue, claim: Claim) -> None:
        super().__init__(session, handle, queue.name)
        self.claim = claim
        self._queue = queue

    def take(self, payload: bytes, first: Transfer, answer_to: int | None) -> None:
        """Put a message, or a batch, into the queue and say so."""
        peer = self.session.peer

        def effect() -> Callable[[], None]:
            try:
                envelopes = split(payload, first.message_format)
            except DecodeError as problem:
                raise BrokerError(DECODE, str(problem)) from problem
            now = peer.broker.clock.now()
            for envelope in envelopes:
                self._queue.put(envelope, now)
            peer.broker.changed(self._queue)
            return lambda: self._answer(answer_to, ACCEPTED)

        operation = Operation(
            self.path, Step.TRANSFER_IN, effect, lambda problem: self._answer(answer_to, REJECTED, problem)
        )
        peer.faults.perform(operation, self.session.connection)

    def _answer(self, delivery_id: int | None, code: int, problem: BrokerError | None = None) -> None:
        if delivery_id is not None:
            fields = (error(problem.condition, problem.description),) if problem is not None else ()
            self.session.answer(delivery_id, outcome(code, *fields))


class OutLink(Link):
    """A client receives from a queue; with `keeps` the messages are locked for it, else they are gone once sent."""

    def __init__(self, session: "Session", handle: int, queue: Queue, claim: Claim, *, keeps: bool) -> None:
        super().__init__(session, handle, queue.name)
        self.claim = claim
        self.queue = queue
        self.keeps = keeps
        self._sent = 0
        self._credit = 0
        self._left = False

    def begin(self) -> None:
        """Stand in line."""
        self.queue.consumers.append(self)

    def leave(self) -> None:
        """Leave the line."""
        self._left = True
        if self in self.queue.consumers:
            self.queue.consumers.remove(self)

    def wants(self) -> bool:
        """Return whether the client takes one more now."""
        return self._credit > 0 and self.session.open_window

    def flow(self, flow: Flow) -> None:
        """Take new credit and use it; give what is left back when the client drains the link."""
        if flow.link_credit is not None:
            seen = flow.delivery_count if flow.delivery_count is not None else 0
            self._credit = max(0, (seen + flow.link_credit - self._sent + 2**31) % 2**32 - 2**31)
        self.session.peer.broker.changed(self.queue)
        if flow.drain:
            self._sent = (self._sent + self._credit) % 2**32
            self._credit = 0
        if flow.drain or flow.echo:
            self.session.send_flow(
                handle=self.handle, delivery_count=self._sent, link_credit=self._credit, available=0, drain=flow.drain
            )

    def resume(self) -> None:
        """Go on after the session's window opened."""
        self.session.peer.broker.changed(self.queue)

    def deliver(self, message: Message) -> None:
        """Send a message."""
        token = message.lock

        def effect() -> Callable[[], None]:
            self._send(message, token)
            return lambda: None

        operation = Operation(
            *(self.path, Step.TRANSFER_OUT, effect, lambda problem: None),
            tokens=() if token is None else (token,),
            duplicate=lambda: self.queue.add_clone(message),
        )
        self.session.peer.faults.perform(operation, self.session.connection)

    def _send(self, message: Message, token: UUID | None) -> None:
        if self._left:
            return
        if self._credit == 0:  # a delayed message, and others took its place
            if token is not None:
                self.session.connection.expire(self.path, (token,))
            return
        self._credit -= 1
        self._sent = (self._sent + 1) % 2**32
        payload = outgoing(message, token)
        self.session.deliver(self, payload, (token or uuid4()).bytes_le, settled=not self.keeps)


def outgoing(message: Message, token: UUID | None = None) -> bytes:
    """Return a message as clients see it, with what the broker knows about it."""
    said: dict[str, Any] = {
        "x-opt-enqueued-time": milliseconds(message.enqueued_at),
        "x-opt-sequence-number": message.sequence,
        "x-opt-message-state": Int(message.state),
    }
    if token is not None:
        said["x-opt-locked-until"] = milliseconds(message.locked_until)
    return render(message.envelope, delivery_count=message.delivery_count, annotations=said, token=token)
