"""Slots of the items of a fan-out over a real database."""

from typing import Any

import pytest

from repositories.commands import CommandRepository
from repositories.database import AsyncPool
from services.slots import SlotService
from services.work import pipelined
from tests.integration.services.test_slots import act, due
from tests.support.engine import Engine, HandWorker, workflows_of

MANY = """
workflow_id: many
version: 1
inputs: {items: {type: array, default: []}}
outputs: {n: "{{ nodes.join.output.count }}"}
nodes:
  start: {type: start, next: each}
  each:
    type: fan_out
    source: "{{ inputs.items }}"
    max_concurrency: 4
    tolerate: {count: 0}
    task:
      handler: echo
      params: {v: "{{ item }}"}
      retry: {max_retries: 1, backoff: fixed, initial_delay_seconds: 0}
      concurrency: {key: "global:{{ item }}", limit: 1}
    next: join
  join: {type: fan_in, aggregation: count, next: end}
  end: {type: end}
"""


@pytest.fixture
def engine(pool: AsyncPool) -> Engine:
    return Engine(pool, workflows_of(MANY))


async def running(engine: Engine, job_id: str) -> list[str]:
    await act(engine)
    rows = await engine.query(
        "SELECT node_id FROM dagapp.dag_attempts WHERE job_id = %s AND state IN ('queued', 'leased') ORDER BY node_id",
        job_id,
    )
    return [row["node_id"] for row in rows]


async def finish(engine: Engine, worker: HandWorker, node_id: str) -> None:
    message = next(one for one in await engine.messages() if one.node_id == node_id)
    await worker.run(message)
    await engine.query("DELETE FROM dagqueue.messages WHERE task_id = %s", message.task_id)


async def order(engine: Engine, job_id: str, kind: str, **args: Any) -> None:
    async with pipelined(engine.pool) as conn:
        await CommandRepository(conn).put(job_id, kind, args, "ann", None)
    await engine.advance(job_id)


async def test_items_of_one_key_take_turns_across_jobs(engine: Engine, worker: HandWorker) -> None:
    one = await engine.create("many", {"items": ["a", "a", "b", "c", "a", "d"]})
    other = await engine.create("many", {"items": ["a", "e"]})
    assert await running(engine, one) == ["each__0", "each__2", "each__3"]
    assert await running(engine, other) == ["each__1"]
    for _ in range(20):
        for job_id in (one, other):
            for node_id in await running(engine, job_id):
                message = next(m for m in await engine.messages(job_id) if m.node_id == node_id)
                await worker.run(message)
                await engine.query("DELETE FROM dagqueue.messages WHERE task_id = %s", message.task_id)
                held = await engine.query(
                    "SELECT slot_key FROM dagapp.dag_slots WHERE granted_at IS NOT NULL"
                    " GROUP BY slot_key HAVING count(*) > 1"
                )
                assert held == []
    jobs = [await engine.job(job_id) for job_id in (one, other)]
    assert [(job.status, job.outputs) for job in jobs] == [("COMPLETED", {"n": 6}), ("COMPLETED", {"n": 2})]
    assert await engine.query("SELECT * FROM dagapp.dag_slots") == []


async def test_a_lost_worker_lets_its_item_line_up_again(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("many", {"items": ["a"]})
    await act(engine)
    message = await engine.message(job_id)
    await worker.claim(message)
    await engine.lapse(message.task_id)
    await engine.advance(job_id)
    rows = await engine.query("SELECT holder FROM dagapp.dag_slots")
    assert [row["holder"] for row in rows] == [f"{job_id}_each__0_1"]
    assert await running(engine, job_id) == ["each__0"]


@pytest.mark.parametrize("how", ["cancel", "rerun"])
async def test_what_ends_or_begins_anew_leaves_the_line(engine: Engine, worker: HandWorker, how: str) -> None:
    job_id = await engine.create("many", {"items": ["a", "a", "a"]})
    await act(engine)
    await order(engine, job_id, how, **({"node_id": "each"} if how == "rerun" else {}))
    rows = await engine.query("SELECT holder, granted_at FROM dagapp.dag_slots ORDER BY holder")
    if how == "cancel":
        assert rows == []
        return
    assert [row["holder"] for row in rows] == [f"{job_id}_each__{number}_1" for number in range(3)]
    assert await running(engine, job_id) == ["each__0"]


async def test_a_pause_takes_no_turns_and_a_resume_lets_all_line_up_again(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("many", {"items": ["a", "b"]})
    assert len(await due(engine)) == 1
    await order(engine, job_id, "pause")
    await act(engine)
    assert await engine.query("SELECT * FROM dagapp.dag_slots") == []
    assert await due(engine) == []
    await order(engine, job_id, "resume")
    assert await running(engine, job_id) == ["each__0", "each__1"]


async def test_a_swept_slot_of_a_cancelled_item_goes_to_the_next(engine: Engine, worker: HandWorker) -> None:
    one = await engine.create("many", {"items": ["a"]})
    await act(engine)
    message = await engine.message(one)
    await worker.claim(message)
    other = await engine.create("many", {"items": ["a"]})
    await order(engine, one, "cancel")
    assert (await running(engine, other), await SlotService(engine.pool).sweep()) == ([], 0)
    await engine.lapse(message.task_id)
    assert await SlotService(engine.pool).sweep() == 1
    assert await running(engine, other) == ["each__0"]
