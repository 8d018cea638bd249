"""What a message means that a worker set aside, and whether an attempt has to fail because of it.

A letter is trusted for little: its body may say anything. Only the newest dispatch of a task that still waits for a
worker fails by one, and only when the message could not be read, or proves by its token to be the one that was sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from core.errors import Classification, ErrorDetail
from core.ids import message_id, token_hash
from core.models.engine import Attempt
from core.statuses import AttemptState
from core.wire import TaskMessage

UNREADABLE_CODE = "MESSAGE_UNREADABLE"
REFUSED_CODE = "MESSAGE_REFUSED"
UNDELIVERED_CODE = "MESSAGE_UNDELIVERED"
TOO_LARGE_CODE = "MESSAGE_TOO_LARGE"
MAX_REASON = 500
GAVE_UP = ("MaxDeliveryCountExceeded", "TTLExpiredException")
"""How the reasons begin with which a broker itself sets a message aside: nobody has said anything against it."""
MAX_DISPATCHES = 3
"""A message that a broker gave up is sent again until this dispatch; after it, its attempt fails.

Not one that workers have claimed and had no room for: that waits.
"""
TOO_LARGE = "too large for the broker:"
"""How the reason begins of a letter that no broker ever had: it would not take so much."""


class Kind(StrEnum):
    """Why a message is a dead letter."""

    UNREADABLE = "unreadable"
    """Its body is no task message, or one that another build writes."""
    UNKNOWN_TASK = "unknown_task"
    """No attempt stands behind it."""
    BAD_TOKEN = "bad_token"  # noqa: S105 - the name of a kind
    """It names a task, but was never sent for it."""
    STALE = "stale"
    """It was sent, and something newer was sent or happened since."""
    REFUSED = "refused"
    """It is the newest that was sent, and somebody would not take it."""
    UNDELIVERED = "undelivered"
    """It is the newest that was sent, and the broker gave up before anybody took it."""


@dataclass(frozen=True, slots=True)
class Letter:
    """One message as the broker set it aside."""

    message_id: str
    body: Any
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a letter is; `error` ends the attempt that waits for the message, `again` sends it once more."""

    kind: Kind
    error: ErrorDetail | None = None
    again: bool = False


def judge(letter: Letter, attempt: Attempt | None) -> Verdict:
    """Return what a letter means for the attempt that it names; None when there is no such attempt."""
    message = _read(letter.body)
    if attempt is None:
        return Verdict(Kind.UNREADABLE if message is None else Kind.UNKNOWN_TASK)
    waits = attempt.state is AttemptState.QUEUED
    newest = waits and letter.message_id == message_id(attempt.task_id, attempt.dispatch_no)
    if message is None:
        return Verdict(Kind.UNREADABLE, _error(UNREADABLE_CODE, letter) if newest else None)
    if message.dispatch_no == attempt.dispatch_no and token_hash(message.token) != attempt.token_hash:
        return Verdict(Kind.BAD_TOKEN)
    if not newest:
        return Verdict(Kind.STALE)
    if not letter.reason.startswith(GAVE_UP):
        return Verdict(Kind.REFUSED, _error(REFUSED_CODE, letter))
    if attempt.dispatch_no < MAX_DISPATCHES or attempt.no_fit is not None:
        return Verdict(Kind.UNDELIVERED, again=True)
    return Verdict(Kind.UNDELIVERED, _error(UNDELIVERED_CODE, letter))


def _read(body: Any) -> TaskMessage | None:
    try:
        return TaskMessage.model_validate(body)
    except ValidationError:
        return None


_REMEDIES = {
    UNDELIVERED_CODE: "See why workers receive the message without claiming it, then retry the job.",
    TOO_LARGE_CODE: "Let fewer items make a batch, or put the values into a blob and pass its name.",
}


def _error(code: str, letter: Letter) -> ErrorDetail:
    code = TOO_LARGE_CODE if letter.reason.startswith(TOO_LARGE) else code
    return ErrorDetail(
        code=code,
        message=f"no worker takes message {letter.message_id}: {letter.reason[:MAX_REASON]}",
        remediation=_REMEDIES.get(code, "Bring workers and orchestrators to one build, then retry the job."),
        classification=Classification.PERMANENT,
    )


def without_tokens(body: Any) -> Any:
    """Return a body that may be kept and shown: whatever is called a token is gone, at any depth."""
    if isinstance(body, Mapping):
        return {key: without_tokens(value) for key, value in body.items() if "token" not in str(key).lower()}
    if isinstance(body, list | tuple):
        return [without_tokens(item) for item in body]
    return body
