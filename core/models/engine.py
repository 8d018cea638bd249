"""Tables of the engine: jobs, nodes, attempts, results, events, owners and workers."""

from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import Field

from core.models.fan_out import FanOut, FanOutItems
from core.models.table import Column, ForeignKey, Index, Table
from core.statuses import AttemptState, JobStatus, NodeStatus, SkipReason

Json = dict[str, Any]


class WorkflowRow(Table):
    """An immutable workflow definition by content hash."""

    __table_name__: ClassVar[str] = "dag_workflows"
    __primary_key__: ClassVar = ("definition_hash",)
    __indexes__: ClassVar = (Index("id_version", ("workflow_id", "version")),)

    definition_hash: str = Field(description="SHA-256 of the canonical definition.")
    workflow_id: str
    version: int
    definition: Json = Field(description="Canonical form, as `core.dag.definition.Workflow` dumps it.")
    created_at: Annotated[datetime, Column(default="dagapp.clock()")]


class Orchestrator(Table):
    """One boot of an orchestrator instance; owners of jobs are rows here."""

    __table_name__: ClassVar[str] = "dag_orchestrators"
    __primary_key__: ClassVar = ("owner_id",)

    owner_id: str = Field(description="Unique per boot.")
    host: str
    pid: int
    build_id: str
    state: str = Field(description="active | draining | stopped")
    started_at: Annotated[datetime, Column(default="dagapp.clock()")]
    heartbeat_at: Annotated[datetime, Column(default="dagapp.clock()")]


class Worker(Table):
    """One boot of a worker process, upserted by its heartbeats."""

    __table_name__: ClassVar[str] = "dag_workers"
    __primary_key__: ClassVar = ("worker_id",)

    worker_id: str
    queue: str
    host: str
    pid: int
    build_id: str
    state: str = Field(description="active | draining | stopped")
    free: Annotated[Json, Column(default="'{}'::jsonb")] = Field(
        description="Free slots, memory_bytes, scratch_bytes, cores at the last call."
    )
    started_at: Annotated[datetime, Column(default="dagapp.clock()")]
    heartbeat_at: Annotated[datetime, Column(default="dagapp.clock()")]


class Job(Table):
    """One run of a workflow."""

    __table_name__: ClassVar[str] = "dag_jobs"
    __primary_key__: ClassVar = ("job_id",)
    __storage__: ClassVar = "fillfactor=80"
    __foreign_keys__: ClassVar = (ForeignKey(("definition_hash",), "dag_workflows", ("definition_hash",)),)
    __indexes__: ClassVar = (
        Index("owner_wake", ("owner_id", "wake_at"), where="status IN ('PENDING','RUNNING')"),
        Index("unowned", ("created_at",), where="owner_id IS NULL AND status IN ('PENDING','RUNNING')"),
        Index("correlation", ("correlation_id",), where="correlation_id IS NOT NULL"),
        Index("parent", ("parent_task_id",), where="parent_task_id IS NOT NULL"),
        Index("created", ("created_at", "job_id")),
        Index("status", ("status", "created_at", "job_id")),
        Index("workflow_status", ("workflow_id", "status", "created_at", "job_id")),
        Index("history", ("workflow_id", "completed_at"), where="status = 'COMPLETED'"),
    )

    job_id: Annotated[str, Column("varchar(64)")]
    workflow_id: Annotated[str, Column("varchar(64)")]
    workflow_version: int
    definition_hash: str
    status: Annotated[JobStatus, Column(default="'PENDING'")]
    input_params: Json = Field(description="Resolved inputs: defaults applied, types checked.")
    run_no: Annotated[int, Column(default="1")]
    version: Annotated[int, Column("bigint", default="0")] = Field(description="Grows with every advance transaction.")
    owner_id: Annotated[str | None, Column("varchar(64)")] = None
    owner_epoch: Annotated[int, Column("bigint", default="0")] = 0
    priority: Annotated[int, Column("smallint", default="5")] = 5
    paused_at: datetime | None = None
    wake_at: datetime | None = Field(default=None, description="Next timer of this job, NULL when it has none.")
    deadline_at: datetime | None = None
    parent_task_id: str | None = Field(default=None, description="Task of the node that this job is the child of.")
    correlation_id: str | None = Field(default=None, description="The request this job works for.")
    submitted_by: str | None = Field(default=None, description="Subject of the credential that created it.")
    outputs: Json | None = Field(default=None, description="Declared outputs, set when the job completes.")
    error: Json | None = Field(default=None, description="`ErrorDetail` of the root cause when FAILED.")
    warnings: Annotated[list[Any], Column("jsonb", default="'[]'::jsonb")] = Field(default_factory=list)
    evaluation_failures: Annotated[int, Column("smallint", default="0")] = 0
    created_at: Annotated[datetime, Column(default="dagapp.clock()")]
    updated_at: Annotated[datetime, Column(default="dagapp.clock()")]
    started_at: datetime | None = None
    completed_at: datetime | None = None
    input_refs: Json | None = Field(default=None, description="Input name -> `PayloadRef` of values above 64 KiB.")
    depth: Annotated[int, Column("smallint", default="0")] = Field(default=0, description="0 for a job without parent.")
    waiting_for: Json | None = Field(default=None, description="{kind, detail}: why the whole job does not run now.")
    outputs_ref: Json | None = Field(default=None, description="`PayloadRef` of outputs above 64 KiB.")
    slots_above: Annotated[list[str] | None, Column("jsonb")] = Field(
        default=None, description="Keys of the slots that the jobs hold which wait for this one."
    )


class NodeState(Table):
    """The runtime side of one vertex of one job."""

    __table_name__: ClassVar[str] = "dag_node_states"
    __primary_key__: ClassVar = ("job_id", "node_id")
    __storage__: ClassVar = "fillfactor=40"
    __indexes__: ClassVar = (
        Index("child", ("job_id", "parent_node_id", "fan_out_index"), where="parent_node_id IS NOT NULL"),
        Index("child_due", ("job_id", "not_before"), where="parent_node_id IS NOT NULL AND not_before IS NOT NULL"),
        Index("vertex", ("job_id",), where="parent_node_id IS NULL"),
        Index("slotted", ("job_id",), where="parent_node_id IS NOT NULL AND slot_key IS NOT NULL"),
    )

    job_id: Annotated[str, Column("varchar(64)")]
    node_id: Annotated[str, Column("varchar(64)")]
    status: Annotated[NodeStatus, Column(default="'PENDING'")] = NodeStatus.PENDING
    task_id: Annotated[str | None, Column("varchar(160)")] = Field(default=None, description="Of the newest attempt.")
    attempt: Annotated[int, Column(default="0")] = Field(
        default=0, description="Number the next attempt gets; only grows for the life of the job."
    )
    retries_used: Annotated[int, Column(default="0")] = 0
    losses_used: Annotated[int, Column(default="0")] = 0
    not_before: datetime | None = Field(default=None, description="End of the backoff while WAITING.")
    skip_reason: SkipReason | None = None
    waiting_for: Json | None = Field(default=None, description="{kind, detail}: why it does not run now.")
    input_params: Json | None = Field(default=None, description="Rendered params of the newest attempt.")
    params_override: Json | None = None
    output: Json | None = None
    error: Json | None = Field(default=None, description="`ErrorDetail` of the newest failure.")
    parent_node_id: Annotated[str | None, Column("varchar(64)")] = None
    fan_out_index: int | None = None
    ready_at: datetime | None = None
    first_dispatched_at: datetime | None = None
    dispatched_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    input_ref: Json | None = Field(default=None, description="`PayloadRef` of rendered params above 64 KiB.")
    output_ref: Json | None = Field(default=None, description="`PayloadRef` of an output above 64 KiB.")
    outcomes: Annotated[list[Any] | None, Column("jsonb")] = Field(
        default=None, description="Of a child that is a batch: what became of each item."
    )
    slot_key: str | None = Field(default=None, description="Key of the slot that each of its attempts holds.")


class Attempt(Table):
    """One try at one task: the lease lives here, whatever the broker does."""

    __table_name__: ClassVar[str] = "dag_attempts"
    __primary_key__: ClassVar = ("task_id",)
    __storage__: ClassVar = "fillfactor=70"
    __indexes__: ClassVar = (
        Index("live", ("job_id", "node_id"), where="state IN ('queued','parked','leased') AND NOT child"),
        Index("child_live", ("job_id", "node_id"), where="state IN ('queued','parked','leased') AND child"),
        Index("worker", ("worker_id",), where="state = 'leased'"),
        Index("queue_live", ("queue", "state"), where="state IN ('queued','leased')"),
        Index("job", ("job_id",)),
    )

    task_id: Annotated[str, Column("varchar(160)")]
    job_id: Annotated[str, Column("varchar(64)")]
    node_id: Annotated[str, Column("varchar(64)")]
    attempt: int
    dispatch_no: Annotated[int, Column(default="1")] = 1
    state: Annotated[AttemptState, Column(default="'queued'")] = AttemptState.QUEUED
    queue: Annotated[str, Column("varchar(64)")]
    handler: Annotated[str, Column("varchar(64)")]
    priority: Annotated[int, Column("smallint", default="5")] = 5
    params_digest: str = Field(description="SHA-256 of the canonical params; the worker compares it with the message.")
    token_hash: str = Field(description="SHA-256 hex of the token of the newest dispatch.")
    timeout_seconds: Annotated[float, Column("double precision")] = Field(description="Run time of this attempt.")
    queued_at: datetime
    redispatch_at: datetime | None = Field(default=None, description="When a still queued attempt is sent again.")
    claim_id: str | None = Field(default=None, description="Made by the worker per delivery; same claim, same answer.")
    worker_id: str | None = None
    leased_at: datetime | None = None
    lease_expires_at: datetime | None = None
    ended_at: datetime | None = None
    progress: Json | None = None
    peak_rss_bytes: Annotated[int | None, Column("bigint")] = None
    reason: str | None = Field(default=None, description="Why it was expired, released or revoked.")
    heartbeat_timeout_seconds: Annotated[float | None, Column("double precision")] = Field(
        default=None, description="Length of its lease, when not the usual one."
    )
    child: Annotated[bool, Column(default="false")] = Field(default=False, description="Of a child of a fan-out.")
    outcomes: Annotated[list[Any] | None, Column("jsonb")] = Field(
        default=None, description="Of a batch: what its worker said of single items in heartbeats."
    )
    queue_expires_at: datetime | None = Field(default=None, description="When to look whether it is given up.")
    no_fit: str | None = Field(default=None, description="What the newest worker that had no room for it lacked.")


class TaskResultRow(Table):
    """Inbox of what workers reported; `processed` with a disposition once an advance consumed it."""

    __table_name__: ClassVar[str] = "dag_task_results"
    __primary_key__: ClassVar = ("task_id",)
    __indexes__: ClassVar = (Index("inbox", ("job_id",), where="NOT processed"),)

    task_id: Annotated[str, Column("varchar(160)")]
    job_id: Annotated[str, Column("varchar(64)")]
    node_id: Annotated[str, Column("varchar(64)")]
    attempt: int
    status: str = Field(description="completed | failed | released")
    output: Json | None = None
    error: Json | None = Field(default=None, description="`ErrorDetail` when failed.")
    findings: Annotated[list[Any], Column("jsonb", default="'[]'::jsonb")] = Field(default_factory=list)
    metrics: Annotated[Json, Column(default="'{}'::jsonb")] = Field(default_factory=dict)
    worker_id: str | None = None
    reported_at: Annotated[datetime, Column(default="dagapp.clock()")]
    processed: Annotated[bool, Column(default="false")] = False
    disposition: str | None = Field(default=None, description="applied | superseded | poison")
    output_ref: Json | None = Field(default=None, description="`PayloadRef` of an output above 64 KiB.")
    outcomes: Annotated[list[Any] | None, Column("jsonb")] = Field(default=None, description="Per item of a batch.")


class JobEvent(Table):
    """One transition, append-only, monthly partitions."""

    __table_name__: ClassVar[str] = "dag_job_events"
    __primary_key__: ClassVar = ("event_id", "created_at")
    __partition_by__: ClassVar = "RANGE (created_at)"
    __indexes__: ClassVar = (Index("job", ("job_id", "event_id")),)

    event_id: Annotated[int, Column("bigint", identity=True)]
    job_id: Annotated[str, Column("varchar(64)")]
    node_id: Annotated[str | None, Column("varchar(64)")] = None
    task_id: Annotated[str | None, Column("varchar(160)")] = None
    event_type: Annotated[str, Column("varchar(64)")]
    event_status: str | None = Field(default=None, description="The status after the event.")
    event_data: Annotated[Json, Column(default="'{}'::jsonb")] = Field(default_factory=dict)
    checkpoint_name: str | None = None
    created_at: Annotated[datetime, Column(default="dagapp.clock()")]


class Checkpoint(Table):
    """Newest saved state of one node's work; belongs to (job, node) and to a hash of its params."""

    __table_name__: ClassVar[str] = "dag_checkpoints"
    __primary_key__: ClassVar = ("job_id", "node_id")
    __foreign_keys__: ClassVar = (ForeignKey(("job_id",), "dag_jobs", ("job_id",), on_delete="CASCADE"),)

    job_id: Annotated[str, Column("varchar(64)")]
    node_id: Annotated[str, Column("varchar(64)")]
    params_digest: str
    phase: str
    state: Json
    saved_by: Annotated[str, Column("varchar(160)")] = Field(description="Task id of the attempt that saved it.")
    saved_at: Annotated[datetime, Column(default="dagapp.clock()")]


class Command(Table):
    """A wish that travels from one job to another, or to a job that somebody held; consumed by its next advance."""

    __table_name__: ClassVar[str] = "dag_commands"
    __primary_key__: ClassVar = ("command_id",)
    __foreign_keys__: ClassVar = (ForeignKey(("job_id",), "dag_jobs", ("job_id",), on_delete="CASCADE"),)
    __indexes__: ClassVar = (
        Index("inbox", ("job_id",), where="processed_at IS NULL"),
        Index("job", ("job_id",)),
    )

    command_id: Annotated[int, Column("bigint", identity=True)]
    job_id: Annotated[str, Column("varchar(64)")]
    kind: Annotated[str, Column("varchar(32)")] = Field(description="cancel | pause | resume | priority | …")
    args: Annotated[Json, Column(default="'{}'::jsonb")] = Field(default_factory=dict)
    actor: str
    reason: str | None = None
    created_at: Annotated[datetime, Column(default="dagapp.clock()")]
    processed_at: datetime | None = None
    outcome: str | None = Field(default=None, description="applied, or the code of the error.")


class Limit(Table):
    """How many may hold one key; its row lock orders grants."""

    __table_name__: ClassVar[str] = "dag_limits"
    __primary_key__: ClassVar = ("slot_key",)

    slot_key: str
    limit_count: int
    updated_at: Annotated[datetime, Column(default="dagapp.clock()")]
    set_by: str | None = Field(default=None, description="Who set it by hand; else it is what workflows say.")
    asked_count: int | None = Field(default=None, description="What the newest request asked for.")


class Slot(Table):
    """One holder of a key, or one that waits for it."""

    __table_name__: ClassVar[str] = "dag_slots"
    __primary_key__: ClassVar = ("slot_key", "holder")
    __foreign_keys__: ClassVar = (ForeignKey(("job_id",), "dag_jobs", ("job_id",), on_delete="CASCADE"),)
    __indexes__: ClassVar = (
        Index("waiting", ("slot_key", "priority", "requested_at"), where="granted_at IS NULL"),
        Index("granted", ("slot_key",), where="granted_at IS NOT NULL"),
        Index("unnoticed", ("job_id",), where="granted_at IS NOT NULL AND NOT noticed"),
        Index("holder", ("holder",)),
        Index("job", ("job_id",)),
    )

    slot_key: str
    holder: Annotated[str, Column("varchar(160)")] = Field(description="A job id, or a task id of one of its attempts.")
    job_id: Annotated[str, Column("varchar(64)")]
    node_id: Annotated[str | None, Column("varchar(64)")] = None
    priority: Annotated[int, Column("smallint", default="5")] = 5
    requested_at: datetime
    granted_at: datetime | None = None
    noticed: Annotated[bool, Column(default="false")] = Field(default=False, description="Its job acted on the grant.")


class DeadLetter(Table):
    """A message that nobody could use, and what became of it."""

    __table_name__: ClassVar[str] = "dag_dead_letters"
    __primary_key__: ClassVar = ("dead_letter_id",)
    __indexes__: ClassVar = (
        Index("open", ("dead_at",), where="resolved_at IS NULL"),
        Index("message", ("message_id",)),
    )

    dead_letter_id: Annotated[int, Column("bigint", identity=True)]
    message_id: str
    queue: Annotated[str, Column("varchar(64)")]
    task_id: Annotated[str | None, Column("varchar(160)")] = None
    job_id: Annotated[str | None, Column("varchar(64)")] = None
    body: Annotated[Any, Column("jsonb")] = Field(description="As received, without its token.")
    reason: str
    classification: str = Field(description="One of `core.dead_letters.Kind`.")
    delivery_count: Annotated[int, Column(default="0")] = 0
    dead_at: datetime
    resolved_at: datetime | None = None
    resolution: str | None = Field(default=None, description="replayed | attempt_over | discarded")
    resolved_by: str | None = None


class Setting(Table):
    """Switches read by every instance, for example `pause:all`."""

    __table_name__: ClassVar[str] = "dag_settings"
    __primary_key__: ClassVar = ("key",)

    key: str
    value: Annotated[Any, Column("jsonb")]
    updated_by: str
    updated_at: Annotated[datetime, Column(default="dagapp.clock()")]


ENGINE_TABLES: tuple[type[Table], ...] = (
    WorkflowRow,
    Orchestrator,
    Worker,
    Job,
    NodeState,
    Attempt,
    TaskResultRow,
    JobEvent,
    Checkpoint,
    FanOut,
    FanOutItems,
    Command,
    Limit,
    Slot,
    DeadLetter,
    Setting,
)
