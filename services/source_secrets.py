"""Credentials of sources behind URLs: sealed with their job, opened for the worker that holds the lease."""

import base64
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from psycopg import AsyncConnection

from core.errors import GeodagError
from core.models.engine import Job
from core.ports import Sealer
from core.sources import UrlSource
from repositories.request_secrets import RequestSecretRepository

log = logging.getLogger(__name__)

SOURCE_INPUT: Final = "source_url"
"""The input of workflows that fetch; a job without it has no credential."""


async def keep(conn: AsyncConnection[Any], sealer: Sealer, job_id: str, source: UrlSource) -> None:
    """Keep the credential of a job's source, if it has one, in the transaction that makes the job."""
    if source.query is not None:
        sealed = base64.b64encode(sealer.seal(source.query.encode(), _context(job_id))).decode()
        await RequestSecretRepository(conn).keep(job_id, sealed)


async def opened(conn: AsyncConnection[Any], sealer: Sealer, job_ids: Iterable[str]) -> Mapping[str, str]:
    """Return credentials by job. One that cannot be opened is left out: the host refuses, and the job says so."""
    found: dict[str, str] = {}
    for job_id, sealed in (await RequestSecretRepository(conn).of_jobs(job_ids)).items():
        try:
            found[job_id] = sealer.open(base64.b64decode(sealed), _context(job_id)).decode()
        except GeodagError as error:
            log.error("source credential unreadable", extra={"job_id": job_id, "reason": str(error)})
    return found


async def forget(conn: AsyncConnection[Any], job: Job) -> None:
    """Forget the credential of a job that ended; jobs of nobody's request and without a URL cost no statement."""
    if job.correlation_id is not None or job.input_params.get(SOURCE_INPUT):
        await RequestSecretRepository(conn).forget(job.job_id)


def _context(job_id: str) -> str:
    return f"source|{job_id}"
