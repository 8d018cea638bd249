"""Idempotency keys of jobs: the id of a job says under which actor's key it was created, and with which body.

So the job itself remembers its key, as long as it is kept, and nothing else has to. Half of the id finds it, whatever
the body was; the other half says whether the body is the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from core.dag.json_values import NotJson, check_json
from core.errors import ParameterInvalid
from core.ids import JobId, job_id_of_key, key_of_job_id
from core.models.engine import Job
from core.submission import key_conflict
from repositories.jobs import JobRepository
from services.work import Connection


@dataclass(frozen=True, slots=True)
class JobKey:
    """An actor's idempotency key and the body that came with it, which decide the id of the job."""

    text: str
    job_id: JobId

    @classmethod
    def of(cls, actor: str, text: str, body: Mapping[str, Any]) -> "JobKey":
        """Return the key of a body. Raises `ParameterInvalid` for a body that no row could hold."""
        try:
            for name, value in body.items():
                check_json(value, name, depth=-1)  # `inputs` is no level of what stands in it
        except NotJson as error:
            raise ParameterInvalid(error.detail.message, field=error.detail.field) from error
        return cls(text, job_id_of_key(actor, text, body))

    @property
    def half(self) -> str:
        """What the ids of all jobs under this key begin with."""
        return key_of_job_id(self.job_id)


async def jobs_of_keys(conn: Connection, keys: Iterable[JobKey]) -> list[Job]:
    """Return the jobs that were created under these keys.

    Raises:
        Conflict: IDEMPOTENCY_CONFLICT, a key was used for another body, or stands here for two.
    """
    halves = {key.half for key in keys}
    found = list(await (await JobRepository(conn).by_keys(halves)).rows())
    ids = {key_of_job_id(job.job_id): job.job_id for job in found}
    for key in keys:
        if ids.setdefault(key.half, key.job_id) != key.job_id:
            raise key_conflict(key.text)
    return found
