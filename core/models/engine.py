"""Tables of the engine: jobs, nodes, attempts, results, events, owners and workers."""

from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import Field

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
        Index("created", ("created_at",)),
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
    parent_task_id: str | None = None
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


class NodeState(Table):
    """The runtime side of one vertex of one job."""

    __table_name__: ClassVar[str] = "dag_node_states"
    __primary_key__: ClassVar = ("job_id", "node_id")
    __storage__: ClassVar = "fillfactor=70"
    __foreign_keys__: ClassVar = (ForeignKey(("job_id",), "dag_jobs", ("job_id",), on_delete="CASCADE"),)

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


class Attempt(Table):
    """One try at one task: the lease lives here, whatever the broker does."""

    __table_name__: ClassVar[str] = "dag_attempts"
    __primary_key__: ClassVar = ("task_id",)
    __storage__: ClassVar = "fillfactor=70"
    __foreign_keys__: ClassVar = (ForeignKey(("job_id",), "dag_jobs", ("job_id",), on_delete="CASCADE"),)
    __indexes__: ClassVar = (
        Index("live", ("job_id", "node_id"), where="state IN ('queued','parked','leased')"),
        Index("worker", ("worker_id",), where="state = 'leased'"),
        Index("queue_live", ("queue", "state"), where="state IN ('queued','leased')"),
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
    Setting,
)
