"""Tables of the business domain: platforms, requests, assets, versions, audit."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from core.models.table import Column, ForeignKey, Index, Table

Json = dict[str, Any]


class RequestState(StrEnum):
    """What a partner sees of a request."""

    ACCEPTED = "accepted"
    QUEUED = "queued"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Clearance(StrEnum):
    """Security class of a whole asset."""

    UNCLEARED = "uncleared"
    OUO = "ouo"
    PUBLIC = "public"


class ApprovalState(StrEnum):
    """Where the review of one version stands."""

    PENDING_REVIEW = "pending_review"
    APPROVED = "approved"
    REJECTED = "rejected"
    REVOKED = "revoked"


class ProcessingState(StrEnum):
    """Where the processing of one version's current revision stands."""

    QUEUED = "queued"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Exposure(StrEnum):
    """Which approved versions have live URLs."""

    LATEST_ONLY = "latest_only"
    ALL_VERSIONS = "all_versions"


class Platform(Table):
    """A registered B2B application and what it may name."""

    __table_name__: ClassVar[str] = "platforms"
    __primary_key__: ClassVar = ("platform_id",)

    platform_id: Annotated[str, Column("varchar(64)")]
    display_name: str
    required_refs: Annotated[list[str], Column("jsonb")] = Field(description="Names that form an asset's identity.")
    optional_refs: Annotated[list[str], Column("jsonb", default="'[]'::jsonb")] = Field(default_factory=list)
    version_ref: str = Field(description="The ref that is the version, e.g. version_id.")
    allowed_sources: Annotated[list[Json], Column("jsonb", default="'[]'::jsonb")] = Field(
        default_factory=list, description="[{container, prefix}] or [{url_prefix}]"
    )
    allowed_workflows: Annotated[list[str], Column("jsonb", default="'[]'::jsonb")] = Field(default_factory=list)
    collection_prefix: str
    is_active: Annotated[bool, Column(default="true")] = True
    created_at: Annotated[datetime, Column(default="dagapp.clock()")]
    webhook_url: str | None = Field(default=None, description="Where the platform is told, unless a submit says else.")
    review_days: Annotated[int, Column(default="14")] = Field(
        default=14, description="Days a processed version may wait for its review before it is overdue."
    )
    requests_per_minute: Annotated[int, Column(default="600")] = Field(
        default=600, description="Mutating calls a minute, in the long run."
    )
    request_burst: Annotated[int, Column(default="200")] = Field(default=200, description="Mutating calls at once.")
    max_open_requests: Annotated[int, Column(default="1000")] = Field(
        default=1000, description="Requests that may be under way at a time."
    )


class PlatformUsage(Table):
    """Until when a platform's calls so far occupy it, at its rate."""

    __table_name__: ClassVar[str] = "platform_usage"
    __primary_key__: ClassVar = ("platform_id",)
    __foreign_keys__: ClassVar = (ForeignKey(("platform_id",), "platforms", ("platform_id",)),)
    __storage__: ClassVar[str] = "fillfactor=50"

    platform_id: Annotated[str, Column("varchar(64)")]
    busy_until: datetime


class GeospatialAsset(Table):
    """Aggregate root: one dataset, all its versions, one clearance."""

    __table_name__: ClassVar[str] = "geospatial_assets"
    __primary_key__: ClassVar = ("asset_id",)
    __foreign_keys__: ClassVar = (ForeignKey(("platform_id",), "platforms", ("platform_id",)),)
    __indexes__: ClassVar = (
        Index("refs", ("platform_refs",), using="gin"),
        Index("platform", ("platform_id", "created_at", "asset_id")),
        Index("created", ("created_at", "asset_id")),
    )

    asset_id: Annotated[str, Column("varchar(32)")]
    platform_id: Annotated[str, Column("varchar(64)")]
    platform_refs: Json = Field(description="Identity refs only; immutable.")
    data_type: str = Field(description="raster | vector")
    clearance_state: Annotated[Clearance, Column(default="'uncleared'")] = Clearance.UNCLEARED
    exposure: Annotated[Exposure, Column(default="'latest_only'")] = Exposure.LATEST_ONLY
    cleared_at: datetime | None = None
    cleared_by: str | None = None
    made_public_at: datetime | None = None
    made_public_by: str | None = None
    latest_approved_version_ordinal: int | None = None
    deleted_at: datetime | None = None
    deleted_by: str | None = None
    created_at: Annotated[datetime, Column(default="dagapp.clock()")]
    updated_at: Annotated[datetime, Column(default="dagapp.clock()")]


class AssetVersion(Table):
    """One content update of an asset, reviewed on its own."""

    __table_name__: ClassVar[str] = "asset_versions"
    __primary_key__: ClassVar = ("asset_id", "version_ordinal")
    __foreign_keys__: ClassVar = (ForeignKey(("asset_id",), "geospatial_assets", ("asset_id",)),)
    __indexes__: ClassVar = (
        Index("label", ("asset_id", "version_label"), unique=True, where="deleted_at IS NULL"),
        Index("job", ("current_job_id",)),
        Index("review", ("approval_state", "created_at")),
        Index(
            "inbox",
            ("approval_state", "processed_at", "asset_id", "version_ordinal"),
            where="processed_at IS NOT NULL AND deleted_at IS NULL",
        ),
        Index("collection", ("stac_collection_id",), where="stac_collection_id IS NOT NULL"),
    )

    asset_id: Annotated[str, Column("varchar(32)")]
    version_ordinal: int = Field(description="0, 1, 2 … under the asset's lock.")
    version_label: str = Field(description="The partner's own name; opaque.")
    revision: Annotated[int, Column(default="1")] = 1
    title: str
    description: str | None = None
    tags: Annotated[list[str], Column("jsonb", default="'[]'::jsonb")] = Field(default_factory=list)
    access_level: str = Field(description="The submitter's wish: ouo | public.")
    approval_state: Annotated[ApprovalState, Column(default="'pending_review'")] = ApprovalState.PENDING_REVIEW
    processing_state: Annotated[ProcessingState, Column(default="'queued'")] = ProcessingState.QUEUED
    submitted_by: str
    reviewer: str | None = None
    reviewed_at: datetime | None = None
    rejection_reason: str | None = None
    current_job_id: Annotated[str | None, Column("varchar(64)")] = None
    current_request_id: Annotated[str | None, Column("varchar(64)")] = None
    source: Json = Field(description="{container_name, blob_name, size_bytes, etag}, or {url} without its query")
    content_hash: str | None = Field(default=None, description="SHA-256 of the source, once read.")
    blob_path: str | None = Field(default=None, description="container/name of the COG.")
    blob_sha256: str | None = None
    blob_size_bytes: Annotated[int | None, Column("bigint")] = None
    table_name: str | None = None
    stac_item_id: str | None = None
    stac_collection_id: str | None = None
    stac_item: Json | None = Field(default=None, description="The document the approval writes to pgstac.")
    render: Json | None = Field(default=None, description="Default rendering: bidx, rescale, colormap.")
    report: Json | None = Field(default=None, description="Validation report.")
    findings: Annotated[list[Any], Column("jsonb", default="'[]'::jsonb")] = Field(default_factory=list)
    error: Json | None = None
    external_blob_path: str | None = None
    adf_run_id: str | None = None
    deleted_at: datetime | None = None
    deleted_by: str | None = None
    created_at: Annotated[datetime, Column(default="dagapp.clock()")]
    updated_at: Annotated[datetime, Column(default="dagapp.clock()")]
    processed_at: datetime | None = Field(default=None, description="When its newest revision was finished.")
    review_due_at: datetime | None = Field(default=None, description="When its review is overdue.")
    reminded_at: datetime | None = Field(default=None, description="When reviewers were last reminded of it.")
    tiles_path: str | None = Field(
        default=None, description="container/name of the list of tiles; `blob_path` is their overview then."
    )
    purged_at: datetime | None = Field(
        default=None, description="When what it was made of was given up, long after its deletion; the row stays."
    )


class VersionComment(Table):
    """What somebody said about a version; append-only."""

    __table_name__: ClassVar[str] = "version_comments"
    __primary_key__: ClassVar = ("comment_id",)
    __foreign_keys__: ClassVar = (
        ForeignKey(("asset_id", "version_ordinal"), "asset_versions", ("asset_id", "version_ordinal")),
    )
    __indexes__: ClassVar = (Index("version", ("asset_id", "version_ordinal", "comment_id")),)

    comment_id: Annotated[int, Column("bigint", identity=True)]
    asset_id: Annotated[str, Column("varchar(32)")]
    version_ordinal: int
    revision: int
    author: str
    author_role: str
    text: str
    created_at: Annotated[datetime, Column(default="dagapp.clock()")]


class PlatformRequest(Table):
    """What a partner asked for; the only id a partner ever sees besides the asset's."""

    __table_name__: ClassVar[str] = "platform_requests"
    __primary_key__: ClassVar = ("request_id",)
    __foreign_keys__: ClassVar = (
        ForeignKey(("platform_id",), "platforms", ("platform_id",)),
        ForeignKey(("asset_id", "version_ordinal"), "asset_versions", ("asset_id", "version_ordinal")),
    )
    __indexes__: ClassVar = (
        Index("idempotency", ("platform_id", "idempotency_key"), unique=True, where="idempotency_key IS NOT NULL"),
        Index("platform", ("platform_id", "created_at")),
        Index("asset", ("asset_id", "version_ordinal")),
        Index("created", ("created_at", "request_id")),
        Index("open", ("platform_id", "created_at"), where="state = 'queued'"),
    )

    request_id: Annotated[str, Column("varchar(64)")]
    platform_id: Annotated[str, Column("varchar(64)")]
    asset_id: Annotated[str, Column("varchar(32)")]
    version_ordinal: int
    revision: int
    state: Annotated[RequestState, Column(default="'accepted'")] = RequestState.ACCEPTED
    idempotency_key: str | None = None
    body_hash: str = Field(description="SHA-256 of the canonical body; another body under the same key is a conflict.")
    body: Json = Field(description="The submit as received, without secrets.")
    submitted_by: str
    progress: Annotated[Json, Column(default="'{}'::jsonb")] = Field(default_factory=dict)
    errors: Annotated[list[Any], Column("jsonb", default="'[]'::jsonb")] = Field(default_factory=list)
    warnings: Annotated[list[Any], Column("jsonb", default="'[]'::jsonb")] = Field(default_factory=list)
    created_at: Annotated[datetime, Column(default="dagapp.clock()")]
    updated_at: Annotated[datetime, Column(default="dagapp.clock()")]
    operation: Json | None = Field(default=None, description="The operation as it was when it began; None: one job.")
    inputs: Json | None = Field(default=None, description="What the operation's templates see as `request`.")


class PlatformRequestJob(Table):
    """Which jobs work for a request, in order."""

    __table_name__: ClassVar[str] = "platform_request_jobs"
    __primary_key__: ClassVar = ("request_id", "job_id")
    __foreign_keys__: ClassVar = (
        ForeignKey(("request_id",), "platform_requests", ("request_id",)),
        ForeignKey(("job_id",), "dag_jobs", ("job_id",)),
    )
    __indexes__: ClassVar = (Index("job", ("job_id",)),)

    request_id: Annotated[str, Column("varchar(64)")]
    job_id: Annotated[str, Column("varchar(64)")]
    job_type: str
    sequence: Annotated[int, Column(default="1")] = 1
    created_at: Annotated[datetime, Column(default="dagapp.clock()")]
    stage: Annotated[int, Column("smallint", default="1")] = 1
    job_name: str | None = Field(default=None, description="The job's name in its operation.")


class AuditEntry(Table):
    """Who did what, when, why, from what to what: to an asset, or to a platform; append-only."""

    __table_name__: ClassVar[str] = "asset_audit"
    __primary_key__: ClassVar = ("audit_id",)
    __indexes__: ClassVar = (
        Index("asset", ("asset_id", "audit_id")),
        Index("actor", ("actor", "audit_id")),
        Index("action", ("action", "audit_id")),
        Index("request", ("request_id", "audit_id")),
        Index("time", ("created_at",)),
    )

    audit_id: Annotated[int, Column("bigint", identity=True)]
    asset_id: Annotated[str | None, Column("varchar(32)")] = Field(
        default=None, description="None when it concerns a platform as a whole."
    )
    version_ordinal: int | None = None
    action: str = Field(description="submitted | resubmitted | processed | approved | rejected | cleared | …")
    actor: str
    actor_role: str
    reason: str | None = None
    before: Json | None = None
    after: Json | None = None
    request_id: str | None = None
    created_at: Annotated[datetime, Column(default="dagapp.clock()")]
    platform_id: Annotated[str | None, Column("varchar(64)")] = None


class WebhookSecret(Table):
    """A signing secret of a platform, sealed; two are valid while one replaces the other."""

    __table_name__: ClassVar[str] = "webhook_secrets"
    __primary_key__: ClassVar = ("platform_id", "secret_id")
    __foreign_keys__: ClassVar = (ForeignKey(("platform_id",), "platforms", ("platform_id",)),)

    platform_id: Annotated[str, Column("varchar(64)")]
    secret_id: Annotated[str, Column("varchar(32)")]
    sealed: Annotated[str, Column("text")] = Field(description="Base64 of the sealed secret.", repr=False)
    created_by: str
    created_at: Annotated[datetime, Column(default="dagapp.clock()")]
    expires_at: datetime | None = None


class RequestSecret(Table):
    """The credential of a job's source, sealed; it goes with the end of the job."""

    __table_name__: ClassVar[str] = "request_secrets"
    __primary_key__: ClassVar = ("job_id",)
    __foreign_keys__: ClassVar = (ForeignKey(("job_id",), "dag_jobs", ("job_id",), on_delete="CASCADE"),)

    job_id: Annotated[str, Column("varchar(64)")]
    sealed: Annotated[str, Column("text")] = Field(description="Base64 of the sealed query of the URL.", repr=False)
    created_at: Annotated[datetime, Column(default="dagapp.clock()")]


class SubmitBatch(Table):
    """What a batch of submits was answered under its idempotency key."""

    __table_name__: ClassVar[str] = "submit_batches"
    __primary_key__: ClassVar = ("platform_id", "idempotency_key")

    platform_id: Annotated[str, Column("varchar(64)")]
    idempotency_key: Annotated[str, Column("varchar(255)")]
    body_hash: str = Field(description="Of the submits; another body under the same key is a conflict.")
    results: Annotated[Json, Column(default="'{}'::jsonb")] = Field(
        default_factory=dict, description="Those that are settled, by index."
    )
    created_at: Annotated[datetime, Column(default="dagapp.clock()")]


class WebhookDelivery(Table):
    """One thing that a platform is told, and how that went."""

    __table_name__: ClassVar[str] = "webhook_deliveries"
    __primary_key__: ClassVar = ("delivery_id",)
    __foreign_keys__: ClassVar = (ForeignKey(("request_id",), "platform_requests", ("request_id",)),)
    __indexes__: ClassVar = (
        Index("due", ("next_attempt_at",), where="state = 'pending'"),
        Index("platform", ("platform_id", "created_at")),
    )

    delivery_id: Annotated[str, Column("varchar(64)")] = Field(description="`webhook-id`, the same in every attempt.")
    platform_id: Annotated[str, Column("varchar(64)")]
    request_id: Annotated[str, Column("varchar(64)")]
    asset_id: Annotated[str, Column("varchar(32)")]
    version_ordinal: int
    url: str
    type: str
    request_state: str = Field(description="State of the request when it happened.")
    review: str | None = Field(default=None, description="State of the review when it happened.")
    state: Annotated[str, Column(default="'pending'")] = Field(description="pending | delivered | expired")
    attempts: Annotated[int, Column(default="0")] = 0
    next_attempt_at: Annotated[datetime, Column(default="dagapp.clock()")]
    last_status: int | None = None
    last_error: str | None = None
    created_at: Annotated[datetime, Column(default="dagapp.clock()")]
    delivered_at: datetime | None = None
    expires_at: datetime


BUSINESS_TABLES: tuple[type[Table], ...] = (
    Platform,
    PlatformUsage,
    GeospatialAsset,
    AssetVersion,
    VersionComment,
    PlatformRequest,
    PlatformRequestJob,
    AuditEntry,
    WebhookSecret,
    WebhookDelivery,
    RequestSecret,
    SubmitBatch,
)
