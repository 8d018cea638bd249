"""Words of a workflow that count from the moment on in which a job is created."""

from datetime import timedelta

from repositories.database import AsyncPool
from tests.support.engine import Engine, workflows_of

URGENT = """\
workflow_id: urgent
version: 1
priority: 7
deadline_seconds: 90
nodes:
  start: {type: start, next: say}
  say: {handler: echo, next: end}
  end: {type: end}
"""


async def test_priority_and_deadline_come_from_the_workflow(pool: AsyncPool) -> None:
    engine = Engine(pool, workflows_of(URGENT))
    job_id = await engine.create("urgent", {})
    job = await engine.job(job_id)
    assert (job.priority, job.deadline_at) == (7, job.created_at + timedelta(seconds=90))
    assert (await engine.message(job_id)).priority == 7
    assert (await engine.job(await engine.create("urgent", {}, priority=2))).priority == 2
