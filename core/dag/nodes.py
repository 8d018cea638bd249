"""The vertices of a workflow, one model per node type, and what they share.

A new node type is a new model in `Node`; `core.dag.graph` reads only `targets()` and `depends_on`.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

PositiveSeconds = Annotated[float, Field(gt=0, le=10 * 365 * 86400, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=10 * 365 * 86400, allow_inf_nan=False)]


class Definition(BaseModel):
    """Base of everything an author writes: unknown keys are errors, nothing is coerced."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class JoinRule(StrEnum):
    """When a node with several incoming edges becomes ready."""

    ALL_OF = "all_of"
    ANY_OF = "any_of"
    ALL_DONE = "all_done"


class Join(Definition):
    """`depends_on`: edges from these nodes, and the rule for *all* incoming edges of the node."""

    all_of: tuple[str, ...] | None = None
    any_of: tuple[str, ...] | None = None
    all_done: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [rule for rule in JoinRule if getattr(self, rule) is not None]
        if len(given) != 1 or not getattr(self, given[0]):
            raise ValueError("depends_on takes exactly one of all_of, any_of, all_done, with at least one node")
        return self

    @property
    def rule(self) -> JoinRule:
        """Return which of the three was written."""
        return next(rule for rule in JoinRule if getattr(self, rule) is not None)

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the nodes that it names."""
        named: tuple[str, ...] = getattr(self, self.rule)
        return named


class Backoff(StrEnum):
    """How the delay before a retry grows."""

    FIXED = "fixed"
    EXPONENTIAL = "exponential"
    SCHEDULE = "schedule"


class RetrySpec(Definition):
    """What an author says about retries; whatever is left out comes from `defaults`, then from `RetryPolicy`."""

    max_retries: Annotated[int, Field(ge=0, le=1000)] | None = None
    max_losses: Annotated[int, Field(ge=0, le=1000)] | None = None
    max_elapsed_seconds: PositiveSeconds | None = None
    backoff: Backoff | None = None
    initial_delay_seconds: Seconds | None = None
    max_delay_seconds: Seconds | None = None
    delays_seconds: Annotated[tuple[Seconds, ...], Field(min_length=1)] | None = None
    jitter: Annotated[float, Field(ge=0, le=1)] | None = None


class Defaults(Definition):
    """What holds for every task of a workflow that does not say otherwise."""

    timeout_seconds: PositiveSeconds | None = None
    queue_timeout_seconds: PositiveSeconds | None = None
    retry: RetrySpec | None = None


class _Vertex(Definition):
    description: str = ""
    next: tuple[str, ...] = ()
    depends_on: Join | None = None
    best_effort: bool = Field(default=False, description="A failure becomes a warning and its edges pass.")

    def targets(self) -> tuple[str, ...]:
        """Return the nodes that this one points at."""
        return self.next


class StartNode(_Vertex):
    """The entry: exactly one, completes at once."""

    type: Literal["start"]


class EndNode(_Vertex):
    """An exit: at least one, completes at once when reached."""

    type: Literal["end"]


class TaskNode(_Vertex):
    """Runs a handler on a worker."""

    type: Literal["task"]
    handler: str
    queue: str | None = Field(default=None, description="The handler's own queue when left out.")
    params: dict[str, Any] = Field(default={}, description="Values or templates.")
    timeout_seconds: PositiveSeconds | None = Field(default=None, description="Run time of one attempt.")
    queue_timeout_seconds: PositiveSeconds | None = Field(default=None, description="Waiting time for a worker.")
    retry: RetrySpec | None = None


Node = StartNode | EndNode | TaskNode
AnyNode = Annotated[Node, Field(discriminator="type")]

NODE_TYPES = frozenset({"start", "end", "task"})
PLANNED_NODE_TYPES = frozenset({"conditional", "fan_out", "fan_in", "gate", "workflow"})
"""Types of the language that this build does not run yet; they are load errors that say so."""
