"""What a client's outcome means to a queue."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tests.peers.servicebus.errors import ARGUMENT, BrokerError
from tests.peers.servicebus.faults import Operation, Step
from tests.peers.servicebus.performatives import ACCEPTED, MODIFIED, REJECTED, RELEASED, Disposition, error, outcome
from tests.peers.servicebus.queues import Queue
from tests.peers.servicebus.types import Described

if TYPE_CHECKING:
    from tests.peers.servicebus.links import OutLink
    from tests.peers.servicebus.session import Session


def settle(session: "Session", link: "OutLink", delivery_id: int, tag: bytes, disposition: Disposition) -> None:
    """Apply an outcome and, when the client awaits it, confirm it by its own name.

    A rejection with an error says that it could not be applied; one without is a confirmed dead-letter.
    """
    token, broker = UUID(bytes_le=tag), session.peer.broker
    state = disposition.state if isinstance(disposition.state, Described) else outcome(RELEASED)

    def answer(confirmed: Described) -> None:
        if not disposition.settled:
            session.confirm(delivery_id, confirmed)

    def effect() -> Callable[[], None]:
        apply(link.queue, token, state, broker.clock.now())
        broker.changed(link.queue)
        return lambda: answer(outcome(REJECTED, None) if state.descriptor == REJECTED else state)

    def refuse(problem: BrokerError) -> None:
        answer(outcome(REJECTED, error(problem.condition, problem.description)))

    session.peer.faults.perform(
        Operation(link.path, Step.DISPOSITION, effect, refuse, tokens=(token,)), session.connection
    )


def apply(queue: Queue, token: UUID, state: Described, now: float) -> None:
    """Do to a locked message what an outcome asks for.

    Raises:
        BrokerError: the lock is lost, or this is no outcome.
    """
    fields = state.value if isinstance(state.value, list) else []
    if state.descriptor == ACCEPTED:
        queue.complete(token, now)
    elif state.descriptor == RELEASED:
        queue.release(token, now)
    elif state.descriptor == REJECTED:
        queue.dead_letter(token, now, *_dead_letter_reason(fields))
    elif state.descriptor == MODIFIED:
        failed, elsewhere, _ = (*fields, None, None, None)[:3]
        (queue.defer if elsewhere else queue.abandon if failed else queue.release)(token, now)
    else:
        raise BrokerError(ARGUMENT, f"{state.descriptor!r} is no outcome")


def _dead_letter_reason(fields: list[Any]) -> tuple[str | None, str | None]:
    """Return reason and description of a rejection; they stand in the map of its error."""
    problem = fields[0].value if fields and isinstance(fields[0], Described) else []
    info = problem[2] if len(problem) > 2 and isinstance(problem[2], dict) else {}
    reason, description = info.get("DeadLetterReason"), info.get("DeadLetterErrorDescription")
    return (None if reason is None else str(reason)), (None if description is None else str(description))
