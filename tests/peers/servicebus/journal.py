"""What lets a restarted peer find its queues and messages again.

The file holds one JSON record a line, written at once: a queue made or gone, a message as it is now, or gone. Opening
it reads them all and writes the file anew without what is gone. It survives a killed process; a power cut may take the
last lines. Locks are not kept: after a restart every held message is ready again, and its delivery is not counted.
"""

import base64
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from tests.peers.servicebus.messages import parse, render
from tests.peers.servicebus.model import Message, QueueSettings, State


class Journal(Protocol):
    """Is told of everything that a restart must find again, and tells it then."""

    def queues(self) -> Iterable[QueueSettings]:
        """Return the queues there were."""

    def messages(self) -> Iterable[tuple[str, Message]]:
        """Return (queue, message) of all there were."""

    def last_sequences(self) -> Mapping[str, int]:
        """Return the highest sequence number that each queue has given."""

    def created(self, settings: QueueSettings) -> None:
        """Take note of a queue that is new or changed."""

    def deleted(self, queue: str) -> None:
        """Take note that a queue is gone."""

    def saved(self, queue: str, message: Message) -> None:
        """Take note of a message that is new or changed."""

    def removed(self, queue: str, key: int) -> None:
        """Take note of a message that is gone."""


class Forgetful:
    """The journal of a peer that starts empty each time."""

    def queues(self) -> Iterable[QueueSettings]:
        """Remember none."""
        return ()

    def messages(self) -> Iterable[tuple[str, Message]]:
        """Remember none."""
        return ()

    def last_sequences(self) -> Mapping[str, int]:
        """Remember none."""
        return {}

    def created(self, settings: QueueSettings) -> None:
        """Forget it."""

    def deleted(self, queue: str) -> None:
        """Forget it."""

    def saved(self, queue: str, message: Message) -> None:
        """Forget it."""

    def removed(self, queue: str, key: int) -> None:
        """Forget it."""


class FileJournal:
    """The journal of one peer; two peers must not share a file."""

    def __init__(self, path: Path) -> None:
        self._queues: dict[str, dict[str, Any]] = {}
        self._messages: dict[int, dict[str, Any]] = {}
        self._last: dict[str, int] = {}
        if path.exists():
            for record in _records(path):
                self._replay(record)
        renewed = path.with_suffix(path.suffix + ".new")
        with renewed.open("wb") as file:
            for record in self._condensed():
                file.write(_line(record))
        os.replace(renewed, path)
        self._file = path.open("ab", buffering=0)

    def queues(self) -> Iterator[QueueSettings]:
        """Yield the queues there were."""
        for settings in self._queues.values():
            yield QueueSettings(**settings)

    def messages(self) -> Iterator[tuple[str, Message]]:
        """Yield (queue, message), in the order they came."""
        for _, record in sorted(self._messages.items()):
            yield record["queue"], _message(record)

    def last_sequences(self) -> dict[str, int]:
        """Return the highest sequence number that each queue has given."""
        return dict(self._last)

    def created(self, settings: QueueSettings) -> None:
        """Take note of a queue."""
        self._write({"created": asdict(settings)})

    def deleted(self, queue: str) -> None:
        """Take note that a queue is gone."""
        self._write({"deleted": queue})

    def saved(self, queue: str, message: Message) -> None:
        """Take note of a message that is new or changed."""
        self._write(
            {
                "key": message.key,
                "queue": queue,
                "sequence": message.sequence,
                "enqueued_at": message.enqueued_at,
                "expires_at": message.expires_at,
                "due_at": message.due_at,
                "state": int(message.state),
                "delivery_count": message.delivery_count,
                "payload": base64.b64encode(render(message.envelope)).decode(),
            }
        )

    def removed(self, queue: str, key: int) -> None:
        """Take note of a message that is gone."""
        del queue
        self._write({"removed": key})

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, record: dict[str, Any]) -> None:
        self._file.write(_line(record))

    def _replay(self, record: dict[str, Any]) -> None:
        if "created" in record:
            self._queues[record["created"]["name"]] = record["created"]
        elif "deleted" in record:
            self._queues.pop(record["deleted"], None)
        elif "removed" in record:
            self._messages.pop(record["removed"], None)
        elif "last" in record:
            self._last |= record["last"]
        else:
            self._messages[record["key"]] = record
            self._last[record["queue"]] = max(record["sequence"], self._last.get(record["queue"], 0))

    def _condensed(self) -> Iterator[dict[str, Any]]:
        for settings in self._queues.values():
            yield {"created": settings}
        yield {"last": self._last}
        yield from self._messages.values()


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield json.loads(line)


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _message(record: dict[str, Any]) -> Message:
    return Message(
        record["key"],
        record["sequence"],
        parse(base64.b64decode(record["payload"])),
        record["enqueued_at"],
        record["expires_at"],
        State(record["state"]),
        record["due_at"],
        record["delivery_count"],
    )
