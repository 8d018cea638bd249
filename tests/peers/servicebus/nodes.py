"""The request-response nodes: `$cbs`, which takes tokens, and `<queue>/$management`.

The two spell their status differently: `status-code` there, `statusCode` here. An answer carries the request's message
id as correlation id, in its own type.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

from tests.peers.servicebus.auth import path_of
from tests.peers.servicebus.errors import ARGUMENT, DECODE, BrokerError
from tests.peers.servicebus.faults import Operation, Step
from tests.peers.servicebus.links import Inbound, Link
from tests.peers.servicebus.management import RENEW, Request, execute
from tests.peers.servicebus.messages import Envelope, body_value, compose, parse
from tests.peers.servicebus.performatives import ACCEPTED, Flow, Transfer, outcome
from tests.peers.servicebus.types import Array, DecodeError, Int

if TYPE_CHECKING:
    from tests.peers.servicebus.session import Session

CBS: Final = "$cbs"
MANAGEMENT_SUFFIX: Final = "$management"


class ResponseLink(Link):
    """Where a client waits for answers."""

    def __init__(self, session: "Session", handle: int, path: str) -> None:
        super().__init__(session, handle, path)
        self.keeps = False
        self._credit = 0
        self._sent = 0
        self._answers: deque[bytes] = deque()

    def flow(self, flow: Flow) -> None:
        """Take credit and use it."""
        if flow.link_credit is not None:
            self._credit = (flow.delivery_count or 0) + flow.link_credit - self._sent
        self.resume()
        if flow.drain or flow.echo:
            self.session.send_flow(handle=self.handle, delivery_count=self._sent, link_credit=self._credit)

    def resume(self) -> None:
        """Send what waits."""
        while self._answers and self._credit > 0:
            self._credit -= 1
            self._sent += 1
            self.session.deliver(self, self._answers.popleft(), uuid4().bytes, settled=True)

    def send(self, payload: bytes) -> None:
        """Send an answer, now or when there is credit."""
        self._answers.append(payload)
        self.resume()


class RequestLink(Inbound):
    """Where a client asks."""

    def take(self, payload: bytes, first: Transfer, answer_to: int | None) -> None:
        """Act on a request; its receipt is confirmed at once, what came of it says the answer."""
        del first
        if answer_to is not None:
            self.session.answer(answer_to, outcome(ACCEPTED))
        try:
            request = parse(payload)
            said = {_text(name): value for name, value in request.application.items()}
            body = body_value(request)
        except DecodeError as problem:
            raise BrokerError(DECODE, str(problem)) from problem
        if self.path == CBS:
            self._put_token(request, said, body)
        else:
            self._manage(request, _text(said.get("operation", "")), body)

    def _put_token(self, request: Envelope, said: Mapping[str, Any], body: Any) -> None:
        connection, audience = self.session.connection, _text(said.get("name", ""))

        def answer(status: int, description: str) -> None:
            self._answer(request, {"status-code": Int(status), "status-description": description}, None)

        def effect() -> Callable[[], None]:
            now = self.session.peer.broker.clock.now()
            grant = self.session.peer.gatekeeper.admit(_text(body), audience, now)
            connection.admit(grant)
            return lambda: answer(202, "Accepted")

        def refuse(problem: BrokerError) -> None:
            answer(problem.status, problem.description)

        self.session.peer.faults.perform(Operation(path_of(audience), Step.PUT_TOKEN, effect, refuse), connection)

    def _manage(self, request: Envelope, operation: str, body: Any) -> None:
        def answer(status: int, description: str, value: Any, condition: str | None = None) -> None:
            said = {"statusCode": Int(status), "statusDescription": description}
            self._answer(request, said | ({} if condition is None else {"errorCondition": condition}), value)

        if not isinstance(body, dict):
            answer(400, "The request has no map.", {}, ARGUMENT)
            return
        arguments = {_text(name): value for name, value in body.items()}

        def effect() -> Callable[[], None]:
            status, value = execute(Request(self.session.connection, self.path, operation, arguments))
            return lambda: answer(status, "OK", value)

        def refuse(problem: BrokerError) -> None:
            answer(problem.status, problem.description, {}, problem.condition)

        step = Step.RENEW if operation == RENEW else Step.MANAGEMENT
        locks = arguments.get("lock-tokens")
        tokens = tuple(item for item in locks.items if isinstance(item, UUID)) if isinstance(locks, Array) else ()
        self.session.peer.faults.perform(
            Operation(self.path, step, effect, refuse, tokens=tokens), self.session.connection
        )

    def _answer(self, request: Envelope, said: dict[str, Any], value: Any) -> None:
        properties = [None, None, None, None, None, request.message_id]
        for link in reversed(self.session.links):
            if isinstance(link, ResponseLink) and link.path == self.path:
                link.send(compose(properties=properties, application=said, value=value))
                return


def _text(value: Any) -> str:
    """Return a name or token; the SDK sends some as text and some as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
