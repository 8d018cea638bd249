"""Large values travel by reference: a blob holds the canonical JSON, rows and messages hold a `PayloadRef`.

Blobs lie in the silver zone under `payloads/{job_id}/…` and go with their job. Names end with the digest of what they
hold, so that storing the same value twice is storing it once, and nothing is ever overwritten.
"""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from core.errors import GeodagError
from core.ids import canonical_json, split_task_id
from core.json_text import read_json

LIMIT_BYTES: Final = 64 * 1024
"""A value whose canonical JSON is longer than this is stored as a blob."""
MAX_BYTES: Final = 256 * 1024 * 1024
"""No value may be larger than this; data of that size belongs into files."""
REF_BYTES: Final = 512
"""A value of this size is not worth a reference."""
CONTAINER: Final = "silver"
PREFIX: Final = "payloads/"
ARCHIVES: Final = "archives/"
"""Beside them lie months of events that left the database."""


class PayloadRef(BaseModel):
    """Where a large value lies, and what proves that it is the one that was meant."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    blob: Annotated[str, Field(pattern=r"^payloads/[^\x00]+$", max_length=512)]
    """Name in the silver container."""
    size_bytes: Annotated[int, Field(ge=0, le=MAX_BYTES)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """Hex digest of the blob's bytes."""


class PayloadLost(GeodagError):
    """A blob is not there (PAYLOAD_MISSING) or does not hold what was stored (PAYLOAD_CORRUPT); both are final."""

    code = "PAYLOAD_CORRUPT"


class ValueTooLarge(GeodagError):
    """A value is larger than `MAX_BYTES`."""

    code = "VALUE_TOO_LARGE"


def encode(value: Any, path: str) -> bytes:
    """Return the canonical JSON of a value; `ValueTooLarge` names `path`."""
    data = canonical_json(value).encode()
    if len(data) > MAX_BYTES:
        raise ValueTooLarge(
            f"{path} has {len(data)} bytes of JSON; at most {MAX_BYTES} are stored",
            field=path,
            remediation="Write large data to a file and hand on its blob path.",
        )
    return data


def decode(ref: PayloadRef, data: bytes) -> Any:
    """Return the value of a blob that was read; raises `PayloadLost` when it is not what was stored."""
    verify(ref, len(data), hashlib.sha256(data).hexdigest())
    try:
        return read_json(data)
    except (ValueError, RecursionError) as error:
        raise PayloadLost(f"the stored value {ref.blob} is not JSON", field=ref.blob) from error


def verify(ref: PayloadRef, size_bytes: int, sha256: str) -> None:
    """Raise `PayloadLost` unless a blob's size and digest are those of the reference."""
    if (size_bytes, sha256) != (ref.size_bytes, ref.sha256):
        raise PayloadLost(
            f"the stored value {ref.blob} is damaged: {size_bytes} bytes of {ref.size_bytes}, digest {sha256[:12]} "
            f"instead of {ref.sha256[:12]}",
            field=ref.blob,
        )


def damaged(ref: PayloadRef) -> PayloadLost:
    """Return the error for a blob whose storage itself finds that it is not what was stored."""
    return PayloadLost(f"the stored value {ref.blob} is damaged", field=ref.blob)


def missing(ref: PayloadRef) -> PayloadLost:
    """Return the error for a blob that is not there."""
    return PayloadLost(f"the stored value {ref.blob} is not there any more", code="PAYLOAD_MISSING", field=ref.blob)


def is_large(data: bytes) -> bool:
    """Return whether canonical JSON has to be stored as a blob."""
    return len(data) > LIMIT_BYTES


def job_prefix(job_id: str) -> str:
    """Return what the names of all blobs of a job begin with."""
    return f"{PREFIX}{job_id}/"


def task_prefix(job_id: str, task_id: str) -> str:
    """Return what the names of all blobs begin with that the worker of one attempt writes."""
    return f"{job_prefix(job_id)}{task_id}/"


def value_prefix(job_id: str) -> str:
    """Return what the names of inputs, rendered params and other values begin with that orchestrators write."""
    return f"{job_prefix(job_id)}values/"


def ref_to(prefix: str, data: bytes) -> PayloadRef:
    """Return the reference under which bytes are stored below a prefix: the name is their digest."""
    sha256 = hashlib.sha256(data).hexdigest()
    return PayloadRef(blob=f"{prefix}{sha256}.json", size_bytes=len(data), sha256=sha256)


def is_output_of(ref: PayloadRef, task_id: str) -> bool:
    """Return whether a reference is to a value that the worker of this attempt stored: it may name no other."""
    parts = split_task_id(task_id)
    return parts is not None and ref.blob == f"{task_prefix(parts[0], task_id)}{ref.sha256}.json"


def is_payload(container: str, name: str) -> bool:
    """Return whether a blob is a stored value or an archive, which no door shows and no submit names."""
    return container == CONTAINER and (name + "/").startswith((PREFIX, ARCHIVES))


def split(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return what of a mapping stays inline, and the canonical JSON of its largest values that have to leave it.

    What stays is within the limit, unless it is a great many small values.
    """
    parts = {name: encode(value, name) for name, value in values.items()}
    total = sum(map(len, parts.values()))
    large: dict[str, bytes] = {}
    for name in sorted(parts, key=lambda one: len(parts[one]), reverse=True):
        if total <= LIMIT_BYTES or len(parts[name]) <= REF_BYTES:
            break
        large[name] = parts[name]
        total -= len(parts[name])
    return {name: value for name, value in values.items() if name not in large}, large
