"""Planned misfortune: what goes wrong, at which step of the protocol, for which queue, and how often."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, Protocol
from uuid import UUID

from tests.peers.servicebus.errors import SERVER_BUSY, BrokerError


class Step(StrEnum):
    """Where in the protocol."""

    PUT_TOKEN = "put_token"
    ATTACH = "attach"
    TRANSFER_IN = "transfer_in"
    TRANSFER_OUT = "transfer_out"
    DISPOSITION = "disposition"
    RENEW = "renew"
    MANAGEMENT = "management"


class Action(StrEnum):
    """What happens there."""

    DROP = "drop"
    """The connection is gone."""
    LOSE = "lose"
    """Nothing comes back."""
    DELAY = "delay"
    """It takes `seconds` longer."""
    DUPLICATE = "duplicate"
    """A transfer in is taken twice; what a transfer out delivers is delivered again under another lock."""
    EXPIRE_LOCK = "expire_lock"
    """The lock it is about is lost."""
    BUSY = "busy"
    """It is refused with com.microsoft:server-busy."""


_ALWAYS: Final = frozenset({Action.DROP, Action.LOSE, Action.DELAY})
_HOLDING: Final = _ALWAYS | {Action.EXPIRE_LOCK, Action.BUSY}
POSSIBLE: Final = {
    Step.PUT_TOKEN: _ALWAYS | {Action.BUSY},
    Step.ATTACH: _ALWAYS | {Action.BUSY},
    Step.TRANSFER_IN: _ALWAYS | {Action.DUPLICATE, Action.BUSY},
    Step.TRANSFER_OUT: _ALWAYS | {Action.DUPLICATE, Action.EXPIRE_LOCK},
    Step.DISPOSITION: _HOLDING,
    Step.RENEW: _HOLDING,
    Step.MANAGEMENT: _HOLDING,
}
"""Which action makes sense at which step; `Plan.add` refuses the others."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of misfortune.

    `when` says whether it strikes before the peer did what was asked, or after it did it and before it says so.
    """

    step: Step
    action: Action
    queue: str = "*"
    when: Literal["before", "after"] = "before"
    seconds: float = 0.0
    skip: int = 0
    times: int = 1


@dataclass(slots=True)
class Operation:
    """A step about to be taken. `effect` does it and returns what sends the answer."""

    queue: str
    step: Step
    effect: Callable[[], Callable[[], None]]
    refuse: Callable[[BrokerError], None]
    tokens: tuple[UUID, ...] = ()
    duplicate: Callable[[], None] | None = None

    def run(self) -> None:
        """Do it and answer."""
        self.prepare()()

    def prepare(self) -> Callable[[], None]:
        """Do it; return what answers, with a refusal too."""
        try:
            return self.effect()
        except BrokerError as error:
            refusal = error
            return lambda: self.refuse(refusal)


class Surroundings(Protocol):
    """What a fault reaches beyond the operation: the connection, the queue's locks, the loop's timer."""

    def drop(self) -> None:
        """End the connection without a word."""

    def expire(self, queue: str, tokens: tuple[UUID, ...]) -> None:
        """Let locks expire."""

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Call something after a while."""


@dataclass(slots=True)
class _Planned:
    fault: Fault
    skip: int
    left: int


@dataclass(slots=True)
class Plan:
    """The faults to come, and those that struck."""

    struck: list[tuple[Fault, str]] = field(default_factory=list)
    """(fault, queue) in the order they struck."""
    _planned: list[_Planned] = field(default_factory=list)

    def add(self, fault: Fault) -> None:
        """Plan a fault.

        Raises:
            ValueError: the action makes no sense at the step.
        """
        if fault.action not in POSSIBLE[fault.step]:
            raise ValueError(f"{fault.action} makes no sense at {fault.step}")
        self._planned.append(_Planned(fault, fault.skip, fault.times))

    def clear(self) -> None:
        """Forget what was planned; what struck is kept."""
        self._planned.clear()

    def strike(self, queue: str, step: Step) -> Fault | None:
        """Return the first fault planned for a step of a queue that is due, and count it."""
        for planned in self._planned:
            fault = planned.fault
            if fault.step is not step or fault.queue.lower() not in ("*", queue.lower()):
                continue
            if planned.skip > 0:
                planned.skip -= 1
                continue
            planned.left -= 1
            if planned.left == 0:
                self._planned.remove(planned)
            self.struck.append((fault, queue))
            return fault
        return None

    def perform(self, operation: Operation, around: Surroundings) -> None:
        """Take a step, with whatever is planned for it."""
        if not self._planned or (fault := self.strike(operation.queue, operation.step)) is None:
            operation.run()
        elif fault.when == "before":
            _strike_before(fault, operation, around)
        else:
            _strike_after(fault, operation, around)


def _strike_before(fault: Fault, operation: Operation, around: Surroundings) -> None:
    if fault.action is Action.DROP:
        around.drop()
    elif fault.action is Action.DELAY:
        around.later(fault.seconds, operation.run)
    elif fault.action is Action.BUSY:
        operation.refuse(BrokerError(SERVER_BUSY, "The request was terminated because the entity is being throttled."))
    elif fault.action is Action.EXPIRE_LOCK:
        around.expire(operation.queue, operation.tokens)
        operation.run()
    elif fault.action is Action.DUPLICATE:
        (operation.duplicate or operation.prepare)()
        operation.run()


def _strike_after(fault: Fault, operation: Operation, around: Surroundings) -> None:
    answer = operation.prepare()
    if fault.action is Action.DROP:
        around.drop()
    elif fault.action is Action.DELAY:
        around.later(fault.seconds, answer)
    elif fault.action is Action.BUSY:
        operation.refuse(BrokerError(SERVER_BUSY, "The request was terminated because the entity is being throttled."))
    elif fault.action is Action.EXPIRE_LOCK:
        answer()
        around.expire(operation.queue, operation.tokens)
    elif fault.action is Action.DUPLICATE:
        answer()
        (operation.duplicate or operation.prepare)()
