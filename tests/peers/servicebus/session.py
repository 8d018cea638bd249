"""A session and its links: attach, credit, transfers both ways, dispositions."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.peers.servicebus.auth import Claim, path_of
from tests.peers.servicebus.errors import NOT_IMPLEMENTED, UNAUTHORIZED, BrokerError
from tests.peers.servicebus.faults import Operation, Step
from tests.peers.servicebus.links import InLink, Link, OutLink
from tests.peers.servicebus.nodes import CBS, MANAGEMENT_SUFFIX, RequestLink, ResponseLink
from tests.peers.servicebus.performatives import (
    Attach,
    Begin,
    Detach,
    Disposition,
    Flow,
    Performative,
    Transfer,
    error,
)
from tests.peers.servicebus.settlement import settle
from tests.peers.servicebus.types import DecodeError, Described

if TYPE_CHECKING:
    from tests.peers.servicebus.connection import Connection

WINDOW: Final = 2**31 - 1
"""Transfers that the client may send without being told again."""
SESSION_FILTER: Final = "com.microsoft:session-filter"
_TRANSFER_OVERHEAD: Final = 128
"""Bytes of a transfer frame around its payload, at most."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Something sent and not settled yet."""

    link: OutLink
    tag: bytes


class Session:
    """One session of a connection."""

    def __init__(self, connection: "Connection", channel: int, begin: Begin) -> None:
        self.connection = connection
        self.peer = connection.peer
        self._channel = channel
        self._links: dict[int, Link] = {}
        self._ended = False
        self._left: set[int] = set()
        """Handles that the peer detached and the client has not let go of yet; what still comes on them is lost."""
        self._deliveries: dict[int, Delivery] = {}
        self._next_incoming = begin.next_outgoing_id
        self._next_outgoing = 1
        self._next_delivery = 1
        self._remote_window = begin.incoming_window
        self._waiting: deque[Transfer] = deque()
        self._send(Begin(channel, self._next_outgoing, WINDOW, WINDOW, 255, properties={}))

    def receive(self, performative: Performative) -> None:
        """Act on a frame of this session.

        Raises:
            DecodeError: it has no place here.
        """
        if isinstance(performative, Attach):
            self._attach(performative)
        elif isinstance(performative, Flow):
            self._flow(performative)
        elif isinstance(performative, Transfer):
            self._next_incoming = (self._next_incoming + 1) % 2**32
            if performative.handle not in self._left:
                self._link(performative.handle).receive(performative)
        elif isinstance(performative, Disposition):
            self._dispose(performative)
        elif isinstance(performative, Detach):
            self._left.discard(performative.handle)
            if (link := self._links.pop(performative.handle, None)) is not None:
                link.leave()
                self._send(Detach(performative.handle, closed=performative.closed))
        else:
            raise DecodeError(f"{type(performative).__name__} has no place in a session")

    def _link(self, handle: int) -> Link:
        try:
            return self._links[handle]
        except KeyError:
            raise BrokerError("amqp:session:unattached-handle", f"no link has the handle {handle}") from None

    def end(self) -> None:
        """Take every link off."""
        self._ended = True
        for link in self._links.values():
            link.leave()
        self._links.clear()
        self._deliveries.clear()
        self._waiting.clear()

    def check_grants(self) -> None:
        """Detach the links whose tokens have expired."""
        for handle, link in list(self._links.items()):
            if link.claim is None:
                continue
            try:
                self.connection.allowed(link.path, link.claim)
            except BrokerError:
                self.detach(handle, BrokerError(UNAUTHORIZED, "ExpiredToken: the token of this link has expired."))

    def uses(self, queue: str) -> bool:
        """Return whether a link leads to a queue."""
        return any(link.path.lower() == queue.lower() for link in self._links.values())

    def detach(self, handle: int, problem: BrokerError) -> None:
        """Detach a link with an error."""
        self._links.pop(handle).leave()
        self._left.add(handle)
        self._send(Detach(handle, closed=True, error=error(problem.condition, problem.description)))

    # Attaching

    def _attach(self, attach: Attach) -> None:
        """Make a link; the peer uses the client's handle for its own end too."""
        if attach.handle in self._links:
            raise BrokerError("amqp:session:handle-in-use", f"the handle {attach.handle} is that of another link")
        self._left.discard(attach.handle)
        terminus = attach.source if attach.role else attach.target
        address = _address(terminus)
        path = path_of(address)
        if path == CBS or path.endswith("/" + MANAGEMENT_SUFFIX):
            node = path.removesuffix("/" + MANAGEMENT_SUFFIX)
            self._accept(attach, self._node_link(attach, node))
            return

        def effect() -> Callable[[], None]:
            link = self._queue_link(attach, path)
            return lambda: self._accept(attach, link)

        self.peer.faults.perform(
            Operation(path, Step.ATTACH, effect, lambda problem: self._refuse(attach, problem)), self.connection
        )

    def _node_link(self, attach: Attach, node: str) -> Link:
        if attach.role:
            return ResponseLink(self, attach.handle, node)
        return RequestLink(self, attach.handle, node)

    def _queue_link(self, attach: Attach, path: str) -> Link:
        claim = Claim.LISTEN if attach.role else Claim.SEND
        self.connection.allowed(path, claim)
        queue = self.peer.broker.find(path)
        if not attach.role:
            return InLink(self, attach.handle, queue, claim)
        if SESSION_FILTER in _filters(attach.source):
            raise BrokerError(NOT_IMPLEMENTED, "this peer has no sessions")
        return OutLink(self, attach.handle, queue, claim, keeps=attach.send_settle_mode != 1)

    def _accept(self, attach: Attach, link: Link) -> None:
        if self._ended:  # a delayed attach, and the client is gone
            return
        self._links[attach.handle] = link
        self._send(self._attached(attach))
        link.begin()

    def _refuse(self, attach: Attach, problem: BrokerError) -> None:
        """Answer without the end that cannot be had, and say why in the detach that follows (AMQP 1.0, 2.6.3).

        To an answer with both ends the SDK sends its first message at once, and then takes the detach for an unknown
        error of the connection.
        """
        told = error(problem.condition, problem.description)
        answer = self._attached(attach)
        if attach.role:
            answer.source = None
        else:
            answer.target = None
        self._left.add(attach.handle)
        self._send(answer, Detach(attach.handle, closed=True, error=told))

    def _attached(self, attach: Attach) -> Attach:
        return Attach(
            *(attach.name, attach.handle, not attach.role, attach.send_settle_mode, attach.rcv_settle_mode),
            source=attach.source,
            target=attach.target,
            initial_delivery_count=0 if attach.role else None,
            max_message_size=self.peer.max_message_bytes,
            properties={},
        )

    # Credit

    def _flow(self, flow: Flow) -> None:
        self._next_incoming = flow.next_outgoing_id
        sent = flow.next_incoming_id if flow.next_incoming_id is not None else 1
        self._remote_window = (sent + flow.incoming_window - self._next_outgoing) % 2**32
        self._send_waiting()
        if flow.handle is not None and (link := self._links.get(flow.handle)) is not None:
            link.flow(flow)
        elif flow.echo:
            self.send_flow()
        for link in self.links:
            link.resume()

    def send_flow(self, **link: Any) -> None:
        """Tell the windows and, with a handle, a link's credit."""
        self._send(Flow(self._next_incoming, WINDOW, self._next_outgoing, WINDOW, **link))

    @property
    def open_window(self) -> bool:
        """Whether the client takes transfers now."""
        return not self._waiting and self._remote_window > 0

    # Transfers

    def deliver(self, link: OutLink | ResponseLink, payload: bytes, tag: bytes, *, settled: bool) -> None:
        """Send a message in as many frames as it takes, as the client's window opens."""
        room = self.connection.remote_max_frame - _TRANSFER_OVERHEAD
        delivery_id, self._next_delivery = self._next_delivery, (self._next_delivery + 1) % 2**32
        if not settled and isinstance(link, OutLink):
            self._deliveries[delivery_id] = Delivery(link, tag)
        for start in range(0, len(payload), room):
            frame = Transfer(link.handle, more=start + room < len(payload), payload=payload[start : start + room])
            if start == 0:
                frame.delivery_id, frame.delivery_tag, frame.message_format = delivery_id, tag, 0
                frame.settled = settled
            self._waiting.append(frame)
        self._send_waiting()

    def _send_waiting(self) -> None:
        while self._waiting and self._remote_window > 0:
            self._remote_window -= 1
            self._next_outgoing = (self._next_outgoing + 1) % 2**32
            self._send(self._waiting.popleft())

    def answer(self, delivery_id: int, state: Described) -> None:
        """Settle what the client sent."""
        self._send(Disposition(role=True, first=delivery_id, last=delivery_id, settled=True, state=state))

    def _dispose(self, disposition: Disposition) -> None:
        if not disposition.role:
            return
        if disposition.state is None and not disposition.settled:
            return
        first, last = disposition.first, disposition.first if disposition.last is None else disposition.last
        told = (first,) if first == last else [known for known in self._deliveries if first <= known <= last]
        for delivery_id in told:
            if (delivery := self._deliveries.pop(delivery_id, None)) is not None:
                settle(self, delivery.link, delivery_id, delivery.tag, disposition)

    def confirm(self, delivery_id: int, state: Described) -> None:
        """Tell the client what became of the outcome it asked for."""
        self._send(Disposition(role=False, first=delivery_id, last=delivery_id, settled=True, state=state))

    def _send(self, *performatives: Performative) -> None:
        self.connection.send(self._channel, *performatives)

    @property
    def links(self) -> list[Link]:
        """The links attached now."""
        return list(self._links.values())


def _address(terminus: Described | None) -> str:
    fields = terminus.value if terminus is not None else None
    if not isinstance(fields, list) or not fields or not isinstance(fields[0], str):
        raise DecodeError("the link leads nowhere")
    return fields[0]


def _filters(source: Described | None) -> dict[Any, Any]:
    fields = source.value if source is not None else []
    found = fields[7] if len(fields) > 7 else None
    return found if isinstance(found, dict) else {}
