"""The events of one evaluation. What happens to many children of a fan-out in the same way is one event with ranges.

A job of 100,000 items would otherwise write half a million events that say nothing but a number.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from core.dag.state import Event


class EventLog:
    """Events in the order in which they came; a group of children stands where its first one stood.

    It ends with the next event of their fan-out: one that starts anew has children of the same numbers.
    """

    def __init__(self) -> None:
        self._events: list[Event | _Group] = []
        self._open: dict[tuple[str, str, str], _Group] = {}

    def append(self, event: Event) -> None:
        """Add one event."""
        self._events.append(event)
        if self._open:
            self._open = {key: group for key, group in self._open.items() if group.parent_id != event.node_id}

    def add_child(self, event_type: str, status: str, parent_id: str, index: int) -> None:
        """Add what happened to one child, by its number, to what happened to others of its fan-out."""
        key = (event_type, status, parent_id)
        if key not in self._open:
            self._open[key] = _Group(*key)
            self._events.append(self._open[key])
        self._open[key].numbers.append(index)

    def events(self) -> tuple[Event, ...]:
        """Return all events."""
        return tuple(one.event() if isinstance(one, _Group) else one for one in self._events)


@dataclass(slots=True)
class _Group:
    """What happened to children of one fan-out alike."""

    event_type: str
    status: str
    parent_id: str
    numbers: list[int] = field(default_factory=list)

    def event(self) -> Event:
        """Return all of it as one event."""
        return Event(self.event_type, self.status, self.parent_id, data={"children": ranges(self.numbers)})


def ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Return distinct numbers as [first, last] of each run without gaps, in order."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found
