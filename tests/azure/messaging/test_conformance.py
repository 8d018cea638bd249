"""Service Bus does what every adapter of the task queue must do: the very tests of the embedded one."""

from tests.integration.messaging.conformance.test_queue import *  # noqa: F403
