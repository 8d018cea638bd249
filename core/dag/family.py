"""The fan-outs of an evaluation and those of their children that it sees: only what changed is counted."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any

from core.dag.state import Expansion, JobState
from core.dag.tallies import account, closed
from core.models.engine import NodeState
from core.models.fan_out import FanOut
from core.statuses import NODE_FINAL


class Family:
    """Rows of fan-outs and of children, as the evaluation changes them."""

    def __init__(self, state: JobState) -> None:
        self._state = state
        self.children: dict[str, NodeState] = dict(state.children)
        self.fan_outs: dict[str, FanOut] = dict(state.fan_outs)
        self._counted: dict[str, NodeState] = dict(state.children)
        self._uncounted: dict[str, set[str]] = {}
        self._sources: dict[str, Sequence[Any]] = {}

    def put(self, child: NodeState) -> None:
        """Put a child, new or changed."""
        self.children[child.node_id] = child
        self._uncounted.setdefault(child.parent_node_id or "", set()).add(child.node_id)

    def of(self, node_id: str) -> tuple[NodeState, ...]:
        """Return the children of a fan-out that are loaded or new."""
        return tuple(child for child in self.children.values() if child.parent_node_id == node_id)

    def live(self, node_id: str) -> tuple[NodeState, ...]:
        """Return those of them that have not ended."""
        return tuple(child for child in self.of(node_id) if child.status not in NODE_FINAL)

    def all_live_seen(self, node_id: str) -> bool:
        """Return whether every child of a fan-out that has not ended is loaded."""
        return len(self.live(node_id)) >= self.count(node_id).active

    def open(self, fan_out: FanOut, items: Sequence[Any] | None) -> None:
        """Add the row of a fan-out that begins, with its items unless they lie in a blob."""
        self.fan_outs[fan_out.node_id] = fan_out
        if items is not None:
            self._sources[fan_out.node_id] = items

    def items_of(self, node_id: str) -> tuple[int, Sequence[Any]]:
        """Return the items of a fan-out that are at hand, and the index of the first of them."""
        if node_id in self._sources:
            return 0, self._sources[node_id]
        known = self._state.fan_outs.get(node_id)
        return (known.next_child * known.batch_size, self._state.next_items.get(node_id, ())) if known else (0, ())

    def change(self, node_id: str, **fields: Any) -> None:
        """Write fields of a fan-out's row; nothing when they are as they were."""
        row = self.fan_outs[node_id]
        if any(getattr(row, name) != value for name, value in fields.items()):
            self.fan_outs[node_id] = row.model_copy(update=fields)

    def count(self, node_id: str) -> FanOut:
        """Count what changed about the children of a fan-out since they were counted last; return its row."""
        changed = self._uncounted.pop(node_id, None)
        if changed:
            moves = [(self._counted.get(key), self.children[key]) for key in changed]
            self.fan_outs[node_id] = account(self.fan_outs[node_id], moves)
            self._counted.update((key, self.children[key]) for key in changed)
        return self.fan_outs[node_id]

    def close(self, node_id: str, now: datetime) -> FanOut:
        """Let a fan-out be over whose children have all ended; return its row."""
        if self.fan_outs[node_id].state != "done":
            self.fan_outs[node_id] = closed(self.count(node_id), now)
        return self.fan_outs[node_id]

    def forget(self, node_id: str) -> None:
        """Drop the row of a fan-out and its children: they are made anew."""
        self.fan_outs.pop(node_id, None)
        self._uncounted.pop(node_id, None)
        for child in self.of(node_id):
            del self.children[child.node_id]
            self._counted.pop(child.node_id, None)

    def changed_fan_outs(self) -> Iterator[FanOut]:
        """Yield the rows to write."""
        return (row for key, row in self.fan_outs.items() if row is not self._state.fan_outs.get(key))

    def expansions(self) -> Iterator[Expansion]:
        """Yield the items to store."""
        return (Expansion(key, items) for key, items in self._sources.items())

    def changed_children(self, reset: Collection[str]) -> tuple[NodeState, ...]:
        """Return the loaded children to write; those of fan-outs that were reset are new."""
        loaded = self._state.children
        return tuple(
            child
            for key, child in self.children.items()
            if key in loaded and child is not loaded[key] and child.parent_node_id not in reset
        )

    def new_children(self, reset: Collection[str]) -> tuple[NodeState, ...]:
        """Return the children to create."""
        loaded = self._state.children
        return tuple(
            child for key, child in self.children.items() if key not in loaded or child.parent_node_id in reset
        )
