"""The operations of `<queue>/$management`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from tests.peers.servicebus.auth import Claim
from tests.peers.servicebus.errors import ARGUMENT, DECODE, NOT_IMPLEMENTED, BrokerError
from tests.peers.servicebus.links import outgoing
from tests.peers.servicebus.messages import milliseconds, parse
from tests.peers.servicebus.queues import Queue
from tests.peers.servicebus.types import Array, DecodeError

if TYPE_CHECKING:
    from tests.peers.servicebus.connection import Connection

RENEW: Final = "com.microsoft:renew-lock"
MAX_PEEKED: Final = 250
Answer = tuple[int, dict[str, Any]]
NOTHING: Final[Answer] = (204, {"messages": []})


@dataclass(frozen=True, slots=True)
class Request:
    """One request: which operation, of which queue, with which arguments."""

    connection: "Connection"
    path: str
    operation: str
    arguments: dict[str, Any]

    def array(self, name: str, kind: type) -> list[Any]:
        """Return an argument that is an array.

        Raises:
            BrokerError: it is missing or holds something else.
        """
        value = self.arguments.get(name)
        items = list(value.items) if isinstance(value, Array) else value
        if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
            raise BrokerError(ARGUMENT, f"{name} is an array of {kind.__name__}")
        return items

    def number(self, name: str) -> int:
        """Return an argument that is a number.

        Raises:
            BrokerError: it is missing or none.
        """
        value = self.arguments.get(name)
        if not isinstance(value, int):
            raise BrokerError(ARGUMENT, f"{name} is a number")
        return int(value)


def execute(request: Request) -> Answer:
    """Return (status, body) of the answer.

    Raises:
        BrokerError: the operation is unknown, not allowed or failed.
    """
    if (found := _OPERATIONS.get(request.operation)) is None:
        raise BrokerError(NOT_IMPLEMENTED, f"this peer has no operation {request.operation}")
    claim, operation = found
    request.connection.allowed(request.path, claim)
    broker = request.connection.peer.broker
    queue = broker.find(request.path)
    answer = operation(request, queue, broker.clock.now())
    broker.changed(queue)
    return answer


def _renew(request: Request, queue: Queue, now: float) -> Answer:
    until = [queue.renew(token, now) for token in request.array("lock-tokens", UUID)]
    return 200, {"expirations": Array(tuple(milliseconds(at) for at in until))}


def _update_disposition(request: Request, queue: Queue, now: float) -> Answer:
    status, tokens = request.arguments.get("disposition-status"), request.array("lock-tokens", UUID)
    settle: dict[Any, Callable[[UUID], None]] = {
        "completed": lambda token: queue.complete(token, now),
        "abandoned": lambda token: queue.abandon(token, now),
        "defered": lambda token: queue.defer(token, now),
        "suspended": lambda token: queue.dead_letter(
            token, now, request.arguments.get("deadletter-reason"), request.arguments.get("deadletter-description")
        ),
    }
    if status not in settle:
        raise BrokerError(ARGUMENT, f"{status!r} is no disposition")
    for token in tokens:
        queue.held(token, now)
    for token in tokens:
        settle[status](token)
    return 200, {}


def _schedule(request: Request, queue: Queue, now: float) -> Answer:
    entries = request.arguments.get("messages")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BrokerError(ARGUMENT, "messages is a list of maps")
    try:
        envelopes = [parse(bytes(entry["message"])) for entry in entries]
    except (DecodeError, KeyError, TypeError) as problem:
        raise BrokerError(DECODE, f"a message cannot be read: {problem}") from problem
    return 200, {"sequence-numbers": Array(tuple(queue.schedule(envelope, now).sequence for envelope in envelopes))}


def _cancel(request: Request, queue: Queue, now: float) -> Answer:
    del now
    queue.cancel_scheduled(int(number) for number in request.array("sequence-numbers", int))
    return 200, {}


def _peek(request: Request, queue: Queue, now: float) -> Answer:
    queue.tick(now)
    count = min(request.number("message-count"), MAX_PEEKED)
    found = queue.peek(request.number("from-sequence-number"), count)
    return (200, {"messages": [{"message": outgoing(message)} for message in found]}) if found else NOTHING


def _receive_deferred(request: Request, queue: Queue, now: float) -> Answer:
    queue.tick(now)
    keep = request.number("receiver-settle-mode") == 1
    numbers = [int(number) for number in request.array("sequence-numbers", int)]
    found = queue.take_deferred(numbers, now, keep=keep)
    entries: list[dict[str, Any]] = [{"message": outgoing(message, message.lock)} for message in found]
    for entry, message in zip(entries, found, strict=True):
        if message.lock is not None:
            entry["lock-token"] = message.lock
    return (200, {"messages": entries}) if entries else NOTHING


_OPERATIONS: Final[dict[str, tuple[Claim, Callable[[Request, Queue, float], Answer]]]] = {
    RENEW: (Claim.LISTEN, _renew),
    "com.microsoft:update-disposition": (Claim.LISTEN, _update_disposition),
    "com.microsoft:schedule-message": (Claim.SEND, _schedule),
    "com.microsoft:cancel-scheduled-message": (Claim.SEND, _cancel),
    "com.microsoft:peek-message": (Claim.LISTEN, _peek),
    "com.microsoft:receive-by-sequence-number": (Claim.LISTEN, _receive_deferred),
}
