"""The two ways in which an attempt ends without success, for tasks and for batches of a fan-out."""

from collections.abc import Iterable
from typing import Any

from core.dag import batches
from core.dag.failures import fail_attempt, release_attempt
from core.dag.run import Run
from core.errors import ErrorDetail


def failed(run: Run, node_id: str, error: ErrorDetail, outcomes: Iterable[Any] = ()) -> None:
    """Charge a failure of the current attempt: the node waits for the next one, or fails."""
    if is_batch(run, node_id):
        batches.end_attempt(run, node_id, outcomes, error)
    else:
        fail_attempt(run, node_id, error)


def released(run: Run, node_id: str, reason: str, outcomes: Iterable[Any] = ()) -> None:
    """Give a node back that its worker released."""
    if is_batch(run, node_id):
        batches.end_attempt(run, node_id, outcomes, None)
    else:
        release_attempt(run, node_id, reason)


def is_batch(run: Run, node_id: str) -> bool:
    """Return whether a node is a child that has several items, or may have."""
    child = run.children.get(node_id)
    return child is not None and child.outcomes is not None
