"""Rows that tests of repositories need to stand on, written with plain SQL as geodag_orchestrator."""

from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from core.ids import token_hash

TOKEN = "00112233445566778899aabbccddeeff"


@dataclass(frozen=True, slots=True)
class SeededAttempt:
    """An attempt that was written, with the token it was given."""

    job_id: str
    task_id: str
    token: str


async def seed_job(conn: AsyncConnection[Any], job_id: str = "job-1") -> str:
    """Write a workflow and a running job."""
    await conn.execute(
        "INSERT INTO dagapp.dag_workflows (definition_hash, workflow_id, version, definition)"
        " VALUES ('hash', 'echo_test', 1, '{}') ON CONFLICT DO NOTHING"
    )
    await conn.execute(
        "INSERT INTO dagapp.dag_jobs (job_id, workflow_id, workflow_version, definition_hash, status, input_params)"
        " VALUES (%s, 'echo_test', 1, 'hash', 'RUNNING', '{}')",
        (job_id,),
    )
    return job_id


async def seed_attempt(conn: AsyncConnection[Any], state: str = "leased", job_id: str = "job-1") -> SeededAttempt:
    """Write a job with one attempt in the given state and commit."""
    await seed_job(conn, job_id)
    task_id = f"{job_id}_echo_0"
    await conn.execute(
        "INSERT INTO dagapp.dag_attempts (task_id, job_id, node_id, attempt, state, queue, handler, params_digest,"
        " token_hash, timeout_seconds, queued_at)"
        " VALUES (%s, %s, 'echo', 0, %s, 'light', 'echo', 'digest', %s, 60, dagapp.clock())",
        (task_id, job_id, state, token_hash(TOKEN)),
    )
    await conn.commit()
    return SeededAttempt(job_id, task_id, TOKEN)


async def seed_request(conn: AsyncConnection[Any], asset_id: str = "a" * 32, job_id: str = "job-1") -> str:
    """Write an asset with version 0, a job, and the request that wants it; returns the request id; commits."""
    request_id = f"req-{asset_id[:8]}"
    await seed_job(conn, job_id)
    await conn.execute(
        "INSERT INTO dagapp.geospatial_assets (asset_id, platform_id, platform_refs, data_type)"
        " VALUES (%s, 'ddh', %s, 'raster')",
        (asset_id, '{"dataset_id": "d", "resource_id": "r"}'),
    )
    await conn.execute(
        "INSERT INTO dagapp.asset_versions (asset_id, version_ordinal, version_label, title, access_level,"
        " submitted_by, current_job_id, current_request_id, source, blob_path)"
        " VALUES (%s, 0, 'v1', 'Title', 'public', 'someone', %s, %s, '{}', 'silver/x.tif')",
        (asset_id, job_id, request_id),
    )
    await conn.execute(
        "INSERT INTO dagapp.platform_requests (request_id, platform_id, asset_id, version_ordinal, revision, body_hash,"
        " body, submitted_by) VALUES (%s, 'ddh', %s, 0, 1, 'hash', '{}', 'someone')",
        (request_id, asset_id),
    )
    await conn.commit()
    return request_id
