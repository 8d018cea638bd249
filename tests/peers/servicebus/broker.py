"""A namespace: its queues by path, and the one place that hands messages on after something changed."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from tests.peers.servicebus.clock import Clock
from tests.peers.servicebus.errors import EXISTS, NOT_FOUND, BrokerError
from tests.peers.servicebus.journal import Forgetful, Journal
from tests.peers.servicebus.model import QueueSettings
from tests.peers.servicebus.queues import DEAD_LETTER_SUFFIX, Queue


class Broker:
    """The queues of one namespace and their dead-letter queues."""

    def __init__(self, queues: Iterable[QueueSettings], clock: Clock, journal: Journal | None = None) -> None:
        self.clock = clock
        self.on_due: Callable[[Queue], None] = lambda queue: None
        """Told whenever a queue's next time may have moved."""
        self._journal = journal or Forgetful()
        self._keys = itertools.count(1)
        self._queues: dict[str, Queue] = {}
        self._open({settings.name.lower(): settings for settings in (*self._journal.queues(), *queues)}.values())

    def __iter__(self) -> Iterator[Queue]:
        return iter(self._queues.values())

    def _open(self, queues: Iterable[QueueSettings]) -> None:
        """Make the queues, those of the journal with their messages; the given settings hold, not the journal's."""
        for settings in queues:
            self.create(settings)
        for name, sequence in self._journal.last_sequences().items():
            if (queue := self._queues.get(name.lower())) is not None:
                queue.go_on_from(sequence)
        last = 0
        for name, message in self._journal.messages():
            last = max(last, message.key)
            if (queue := self._queues.get(name.lower())) is not None:
                queue.restore(message)
        self._keys = itertools.count(last + 1)
        for queue in self:
            queue.keys = self._keys

    def create(self, settings: QueueSettings) -> Queue:
        """Add a queue.

        Raises:
            BrokerError: there is one of that name.
        """
        if settings.name.lower() in self._queues:
            raise BrokerError(EXISTS, f"the queue {settings.name} exists")
        self._journal.created(settings)
        dead_settings = replace(settings, name=settings.name + DEAD_LETTER_SUFFIX, duplicate_window_seconds=None)
        dead = Queue(dead_settings, journal=self._journal, keys=self._keys)
        queue = Queue(settings, dead, journal=self._journal, keys=self._keys)
        for made in (queue, dead):
            self._queues[made.name.lower()] = made
        return queue

    def change(self, settings: QueueSettings) -> Queue:
        """Change the settings of a queue; locks, expiries and the like that were set before stay as they are.

        Raises:
            BrokerError: there is none of that name.
        """
        queue = self.find(settings.name)
        queue.settings = settings
        self._journal.created(settings)
        return queue

    def delete(self, name: str) -> None:
        """Remove a queue and everything in it.

        Raises:
            BrokerError: there is none of that name.
        """
        queue = self.find(name)
        self._journal.deleted(queue.name)
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
