"""The events of one evaluation. What happens to many children of a fan-out in the same way is one event with ranges.

A job of 100,000 items would otherwise write half a million events that say nothing but a number.
"""

from collections.abc import Iterable

from core.dag.state import Event


class EventLog:
    """Events in the order in which they came; a group of children stands where its first one stood."""

    def __init__(self) -> None:
        self._events: list[Event | tuple[str, str, str]] = []
        self._groups: dict[tuple[str, str, str], list[int]] = {}

    def append(self, event: Event) -> None:
        """Add one event."""
        self._events.append(event)

    def add_child(self, event_type: str, status: str, parent_id: str, index: int) -> None:
        """Add what happened to one child, by its number, to what happened to others of its fan-out."""
        key = (event_type, status, parent_id)
        if key not in self._groups:
            self._groups[key] = []
            self._events.append(key)
        self._groups[key].append(index)

    def events(self) -> tuple[Event, ...]:
        """Return all events."""
        return tuple(self._group(one) if isinstance(one, tuple) else one for one in self._events)

    def _group(self, key: tuple[str, str, str]) -> Event:
        event_type, status, parent_id = key
        return Event(event_type, status, parent_id, data={"children": ranges(self._groups[key])})


def ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Return distinct numbers as [first, last] of each run without gaps, in order."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found
