"""What orchestrators, queues and workers say to each other. Every message carries `schema_version`."""

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from core.errors import ErrorDetail, Finding
from core.payloads import PayloadRef
from core.unchecked import unchecked

SCHEMA_VERSION = 1
Json = dict[str, Any]
Name = Annotated[str, Field(pattern=r"^[^\x00]*$", max_length=1024)]
"""A text that names or proves something: PostgreSQL compares it, so it is without U+0000."""
Bytes = Annotated[int, Field(ge=0, lt=2**63)]
"""A number of bytes that fits PostgreSQL's bigint."""
Count = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Room = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""What is free, in numbers that PostgreSQL has; of a worker that took on too much it is less than nothing."""


class Wire(BaseModel):
    """Base of everything that crosses a process boundary."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def of_checked(cls, **values: Any) -> Self:
        """Return an instance of values that come from checked ones; what is left out has its default.

        Not for a model with a default that is made anew for each instance.
        """
        return unchecked(cls, {**_defaults_of(cls), **values}, set(values))


@cache
def _defaults_of(cls: type[Wire]) -> Mapping[str, Any]:
    return {name: None if field.is_required() else field.default for name, field in cls.model_fields.items()}


class TaskMessage(Wire):
    """Work for one worker, as it travels through the queue."""

    schema_version: int = SCHEMA_VERSION
    task_id: str
    job_id: str
    node_id: str
    attempt: int
    dispatch_no: int
    handler: str
    queue: str
    priority: int = 5
    params: Json
    params_ref: PayloadRef | None = Field(default=None, description="Where large params lie; `params` is empty then.")
    timeout_seconds: float = Field(description="Run time of this attempt, counted from the grant.")
    token: str = Field(description="Hex of the attempt's random 128-bit token.", repr=False)
    traceparent: str | None = None
    items: tuple[int, ...] | None = Field(
        default=None,
        description="Of a batch: indexes of the items to run; `params` is {items: [{index, params}]}, maybe of more.",
    )


class Capacity(Wire):
    """What a worker has free."""

    slots: Count
    memory_bytes: Room = 0
    scratch_bytes: Room = 0
    cores: Count = 1


class WorkerIdentity(Wire):
    """Who is calling, sent with every worker call."""

    worker_id: Name
    queue: Name
    host: Name
    pid: Count
    build_id: Name
    state: Literal["active", "draining", "stopped"] = "active"


class Claim(Wire):
    """A worker's wish to run one delivered task."""

    task_id: Name
    dispatch_no: int
    token: Name = Field(repr=False)
    claim_id: Name = Field(description="Made per delivery; the same claim_id gets the same answer again.")


class ClaimRequest(Wire):
    """POST /api/v1/callbacks/claims"""

    worker: WorkerIdentity
    free: Capacity
    claims: tuple[Claim, ...]


class ClaimOutcome(StrEnum):
    """How a claim was answered; the worker completes the message for all but NO_FIT and UNKNOWN."""

    GRANTED = "granted"
    LEASED = "leased"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    FINISHED = "finished"
    PAUSED = "paused"
    NO_FIT = "no_fit"
    UNKNOWN = "unknown"


class ClaimAnswer(Wire):
    """The verdict on one claim. UNKNOWN means dead-letter with the reason; NO_FIT means give the message back."""

    task_id: str
    outcome: ClaimOutcome
    reason: str | None = None
    lease_seconds: float | None = None
    handler: str | None = None
    params_digest: str | None = None
    checkpoint: Json | None = Field(default=None, description="{phase, state} of the last attempt with equal params.")
    credential: str | None = Field(
        default=None, repr=False, description="Query of the job's source URL, for handlers that fetch it."
    )


class ClaimResponse(Wire):
    """Answers in the order of the claims."""

    answers: tuple[ClaimAnswer, ...]


class TaskStatus(StrEnum):
    """How a handler ended."""

    COMPLETED = "completed"
    FAILED = "failed"


class ItemOutcome(Wire):
    """What came of one item of a batch."""

    index: int
    status: TaskStatus
    output: Json | None = None
    output_ref: PayloadRef | None = None
    error: ErrorDetail | None = None


class TaskResult(Wire):
    """What came of one attempt."""

    task_id: Name
    token: Name = Field(repr=False)
    status: TaskStatus
    output: Json | None = None
    output_ref: PayloadRef | None = Field(default=None, description="Where a large output lies, instead of `output`.")
    error: ErrorDetail | None = None
    findings: tuple[Finding, ...] = ()
    metrics: Json = Field(default_factory=dict)
    peak_rss_bytes: Bytes | None = None
    outcomes: tuple[ItemOutcome, ...] | None = Field(default=None, description="Of a batch: of each item that ran.")


class ResultRequest(Wire):
    """POST /api/v1/callbacks/task-results (batch); /task-result takes one `TaskResult`."""

    worker: WorkerIdentity
    results: tuple[TaskResult, ...]


class ResultDisposition(StrEnum):
    """APPLIED also means safely stored in the inbox; the worker forgets its copy after any of these."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    SUPERSEDED = "superseded"
    REJECTED = "rejected"


class ResultAnswer(Wire):
    """What became of one result."""

    task_id: str
    disposition: ResultDisposition
    reason: str | None = None


class ResultResponse(Wire):
    """Answers in the order of the results."""

    answers: tuple[ResultAnswer, ...]


class Grant(Wire):
    """A task that was leased without a delivery: what its message would have said, and the answer to its claim."""

    message: TaskMessage
    answer: ClaimAnswer


class ExchangeRequest(Wire):
    """POST /api/v1/callbacks/exchange: what ended, for what comes next."""

    worker: WorkerIdentity
    results: tuple[TaskResult, ...] = ()
    free: Capacity = Field(description="Room that is kept free for the answer; for tasks that run inline.")
    claim_id: Name = Field(description="Under which the tasks of the answer are leased; made per call.")
    wait_seconds: float = Field(
        0.0,
        ge=0,
        le=60,
        description="How long to wait for a task, when there are no results: the room stands open here.",
    )


class ExchangeResponse(Wire):
    """Answers in the order of the results, and tasks that run from now on."""

    answers: tuple[ResultAnswer, ...]
    grants: tuple[Grant, ...] = ()


class Beat(Wire):
    """Sign of life of one running task."""

    task_id: Name
    token: Name = Field(repr=False)
    progress: Json | None = Field(default=None, description="{current, total, message}")
    peak_rss_bytes: Bytes | None = None
    checkpoint: Json | None = Field(default=None, description="{phase, state}; saved when present.")
    outcomes: tuple[ItemOutcome, ...] | None = Field(
        default=None, description="Of a batch: of the items that ended since the last answered beat."
    )


class HeartbeatRequest(Wire):
    """POST /api/v1/callbacks/heartbeats: one call renews every lease of a worker."""

    worker: WorkerIdentity
    free: Capacity
    beats: tuple[Beat, ...]


class Revocation(Wire):
    """A task the worker must stop now; it terminates the process, then kills it."""

    task_id: str
    reason: str


class HeartbeatResponse(Wire):
    """New lease length, and what to stop."""

    lease_seconds: float
    revoked: tuple[Revocation, ...] = ()


class Release(Wire):
    """Give a leased task back at SIGTERM; costs no budget."""

    task_id: Name
    token: Name = Field(repr=False)
    checkpoint: Json | None = None
    outcomes: tuple[ItemOutcome, ...] | None = Field(default=None, description="Of a batch: of each item that ran.")


class ReleaseRequest(Wire):
    """POST /api/v1/callbacks/releases"""

    worker: WorkerIdentity
    releases: tuple[Release, ...]
