"""Saves checkpoints of attempts whose lock the transaction holds and whose lease and token were checked."""

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic_core import to_json

from core.dag.json_values import NotJson, check_json
from core.models.engine import Attempt, Checkpoint
from core.payloads import LIMIT_BYTES
from repositories.checkpoints import CheckpointRepository
from repositories.events import EventRepository, NewEvent
from services.work import Connection

log = logging.getLogger(__name__)


def checkpoint_rows(saved: Sequence[tuple[Attempt, dict[str, Any]]], now: datetime) -> list[Checkpoint]:
    """Return the rows of checkpoints {phase, state}; one belongs to the node and to a hash of the params.

    One that is none, or that JSON storage refuses, is dropped with a warning: it must not cost the leases in the same
    call.
    """
    return [_row(attempt, checkpoint, now) for attempt, checkpoint in saved if _is_checkpoint(checkpoint, attempt)]


def _is_checkpoint(value: dict[str, Any], attempt: Attempt) -> bool:
    if isinstance(value.get("state") or {}, dict):
        return is_storable(value, attempt.task_id)
    log.warning("checkpoint without a mapping as its state dropped", extra={"task_id": attempt.task_id})
    return False


def is_storable(value: Any, task_id: str) -> bool:
    """Return whether a value that a task reported on the way can be stored; log when it cannot."""
    try:
        check_json(value, "value")
    except NotJson as error:
        log.warning("unstorable value dropped", extra={"task_id": task_id, "reason": str(error)})
        return False
    if (size := len(to_json(value))) > LIMIT_BYTES:
        log.warning("large value dropped", extra={"task_id": task_id, "size_bytes": size})
        return False
    return True


def _row(attempt: Attempt, checkpoint: dict[str, Any], now: datetime) -> Checkpoint:
    return Checkpoint(
        job_id=attempt.job_id,
        node_id=attempt.node_id,
        params_digest=attempt.params_digest,
        phase=str(checkpoint.get("phase", "")),
        state=checkpoint.get("state") or {},
        saved_by=attempt.task_id,
        saved_at=now,
    )


async def save_checkpoints(conn: Connection, rows: Sequence[Checkpoint]) -> None:
    """Store checkpoints in place of those before, with an event each."""
    if not rows:
        return
    await CheckpointRepository(conn).save(rows)
    events = [
        NewEvent(
            job_id=row.job_id,
            node_id=row.node_id,
            task_id=row.saved_by,
            event_type="checkpoint_saved",
            event_data={},
            checkpoint_name=row.phase,
            created_at=row.saved_at,
        )
        for row in rows
    ]
    await EventRepository(conn).append(events)
