"""A namespace: its queues by path, and the one place that hands messages on after something changed."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from tests.peers.servicebus.clock import Clock
from tests.peers.servicebus.errors import EXISTS, NOT_FOUND, BrokerError
from tests.peers.servicebus.queues import DEAD_LETTER_SUFFIX, Forgetful, Journal, Queue, QueueSettings


class Broker:
    """The queues of one namespace and their dead-letter queues."""

    def __init__(self, queues: Iterable[QueueSettings], clock: Clock, journal: Journal | None = None) -> None:
        self.clock = clock
        self.on_due: Callable[[Queue], None] = lambda queue: None
        """Told whenever a queue's next time may have moved."""
        self._journal = journal or Forgetful()
        self._keys = itertools.count(1)
        self._queues: dict[str, Queue] = {}
        for settings in queues:
            self.create(settings)

    def __iter__(self) -> Iterator[Queue]:
        return iter(self._queues.values())

    def create(self, settings: QueueSettings) -> Queue:
        """Add a queue.

        Raises:
            BrokerError: there is one of that name.
        """
        if settings.name.lower() in self._queues:
            raise BrokerError(EXISTS, f"the queue {settings.name} exists")
        dead_settings = replace(settings, name=settings.name + DEAD_LETTER_SUFFIX, duplicate_window_seconds=None)
        dead = Queue(dead_settings, journal=self._journal, keys=self._keys)
        queue = Queue(settings, dead, journal=self._journal, keys=self._keys)
        for made in (queue, dead):
            self._queues[made.name.lower()] = made
        return queue

    def delete(self, name: str) -> None:
        """Remove a queue and everything in it.

        Raises:
            BrokerError: there is none of that name.
        """
        queue = self.find(name)
        for gone in (queue, queue.dead):
            if gone is not None:
                for key in gone.messages:
                    self._journal.removed(gone.name, key)
                del self._queues[gone.name.lower()]

    def find(self, path: str) -> Queue:
        """Return the queue at a path.

        Raises:
            BrokerError: there is none.
        """
        try:
            return self._queues[path.lower()]
        except KeyError:
            raise BrokerError(NOT_FOUND, f"The messaging entity '{path}' could not be found.") from None

    def changed(self, queue: Queue) -> None:
        """Hand on what a change in a queue made ready."""
        now = self.clock.now()
        for touched in (queue, queue.dead):
            if touched is not None:
                touched.pump(now)
                self.on_due(touched)

    def settle(self) -> None:
        """Do what has become due anywhere."""
        for queue in list(self._queues.values()):
            if not queue.name.endswith(DEAD_LETTER_SUFFIX):
                self.changed(queue)
