"""Makes the queue adapters known to every test of this folder."""

from tests.support.queues import queue_adapter

__all__ = ["queue_adapter"]
