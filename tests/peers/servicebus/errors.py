"""What the peer refuses, in the conditions that Service Bus says it in.

BrokerError
"""

from typing import Final

NOT_FOUND: Final = "amqp:not-found"
UNAUTHORIZED: Final = "amqp:unauthorized-access"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
TOO_LARGE: Final = "amqp:link:message-size-exceeded"
DECODE: Final = "amqp:decode-error"
LOCK_LOST: Final = "com.microsoft:message-lock-lost"
MESSAGE_NOT_FOUND: Final = "com.microsoft:message-not-found"
SERVER_BUSY: Final = "com.microsoft:server-busy"
ARGUMENT: Final = "com.microsoft:argument-error"
EXISTS: Final = "com.microsoft:entity-already-exists"

STATUS: Final = {
    NOT_FOUND: 404,
    MESSAGE_NOT_FOUND: 404,
    UNAUTHORIZED: 401,
    NOT_IMPLEMENTED: 501,
    TOO_LARGE: 413,
    DECODE: 400,
    ARGUMENT: 400,
    LOCK_LOST: 410,
    SERVER_BUSY: 503,
    EXISTS: 409,
}
"""The status of an answer to a request that was refused so."""


class BrokerError(Exception):
    """A refusal: an AMQP error condition and a sentence."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description

    @property
    def status(self) -> int:
        """Return the status code that says the same."""
        return STATUS[self.condition]
