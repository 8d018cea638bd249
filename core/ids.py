"""Names of identifiers, and how they are composed. Randomness comes in as an argument."""

import hashlib
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import NewType

JobId = NewType("JobId", str)
NodeId = NewType("NodeId", str)
TaskId = NewType("TaskId", str)
RequestId = NewType("RequestId", str)
AssetId = NewType("AssetId", str)
OwnerId = NewType("OwnerId", str)
WorkerId = NewType("WorkerId", str)

KEY_DIGITS = 32
"""Hex digits of 128 bits: nobody meets another's by chance."""


def task_id(job_id: str, node_id: str, attempt: int) -> TaskId:
    """Return `{job_id}_{node_id}_{attempt}`; `attempt` only grows for the life of the job."""
    return TaskId(f"{job_id}_{node_id}_{attempt}")


def split_task_id(task: str) -> tuple[JobId, NodeId, int] | None:
    """Return job, node and attempt of a task id, or None when it is not one of ours; job ids have no underscore."""
    job, _, rest = task.partition("_")
    node, _, attempt = rest.rpartition("_")
    if not job or not node or not (attempt.isascii() and attempt.isdecimal()):
        return None
    return JobId(job), NodeId(node), int(attempt)


def job_id_of_inputs(workflow_id: str, inputs: Mapping[str, object]) -> JobId:
    """Return the id of the one job that a workflow has for resolved inputs, when it deduplicates by them."""
    return JobId(digest({"workflow_id": workflow_id, "inputs": inputs}))


def job_id_of_key(actor: str, key: str, body: Mapping[str, object]) -> JobId:
    """Return the id of the job that an actor's idempotency key stands for: half of it says the key, half the body."""
    return JobId(digest({"actor": actor, "idempotency_key": key})[:KEY_DIGITS] + digest(body)[:KEY_DIGITS])


def key_of_job_id(job_id: str) -> str:
    """Return the half of such an id that every body under the same key has."""
    return job_id[:KEY_DIGITS]


def message_id(task: str, dispatch_no: int) -> str:
    """Return the broker message id of one dispatch of one attempt (at most 128 characters)."""
    return f"{task}.{dispatch_no}"


def asset_id(platform_id: str, identity_refs: Mapping[str, str]) -> AssetId:
    """Return the deterministic asset id: SHA-256 of platform and *required* refs, first 32 hex digits.

    Source: specification 003 §13.2; versions are never part of it.
    """
    composite = f"{platform_id}|{json.dumps(dict(identity_refs), sort_keys=True)}"
    return AssetId(hashlib.sha256(composite.encode()).hexdigest()[:32])


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def canonical_json(value: object) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, no NaN."""
    return _CANONICAL.encode(value)


def digest(value: object, text: str | None = None) -> str:
    """Return the SHA-256 hex digest of a value's canonical JSON, which may be at hand as `text`.

    Numbers count by value, not by spelling: PostgreSQL's jsonb writes the float 1e+22 as an integer and -0.0 as 0.0,
    and what went through it must still have the digest it was sent with.
    """
    text = canonical_json(value) if text is None else text
    if any(mark in text for mark in _MARKS_OF_FLOATS):
        text = canonical_json(_by_value(value))
    return hashlib.sha256(text.encode()).hexdigest()


_MARKS_OF_FLOATS = (".", "e+", "e-")
"""One of these is in the text of every float."""


def _by_value(value: object) -> object:
    """Return the value with every whole float as the integer that its shortest text spells."""
    if isinstance(value, float) and value.is_integer():
        return int(Decimal(repr(value)))
    if isinstance(value, Mapping):
        return {key: _by_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_by_value(item) for item in value]
    return value


def token_hash(token: str) -> str:
    """Return the SHA-256 hex digest of an attempt's token, of its hex text and not of the bytes it spells.

    `fence.hold` in the database computes the same.
    """
    return hashlib.sha256(token.encode()).hexdigest()
