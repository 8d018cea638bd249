"""`deduplicate: inputs`: equal inputs are one job, whoever asks and however many at once."""

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pytest

from core.errors import WorkflowError
from repositories.database import AsyncPool
from services.jobs import Created
from services.work import pipelined
from tests.support.engine import Engine, workflows_of

ONCE = """
workflow_id: once
version: 1
deduplicate: inputs
inputs:
  a: {type: integer, required: true}
  b: {type: string, default: x}
nodes:
  start: {type: start, next: work}
  work: {handler: echo, params: {v: "{{ inputs.a }}"}, next: end}
  end: {type: end}
"""


@pytest.fixture
def engine(pool: AsyncPool) -> Engine:
    return Engine(pool, workflows_of(ONCE, ONCE.replace("once", "often").replace("deduplicate: inputs\n", "")))


async def create(engine: Engine, *inputs: Mapping[str, Any], workflow_id: str = "once") -> list[Created]:
    orders = [await engine.jobs.order(workflow_id=workflow_id, inputs=one) for one in inputs]
    async with pipelined(engine.pool) as conn:
        return await engine.jobs.create_or_find(conn, orders)


async def test_equal_inputs_are_the_same_job(engine: Engine) -> None:
    (first,) = await create(engine, {"a": 1})
    (second,) = await create(engine, {"b": "x", "a": 1})
    canonical = json.dumps({"inputs": {"a": 1, "b": "x"}, "workflow_id": "once"}, separators=(",", ":"))
    assert first.job.job_id == hashlib.sha256(canonical.encode()).hexdigest()
    assert (first.existing, second.existing) == (False, True)
    assert (second.job.job_id, second.job.status) == (first.job.job_id, "RUNNING")
    (other,) = await create(engine, {"a": 2})
    assert (other.existing, other.job.job_id != first.job.job_id) == (False, True)
    assert len(await engine.messages()) == 2


async def test_without_the_word_each_is_a_job_of_its_own(engine: Engine) -> None:
    made = [*await create(engine, {"a": 1}, workflow_id="often"), *await create(engine, {"a": 1}, workflow_id="often")]
    assert len({one.job.job_id for one in made}) == 2


async def test_of_many_creators_at_once_one_creates(engine: Engine) -> None:
    answers = await asyncio.gather(*(create(engine, {"a": 1}) for _ in range(6)))
    made = [one for group in answers for one in group]
    assert len({one.job.job_id for one in made}) == 1
    assert [one.existing for one in made].count(False) == 1


async def test_a_batch_with_equal_inputs_creates_one_job(engine: Engine) -> None:
    made = await create(engine, {"a": 1}, {"a": 2}, {"a": 1})
    assert [one.existing for one in made] == [False, False, True]
    assert made[0].job.job_id == made[2].job.job_id


async def test_a_submit_of_a_platform_cannot_start_it(engine: Engine) -> None:
    with pytest.raises(WorkflowError, match="deduplicates"):
        await engine.create("once", {"a": 1}, correlation_id="req_1")
    assert await engine.query("SELECT job_id FROM dagapp.dag_jobs") == []
