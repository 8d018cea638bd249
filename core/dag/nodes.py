"""The vertices of a workflow, one model per node type, and what they share.

A new node type is a new model in `Node`; `core.dag.graph` reads only `targets()` and `depends_on`.
"""

from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

MOST_SECONDS: Final = 10 * 365 * 86400
PositiveSeconds = Annotated[float, Field(gt=0, le=MOST_SECONDS, allow_inf_nan=False)]
GLOBAL: Final = "global:"
"""How keys of slots begin that are the same for all workflows."""
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
    heartbeat_timeout_seconds: PositiveSeconds | None = None
    retry: RetrySpec | None = None


class Concurrency(Definition):
    """At most `limit` holders of one key; keys are per workflow unless they begin with `global:`."""

    key: Annotated[str, Field(min_length=1, max_length=256, description="A text, usually with a template in it.")]
    limit: Annotated[int, Field(ge=1, le=100_000)]


class Vertex(Definition):
    """What every type of node may say."""

    description: str = ""
    next: tuple[str, ...] = ()
    depends_on: Join | None = None
    when: str | None = Field(default=None, description="A condition; when it is false the node is bypassed.")
    best_effort: bool = Field(default=False, description="A failure becomes a warning and its edges pass.")

    def targets(self) -> tuple[str, ...]:
        """Return the nodes that this one points at."""
        return self.next


class StartNode(Vertex):
    """The entry: exactly one, completes at once."""

    type: Literal["start"]


class EndNode(Vertex):
    """An exit: at least one, completes at once when reached."""

    type: Literal["end"]


class Work(Definition):
    """What a worker is asked to do: one task, or each task of a fan-out."""

    handler: str
    queue: str | None = Field(default=None, description="The handler's own queue when left out.")
    params: dict[str, Any] = Field(default={}, description="Values or templates.")
    timeout_seconds: PositiveSeconds | None = Field(default=None, description="Run time of one attempt.")
    queue_timeout_seconds: PositiveSeconds | None = Field(default=None, description="Waiting time for a worker.")
    heartbeat_timeout_seconds: PositiveSeconds | None = Field(default=None, description="Length of the lease.")
    retry: RetrySpec | None = None
    concurrency: Concurrency | None = Field(default=None, description="A slot that each attempt holds.")


class TaskNode(Vertex, Work):
    """Runs a handler on a worker."""

    type: Literal["task"]


class Branch(Definition):
    """One way out of a conditional with `condition_field`."""

    condition: str | None = None
    default: bool = False
    next: Annotated[tuple[str, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _condition_or_default(self) -> Self:
        if (self.condition is None) != self.default:
            raise ValueError("a branch has either a condition or default: true")
        return self


class ConditionalNode(Vertex):
    """Chooses which of its targets go on: by one condition, or by the first branch that holds."""

    type: Literal["conditional"]
    condition: str | None = None
    on_true: tuple[str, ...] = ()
    on_false: tuple[str, ...] = ()
    condition_field: str | None = Field(default=None, description="Left side of comparisons that have none.")
    branches: tuple[Branch, ...] = ()

    @model_validator(mode="after")
    def _one_spelling(self) -> Self:
        by_condition = self.condition is not None
        if by_condition == bool(self.branches):
            raise ValueError("a conditional has either a condition with on_true and on_false, or branches")
        if by_condition and (self.condition_field is not None or not (self.on_true or self.on_false)):
            raise ValueError("a conditional with a condition has on_true or on_false and no condition_field")
        if not by_condition and (self.on_true or self.on_false):
            raise ValueError("on_true and on_false belong to a condition, not to branches")
        if sum(branch.default for branch in self.branches) > 1:
            raise ValueError("only one branch can be the default")
        return self

    def choices(self) -> tuple[str, ...]:
        """Return the nodes of which some are not taken."""
        named = (*self.on_true, *self.on_false, *(target for branch in self.branches for target in branch.next))
        return tuple(dict.fromkeys(named))

    def targets(self) -> tuple[str, ...]:
        """Return the nodes that it points at, chosen or always."""
        return tuple(dict.fromkeys((*self.next, *self.choices())))


class Tolerate(Definition):
    """How many items of a fan-out may fail."""

    percent: Annotated[float, Field(ge=0, le=100)] | None = None
    count: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.percent is None) == (self.count is None):
            raise ValueError("tolerate takes exactly one of percent and count")
        return self


class FanOutNode(Vertex):
    """Runs one task per item, or per batch of items, of a list; RUNNING until the last item is settled."""

    type: Literal["fan_out"]
    source: str = Field(description="An expression whose value must be a list.")
    max_concurrency: Annotated[int, Field(ge=1, le=10_000)] = 256
    batch_size: Annotated[int, Field(ge=1, le=1_000)] = 1
    tolerate: Tolerate = Tolerate(count=0)
    task: Work


class Aggregation(StrEnum):
    """What a fan_in makes of the outputs, in item order."""

    COLLECT = "collect"
    CONCAT = "concat"
    SUM = "sum"
    COUNT = "count"
    FIRST = "first"
    LAST = "last"


class FanInNode(Vertex):
    """Aggregates what the items of its one fan_out produced."""

    type: Literal["fan_in"]
    aggregation: Aggregation = Aggregation.COLLECT


class GateNode(Vertex):
    """Waits for a human or a signal."""

    type: Literal["gate"]
    expires_after_seconds: PositiveSeconds | None = None


class WorkflowNode(Vertex):
    """Runs another workflow as a child job."""

    type: Literal["workflow"]
    workflow_id: str
    version: Annotated[int, Field(ge=1)] | None = Field(default=None, description="The default version when left out.")
    inputs: dict[str, Any] = Field(default={}, description="Values or templates.")
    retry: RetrySpec | None = None
    definition_hash: str | None = Field(default=None, description="Pinned by the catalogue, not by the author.")


Node = StartNode | EndNode | TaskNode | ConditionalNode | FanOutNode | FanInNode | GateNode | WorkflowNode
AnyNode = Annotated[Node, Field(discriminator="type")]

NODE_TYPES = frozenset({"start", "end", "task", "conditional", "fan_out", "fan_in", "gate", "workflow"})
