"""What partners asked for, and which jobs work for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row, scalar_row
from psycopg.types.json import Jsonb
from pydantic.dataclasses import dataclass as checked

from core.models.business import RequestState
from core.status_view import RequestFacts
from core.statuses import JobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRequest:
    """A request about to be stored."""

    request_id: str
    platform_id: str
    asset_id: str
    version_ordinal: int
    revision: int
    idempotency_key: str | None
    body_hash: str
    body: Mapping[str, Any]
    submitted_by: str
    warnings: Sequence[Mapping[str, Any]] = ()
    operation: Mapping[str, Any] | None = None
    inputs: Mapping[str, Any] | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)


@checked(frozen=True, slots=True, kw_only=True)
class KnownRequest:
    """What an idempotency key was used for before."""

    request_id: str
    asset_id: str
    version_ordinal: int
    revision: int
    body_hash: str


@checked(frozen=True, slots=True, kw_only=True)
class WorkingRequest:
    """A request whose job has ended, locked."""

    request_id: str
    operation: dict[str, Any] | None
    inputs: dict[str, Any] | None
    submitted_by: str
    priority: int | None


@checked(frozen=True, slots=True, kw_only=True)
class LinkedJob:
    """One job that works for a request."""

    job_id: str
    name: str
    stage: int
    status: JobStatus
    outputs: dict[str, Any] | None
    error: dict[str, Any] | None
    warnings: Sequence[Any]


@checked(frozen=True, slots=True, kw_only=True)
class StoredRequest:
    """A request as it was asked for, and its state."""

    request_id: str
    platform_id: str
    asset_id: str
    version_ordinal: int
    revision: int
    state: RequestState
    body: dict[str, Any]


class RequestRepository:
    """SQL on `platform_requests` and `platform_request_jobs`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection) -> None:
        self._conn = conn

    async def lock_key(self, platform_id: str, key: str) -> None:
        """Let submits of one platform under one idempotency key pass one at a time, until the transaction ends."""
        await self._conn.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"submit|{platform_id}|{key}",)
        )

    async def by_key(self, platform_id: str, key: str) -> KnownRequest | None:
        """Return what an idempotency key of a platform stands for."""
        async with self._conn.cursor(row_factory=class_row(KnownRequest)) as cursor:
            await cursor.execute(
                """
                SELECT request_id, asset_id, version_ordinal, revision, body_hash
                FROM dagapp.platform_requests
                WHERE platform_id = %s AND idempotency_key = %s
                """,
                (platform_id, key),
            )
            return await cursor.fetchone()

    async def insert(self, request: NewRequest) -> None:
        """Store a request, queued."""
        await self._conn.execute(
            """
            INSERT INTO dagapp.platform_requests
                (request_id, platform_id, asset_id, version_ordinal, revision, state, idempotency_key, body_hash, body,
                 submitted_by, warnings, operation, inputs, progress, created_at, updated_at)
            VALUES (%s, %s, %s, %s, %s, 'queued', %s, %s, %s, %s, %s, %s, %s, %s, dagapp.clock(), dagapp.clock())
            """,
            (
                request.request_id,
                request.platform_id,
                request.asset_id,
                request.version_ordinal,
                request.revision,
                request.idempotency_key,
                request.body_hash,
                Jsonb(dict(request.body)),
                request.submitted_by,
                Jsonb([dict(w) for w in request.warnings]),
                None if request.operation is None else Jsonb(dict(request.operation)),
                None if request.inputs is None else Jsonb(dict(request.inputs)),
                Jsonb(dict(request.progress)),
            ),
        )

    async def link_job(
        self, request_id: str, job_id: str, job_type: str, *, stage: int = 1, name: str | None = None
    ) -> None:
        """Record that a job works for a request; the request is locked, or not there for others yet."""
        await self._conn.execute(
            """
            INSERT INTO dagapp.platform_request_jobs
                (request_id, job_id, job_type, sequence, stage, job_name, created_at)
            SELECT %s, %s, %s, count(*) + 1, %s, %s, dagapp.clock()
            FROM dagapp.platform_request_jobs
            WHERE request_id = %s
            """,
            (request_id, job_id, job_type, stage, name, request_id),
        )

    async def request_of_job(self, job_id: str) -> str | None:
        """Return the request a job works for, locked."""
        found = await self.working_request(job_id)
        return None if found is None else found.request_id

    async def working_request(self, job_id: str) -> WorkingRequest | None:
        """Return the request a job works for, locked: of jobs that end together, one looks after the other."""
        async with self._conn.cursor(row_factory=class_row(WorkingRequest)) as cursor:
            await cursor.execute(
                """
                SELECT request_id, operation, inputs, submitted_by, (body ->> 'priority')::integer AS priority
                FROM dagapp.platform_requests
                WHERE request_id = ANY(ARRAY(SELECT request_id FROM dagapp.platform_request_jobs WHERE job_id = %s))
                FOR UPDATE
                """,
                (job_id,),
            )
            return await cursor.fetchone()

    async def jobs_of(self, request_id: str) -> list[LinkedJob]:
        """Return every job that works for a request, in their order."""
        async with self._conn.cursor(row_factory=class_row(LinkedJob)) as cursor:
            await cursor.execute(
                """
                SELECT r.job_id, coalesce(r.job_name, r.job_type) AS name, r.stage, j.status, j.outputs, j.error,
                       j.warnings
                FROM dagapp.platform_request_jobs AS r JOIN dagapp.dag_jobs AS j USING (job_id)
                WHERE r.request_id = %s
                ORDER BY r.sequence
                """,
                (request_id,),
            )
            return await cursor.fetchall()

    async def store_progress(self, request_id: str, progress: Mapping[str, Any]) -> None:
        """Write how far an operation is."""
        await self._conn.execute(
            "UPDATE dagapp.platform_requests SET progress = %s, updated_at = dagapp.clock() WHERE request_id = %s",
            (Jsonb(dict(progress)), request_id),
        )

    async def stored(self, request_id: str) -> StoredRequest | None:
        """Return a request with its body."""
        async with self._conn.cursor(row_factory=class_row(StoredRequest)) as cursor:
            await cursor.execute(
                """
                SELECT request_id, platform_id, asset_id, version_ordinal, revision, state, body
                FROM dagapp.platform_requests
                WHERE request_id = %s
                """,
                (request_id,),
            )
            return await cursor.fetchone()

    async def open_jobs(self, request_id: str) -> list[str]:
        """Return the jobs that work for a request and have not ended, in their order."""
        async with self._conn.cursor(row_factory=scalar_row) as cursor:
            await cursor.execute(
                """
                SELECT r.job_id
                FROM dagapp.platform_request_jobs AS r JOIN dagapp.dag_jobs AS j USING (job_id)
                WHERE r.request_id = %s AND j.status IN ('PENDING', 'RUNNING')
                ORDER BY r.sequence
                """,
                (request_id,),
            )
            return await cursor.fetchall()

    async def end(self, request_id: str, state: RequestState, errors: Sequence[Any], warnings: Sequence[Any]) -> None:
        """Write how a request ended; warnings known since the submit stay."""
        await self._conn.execute(
            """
            UPDATE dagapp.platform_requests
            SET state = %s, errors = %s, warnings = warnings || %s, updated_at = dagapp.clock()
            WHERE request_id = %s
            """,
            (str(state), Jsonb(list(errors)), Jsonb(list(warnings)), request_id),
        )

    async def restart(self, request_id: str) -> None:
        """Let a request that had ended wait for its job again."""
        await self._conn.execute(
            """
            UPDATE dagapp.platform_requests SET state = 'queued', errors = '[]'::jsonb, updated_at = dagapp.clock()
            WHERE request_id = %s
            """,
            (request_id,),
        )

    async def facts(self, request_id: str) -> RequestFacts | None:
        """Return a request with its version and asset; the same columns as the gateway's view."""
        async with self._conn.cursor(row_factory=class_row(RequestFacts)) as cursor:
            await cursor.execute(
                """
                SELECT r.request_id, r.platform_id, r.asset_id, r.version_ordinal, r.revision,
                       CASE WHEN r.state = 'queued' AND p.started THEN 'processing' ELSE r.state END AS state,
                       r.progress || jsonb_build_object('current', p.ended, 'total', p.total) AS progress,
                       r.errors, r.warnings, v.processing_state,
                       CASE WHEN v.revision = r.revision THEN v.approval_state END AS review,
                       CASE WHEN v.revision = r.revision THEN v.rejection_reason END AS reason,
                       v.submitted_by, a.clearance_state, a.exposure, a.latest_approved_version_ordinal,
                       (a.deleted_at IS NOT NULL OR v.deleted_at IS NOT NULL) AS deleted, r.created_at,
                       greatest(r.updated_at, v.updated_at, a.updated_at) AS updated_at
                FROM dagapp.platform_requests AS r
                JOIN dagapp.geospatial_assets AS a ON a.asset_id = r.asset_id
                JOIN dagapp.asset_versions AS v
                  ON v.asset_id = r.asset_id AND v.version_ordinal = r.version_ordinal
                CROSS JOIN LATERAL (
                    SELECT count(*) AS total,
                           count(*) FILTER (WHERE n.status IN ('COMPLETED', 'SKIPPED')) AS ended,
                           coalesce(bool_or(n.started_at IS NOT NULL AND n.task_id IS NOT NULL), false) AS started
                    FROM dagapp.platform_request_jobs AS j
                    JOIN dagapp.dag_node_states AS n ON n.job_id = j.job_id
                    WHERE j.request_id = r.request_id
                ) AS p
                WHERE r.request_id = %s
                """,
                (request_id,),
            )
            return await cursor.fetchone()
