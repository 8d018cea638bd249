"""Jobs: rows that are locked first, and who owns them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, LiteralString

from psycopg import AsyncConnection
from psycopg.rows import class_row, scalar_row

from core.job_filter import JobBrief, JobFilter
from core.models.engine import Job
from core.statuses import JobStatus
from repositories.documents import Pending, row_of, send

Place = tuple[datetime | None, str]
"""When a job was created and its id, in that order: behind it come older ones."""
TOP: Final[Place] = (None, "")


@dataclass(frozen=True, slots=True)
class DueJob:
    """A job that its owner should look at, with the epoch under which it was found."""

    job_id: str
    owner_epoch: int


class JobRepository:
    """SQL on `dag_jobs`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def lock(self, job_ids: Iterable[str]) -> Pending[Job]:
        """Lock and return those of the jobs that nobody else holds, in id order; never waits.

        Not FOR UPDATE: foreign keys lock the row FOR KEY SHARE (a checkpoint's with its attempt in hand), and neither
        side may wait for, or pass over, the other.
        """
        return await send(
            self._conn,
            row_of(Job),
            """
            SELECT job_id, workflow_id, workflow_version, definition_hash, status, input_params, run_no, version,
                owner_id, owner_epoch, priority, paused_at, wake_at, deadline_at, parent_task_id, correlation_id,
                submitted_by, outputs, error, warnings, evaluation_failures, created_at, updated_at, started_at,
                completed_at, input_refs, depth, waiting_for, outputs_ref, slots_above
            FROM dagapp.dag_jobs WHERE job_id = ANY(%s) ORDER BY job_id FOR NO KEY UPDATE SKIP LOCKED
            """,
            (list(job_ids),),
        )

    async def wait_for_lock(self, job_id: str, seconds: float) -> bool:
        """Lock a job, waiting for whoever holds it; return whether there is such a job.

        Statements that follow in the transaction wait no longer than this for any lock. Raises `LockNotAvailable`.
        """
        await self._conn.execute("SELECT set_config('lock_timeout', %s, true)", (f"{int(seconds * 1000)}ms",))
        held = await send(
            self._conn,
            scalar_row,
            "SELECT job_id FROM dagapp.dag_jobs WHERE job_id = %s FOR NO KEY UPDATE",
            (job_id,),
        )
        return bool(await held.rows())

    async def matching(
        self, wanted: JobFilter, statuses: Iterable[JobStatus], limit: int, *, children: bool = True
    ) -> Sequence[JobBrief]:
        """Return jobs that a filter means, in one of these statuses, oldest first; without `children` no child jobs."""
        async with self._conn.cursor(row_factory=class_row(JobBrief)) as cursor:
            await cursor.execute(
                """
                SELECT j.job_id, j.workflow_id, j.status, j.run_no, j.created_at
                FROM unnest(%(statuses)s::text[]) AS wanted(status) CROSS JOIN LATERAL (
                    SELECT job_id, workflow_id, status, run_no, created_at FROM dagapp.dag_jobs
                    WHERE status = wanted.status AND (%(children)s OR parent_task_id IS NULL)
                        AND (%(workflow_id)s::text IS NULL OR workflow_id = %(workflow_id)s)
                        AND (%(correlation_id)s::text IS NULL OR correlation_id = %(correlation_id)s)
                        AND (%(error_code)s::text IS NULL OR error ->> 'code' = %(error_code)s)
                        AND (%(older)s::float8 IS NULL
                            OR created_at < dagapp.clock() - make_interval(secs => %(older)s::float8))
                    ORDER BY created_at, job_id LIMIT %(limit)s) AS j
                ORDER BY j.created_at, j.job_id LIMIT %(limit)s
                """,
                {
                    "statuses": [status.value for status in statuses],
                    "children": children,
                    "workflow_id": wanted.workflow_id,
                    "correlation_id": wanted.correlation_id,
                    "error_code": wanted.error_code,
                    "older": wanted.older_than_seconds,
                    "limit": limit,
                },
            )
            return await cursor.fetchall()

    async def get(self, job_id: str) -> Job | None:
        """Return one job, unlocked."""
        async with self._conn.cursor(row_factory=row_of(Job)) as cursor:
            await cursor.execute(
                """
                SELECT job_id, workflow_id, workflow_version, definition_hash, status, input_params, run_no,
                    version, owner_id, owner_epoch, priority, paused_at, wake_at, deadline_at, parent_task_id,
                    correlation_id, submitted_by, outputs, error, warnings, evaluation_failures, created_at,
                    updated_at, started_at, completed_at, input_refs, depth, waiting_for, outputs_ref, slots_above
                FROM dagapp.dag_jobs WHERE job_id = %s
                """,
                (job_id,),
            )
            return await cursor.fetchone()

    async def known_among(self, job_ids: Sequence[str]) -> set[str]:
        """Return those of the ids that are jobs."""
        cursor = await self._conn.execute("SELECT job_id FROM dagapp.dag_jobs WHERE job_id = ANY(%s)", (list(job_ids),))
        return {row[0] for row in await cursor.fetchall()}

    async def lock_names(self, job_ids: Iterable[str]) -> None:
        """Let creators of jobs by these ids pass one at a time, until the transaction ends."""
        await self._conn.execute(
            """
            SELECT pg_advisory_xact_lock(hashtextextended('job|' || job_id, 0))
            FROM unnest(%s::text[]) AS job_id
            """,
            (sorted(set(job_ids)),),
        )

    async def by_keys(self, halves: Iterable[str]) -> Pending[Job]:
        """Return the jobs that idempotency keys stand for, which `core.ids.key_of_job_id` made of their ids."""
        return await send(
            self._conn,
            row_of(Job),
            """
            SELECT j.job_id, j.workflow_id, j.workflow_version, j.definition_hash, j.status, j.input_params, j.run_no,
                j.version, j.owner_id, j.owner_epoch, j.priority, j.paused_at, j.wake_at, j.deadline_at,
                j.parent_task_id, j.correlation_id, j.submitted_by, j.outputs, j.error, j.warnings,
                j.evaluation_failures, j.created_at, j.updated_at, j.started_at, j.completed_at, j.input_refs, j.depth,
                j.waiting_for, j.outputs_ref, j.slots_above
            FROM unnest(%s::text[]) AS wanted(half)
            JOIN dagapp.dag_jobs AS j ON j.job_id BETWEEN half || repeat('0', 32) AND half || repeat('f', 32)
            """,
            (list(halves),),
        )

    async def newest(self, limit: int, behind: Place = TOP) -> Sequence[Job]:
        """Return the newest jobs behind a place."""
        async with self._conn.cursor(row_factory=row_of(Job)) as cursor:
            await cursor.execute(
                """
                SELECT job_id, workflow_id, workflow_version, definition_hash, status, input_params, run_no, version,
                    owner_id, owner_epoch, priority, paused_at, wake_at, deadline_at, parent_task_id, correlation_id,
                    submitted_by, outputs, error, warnings, evaluation_failures, created_at, updated_at, started_at,
                    completed_at, input_refs, depth, waiting_for, outputs_ref, slots_above
                FROM dagapp.dag_jobs WHERE (created_at, job_id) < (coalesce(%s::timestamptz, 'infinity'), %s)
                ORDER BY created_at DESC, job_id DESC LIMIT %s
                """,
                (*behind, limit),
            )
            return await cursor.fetchall()

    async def newest_in(self, status: JobStatus, limit: int, behind: Place = TOP) -> Sequence[Job]:
        """Return the newest jobs of one status behind a place."""
        async with self._conn.cursor(row_factory=row_of(Job)) as cursor:
            await cursor.execute(
                """
                SELECT job_id, workflow_id, workflow_version, definition_hash, status, input_params, run_no, version,
                    owner_id, owner_epoch, priority, paused_at, wake_at, deadline_at, parent_task_id, correlation_id,
                    submitted_by, outputs, error, warnings, evaluation_failures, created_at, updated_at, started_at,
                    completed_at, input_refs, depth, waiting_for, outputs_ref, slots_above
                FROM dagapp.dag_jobs
                WHERE status = %s AND (created_at, job_id) < (coalesce(%s::timestamptz, 'infinity'), %s)
                ORDER BY created_at DESC, job_id DESC LIMIT %s
                """,
                (status, *behind, limit),
            )
            return await cursor.fetchall()

    async def newest_of(
        self, workflow_id: str, statuses: Iterable[JobStatus], limit: int, behind: Place = TOP
    ) -> Sequence[Job]:
        """Return the newest jobs behind a place of a workflow, each of these statuses read from the index by itself."""
        async with self._conn.cursor(row_factory=row_of(Job)) as cursor:
            await cursor.execute(
                """
                SELECT j.job_id, j.workflow_id, j.workflow_version, j.definition_hash, j.status, j.input_params,
                    j.run_no, j.version, j.owner_id, j.owner_epoch, j.priority, j.paused_at, j.wake_at, j.deadline_at,
                    j.parent_task_id, j.correlation_id, j.submitted_by, j.outputs, j.error, j.warnings,
                    j.evaluation_failures, j.created_at, j.updated_at, j.started_at, j.completed_at, j.input_refs,
                    j.depth, j.waiting_for, j.outputs_ref, j.slots_above
                FROM unnest(%(statuses)s::text[]) AS wanted(status) CROSS JOIN LATERAL (
                    SELECT * FROM dagapp.dag_jobs WHERE workflow_id = %(workflow_id)s AND status = wanted.status
                        AND (created_at, job_id) < (coalesce(%(created_at)s::timestamptz, 'infinity'), %(job_id)s)
                    ORDER BY created_at DESC, job_id DESC LIMIT %(limit)s) AS j
                ORDER BY j.created_at DESC, j.job_id DESC LIMIT %(limit)s
                """,
                {
                    "workflow_id": workflow_id,
                    "statuses": [one.value for one in statuses],
                    "created_at": behind[0],
                    "job_id": behind[1],
                    "limit": limit,
                },
            )
            return await cursor.fetchall()

    async def get_many(self, job_ids: Iterable[str]) -> Pending[Job]:
        """Return these jobs, unlocked, in any order."""
        return await send(
            self._conn,
            row_of(Job),
            """
            SELECT job_id, workflow_id, workflow_version, definition_hash, status, input_params, run_no, version,
                owner_id, owner_epoch, priority, paused_at, wake_at, deadline_at, parent_task_id, correlation_id,
                submitted_by, outputs, error, warnings, evaluation_failures, created_at, updated_at, started_at,
                completed_at, input_refs, depth, waiting_for, outputs_ref, slots_above
            FROM dagapp.dag_jobs WHERE job_id = ANY(%s)
            """,
            (list(job_ids),),
        )

    async def final_among(self, job_ids: Iterable[str]) -> Pending[Job]:
        """Return those of the jobs whose status is final."""
        return await send(
            self._conn,
            row_of(Job),
            """
            SELECT job_id, workflow_id, workflow_version, definition_hash, status, input_params, run_no, version,
                owner_id, owner_epoch, priority, paused_at, wake_at, deadline_at, parent_task_id, correlation_id,
                submitted_by, outputs, error, warnings, evaluation_failures, created_at, updated_at, started_at,
                completed_at, input_refs, depth, waiting_for, outputs_ref, slots_above
            FROM dagapp.dag_jobs WHERE job_id = ANY(%s) AND status NOT IN ('PENDING', 'RUNNING')
            """,
            (list(job_ids),),
        )

    async def owners(self, job_ids: Iterable[str]) -> set[str | None]:
        """Return who owns these jobs; None stands for nobody."""
        cursor = await self._conn.execute(
            "SELECT DISTINCT owner_id FROM dagapp.dag_jobs WHERE job_id = ANY(%s)", (list(job_ids),)
        )
        return {row[0] for row in await cursor.fetchall()}

    async def due_timers(self, owner_id: str, limit: int) -> Pending[DueJob]:
        """Return active jobs of an owner whose timer is due, longest overdue first."""
        return await self._due(
            """
            SELECT job_id, owner_epoch FROM dagapp.dag_jobs
            WHERE owner_id = %s AND status IN ('PENDING', 'RUNNING') AND wake_at <= dagapp.clock()
            ORDER BY wake_at LIMIT %s
            """,
            (owner_id, limit),
        )

    async def due_results(self, owner_id: str, limit: int) -> Pending[DueJob]:
        """Return jobs of an owner with results or commands in the inbox; a final job has late ones to set aside."""
        return await self._due(
            """
            SELECT job_id, owner_epoch FROM dagapp.dag_jobs
            WHERE owner_id = %s
                AND job_id = ANY(ARRAY(SELECT job_id FROM dagapp.dag_task_results WHERE NOT processed LIMIT 10000)
                    || ARRAY(SELECT job_id FROM dagapp.dag_commands WHERE processed_at IS NULL LIMIT 10000))
            LIMIT %s
            """,
            (owner_id, limit),
        )

    async def due_grants(self, owner_id: str, limit: int) -> Pending[DueJob]:
        """Return active jobs of an owner that were granted slots and have not acted on it."""
        return await self._due(
            """
            SELECT job_id, owner_epoch FROM dagapp.dag_jobs
            WHERE owner_id IS NOT DISTINCT FROM %s AND status IN ('PENDING', 'RUNNING') AND job_id = ANY(ARRAY(
                SELECT job_id FROM dagapp.dag_slots WHERE granted_at IS NOT NULL AND NOT noticed LIMIT 10000))
            LIMIT %s
            """,
            (owner_id, limit),
        )

    async def due_leases(self, owner_id: str, limit: int) -> Pending[DueJob]:
        """Return active jobs of an owner with a lease that ran out or a task beyond its run time.

        IS NOT DISTINCT FROM and NOT IN fit no partial index, which stale statistics would have the planner read whole.
        """
        return await self._due(
            """
            SELECT job_id, owner_epoch FROM dagapp.dag_jobs
            WHERE owner_id IS NOT DISTINCT FROM %s AND status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')
                AND job_id = ANY(ARRAY(SELECT job_id FROM dagapp.dag_attempts
                WHERE state = 'leased' AND (lease_expires_at <= dagapp.clock()
                    OR leased_at + make_interval(secs => timeout_seconds) <= dagapp.clock())
                LIMIT 10000))
            LIMIT %s
            """,
            (owner_id, limit),
        )

    async def seconds_to_next_timer(self, owner_id: str, but: Sequence[str] = ()) -> Pending[float | None]:
        """Return how far the nearest timer of an owner's active jobs, but some, is away; None when there is none."""
        return await send(
            self._conn,
            scalar_row,
            """
            SELECT extract(epoch FROM (
                SELECT wake_at FROM dagapp.dag_jobs
                WHERE owner_id = %s AND status IN ('PENDING', 'RUNNING') AND wake_at IS NOT NULL
                    AND job_id <> ALL(%s)
                ORDER BY wake_at LIMIT 1) - dagapp.clock())::float8
            """,
            (owner_id, list(but)),
        )

    async def claim_unowned(self, owner_id: str, limit: int) -> int:
        """Take over active jobs that nobody owns; the epoch grows in the same statement."""
        cursor = await self._conn.execute(
            """
            UPDATE dagapp.dag_jobs SET owner_id = %s, owner_epoch = owner_epoch + 1
            WHERE job_id = ANY(ARRAY(
                SELECT job_id FROM dagapp.dag_jobs
                WHERE owner_id IS NULL AND status IN ('PENDING', 'RUNNING')
                ORDER BY created_at LIMIT %s FOR NO KEY UPDATE SKIP LOCKED))
            RETURNING job_id
            """,
            (owner_id, limit),
        )
        return len(await cursor.fetchall())

    async def reclaim(self, owner_id: str, dead_owners: Sequence[str], limit: int) -> int:
        """Take over active jobs of dead owners; the epoch grows in the same statement."""
        cursor = await self._conn.execute(
            """
            UPDATE dagapp.dag_jobs SET owner_id = %s, owner_epoch = owner_epoch + 1
            WHERE job_id = ANY(ARRAY(
                SELECT job_id FROM dagapp.dag_jobs
                WHERE owner_id = ANY(%s) AND status IN ('PENDING', 'RUNNING')
                LIMIT %s FOR NO KEY UPDATE SKIP LOCKED))
            RETURNING job_id
            """,
            (owner_id, list(dead_owners), limit),
        )
        return len(await cursor.fetchall())

    async def adopt(self, owner_id: str, dead_owners: Sequence[str], limit: int) -> int:
        """Take over final jobs with something in the inbox whose owner is dead or forgotten: it has to be set aside."""
        cursor = await self._conn.execute(
            """
            UPDATE dagapp.dag_jobs SET owner_id = %s, owner_epoch = owner_epoch + 1
            WHERE job_id = ANY(ARRAY(
                SELECT job_id FROM dagapp.dag_jobs AS j
                WHERE job_id = ANY(ARRAY(SELECT job_id FROM dagapp.dag_task_results WHERE NOT processed LIMIT 10000)
                        || ARRAY(SELECT job_id FROM dagapp.dag_commands WHERE processed_at IS NULL LIMIT 10000))
                    AND status IN ('COMPLETED', 'FAILED', 'CANCELLED')
                    AND (owner_id = ANY(%s)
                        OR NOT EXISTS (SELECT FROM dagapp.dag_orchestrators AS o WHERE o.owner_id = j.owner_id))
                LIMIT %s FOR NO KEY UPDATE OF j SKIP LOCKED))
            RETURNING job_id
            """,
            (owner_id, list(dead_owners), limit),
        )
        return len(await cursor.fetchall())

    async def release(self, owner_id: str) -> int:
        """Give up every active job of an owner; whoever is told next takes them."""
        cursor = await self._conn.execute(
            """
            UPDATE dagapp.dag_jobs SET owner_id = NULL
            WHERE owner_id = %s AND status IN ('PENDING', 'RUNNING')
            RETURNING job_id
            """,
            (owner_id,),
        )
        return len(await cursor.fetchall())

    async def _due(self, statement: LiteralString, values: tuple[str, int]) -> Pending[DueJob]:
        return await send(self._conn, class_row(DueJob), statement, values)
