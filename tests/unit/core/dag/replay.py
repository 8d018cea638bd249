"""The event log alone says where the job, its nodes and the children of its fan-outs are."""

from collections.abc import Iterator, Mapping, Sequence

from core.dag.state import Event, JobState
from core.dag.tallies import child_id
from core.statuses import JobStatus, NodeStatus

JOB = ""
"""Stands for the job itself among its nodes."""
_JOB = frozenset(JobStatus)
_NODE = frozenset(NodeStatus)


class Replay:
    """Reads a log from its beginning, and again what has been added to it."""

    def __init__(self, initial: Mapping[str, str] | None = None) -> None:
        self._statuses: dict[str, str] = dict(initial or {})
        self._read = 0

    def assert_leads_to(self, state: JobState, events: Sequence[Event]) -> None:
        """Assert that the log says of everything what its row says; that a task was claimed says the claim's event."""
        for event in events[self._read :]:
            if event.event_status in (_NODE if event.node_id else _JOB):
                self._statuses.update(dict.fromkeys(_named(event), event.event_status or ""))
        self._read = len(events)
        rows = {JOB: state.job, **state.nodes, **state.children}
        said = {key: self._statuses.get(key, "PENDING") for key in rows}
        claimed = {key for key, status in said.items() if status == "DISPATCHED" and rows[key].status == "RUNNING"}
        assert said | dict.fromkeys(claimed, "RUNNING") == {key: row.status.value for key, row in rows.items()}


def _named(event: Event) -> Iterator[str]:
    if "children" not in event.data:
        yield event.node_id or JOB
    for first, last in event.data.get("children", ()):
        yield from (child_id(event.node_id or "", number) for number in range(first, last + 1))
