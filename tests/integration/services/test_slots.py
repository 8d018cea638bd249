"""Slots over a real database: across jobs, transactions, cancels and deaths."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from core.errors import NotFound, ParameterInvalid
from core.wire import Release, TaskMessage
from repositories.commands import CommandRepository
from repositories.database import AsyncPool
from repositories.jobs import JobRepository
from services.slots import SlotService
from services.work import pipelined
from tests.integration.services.test_isolation import break_definition
from tests.support.engine import Engine, HandWorker, workflows_of

NODE = """
workflow_id: noded
version: 1
inputs: {place: {type: string, default: here}}
nodes:
  start: {type: start, next: work}
  work: {handler: echo, concurrency: {key: "{{ inputs.place }}", limit: 1}, next: end}
  end: {type: end}
"""
JOB = """
workflow_id: jobbed
version: 1
concurrency: {key: "global:gate", limit: 2}
nodes:
  start: {type: start, next: [one, two]}
  one: {handler: echo, next: end}
  two: {handler: echo, next: end}
  end: {type: end}
"""
PARENT = """
workflow_id: parent
version: 1
nodes:
  start: {type: start, next: call}
  call: {type: workflow, workflow_id: noded, next: end}
  end: {type: end}
"""


@pytest.fixture
def engine(pool: AsyncPool) -> Engine:
    """Return an engine whose workflows need slots."""
    return Engine(pool, workflows_of(NODE, JOB, PARENT))


@pytest.fixture
def slots(engine: Engine) -> SlotService:
    return SlotService(engine.pool)


async def due(engine: Engine) -> list[str]:
    """Return the jobs that the loop would find because of a grant."""
    async with pipelined(engine.pool) as conn:
        pending = await JobRepository(conn).due_grants("owner-1", 100)
        return [job.job_id for job in await pending.rows()]


async def reported(engine: Engine) -> list[str]:
    """Return the jobs that the loop would find because of a result that came while somebody else held the job."""
    async with pipelined(engine.pool) as conn:
        pending = await JobRepository(conn).due_results("owner-1", 100)
        return [job.job_id for job in await pending.rows()]


async def act(engine: Engine) -> None:
    """Advance what was granted something, until nothing is left to act on."""
    while jobs := await due(engine):
        await engine.advance(*jobs)


async def sent(engine: Engine, *job_ids: str) -> list[str]:
    """Return those of the jobs that have messages in the queue."""
    found = {message.job_id for message in await engine.messages()}
    return [job_id for job_id in job_ids if job_id in found]


async def leased(engine: Engine, worker: HandWorker, job_id: str) -> TaskMessage:
    await act(engine)
    message = await engine.message(job_id)
    await worker.claim(message)
    await engine.query("DELETE FROM dagqueue.messages WHERE task_id = %s", message.task_id)
    return message


async def waiting(engine: Engine, job_id: str) -> Any:
    return (await engine.job(job_id)).waiting_for


async def test_the_attempts_of_different_jobs_take_turns(engine: Engine, worker: HandWorker) -> None:
    one, other, elsewhere = [await engine.create("noded", {"place": place}) for place in ("a", "a", "b")]
    await act(engine)
    assert await sent(engine, one, other, elsewhere) == [one, elsewhere]
    await worker.run(await engine.message(one))
    await act(engine)
    assert await sent(engine, other) == [other]
    (node,) = await engine.query(
        "SELECT slot_key FROM dagapp.dag_node_states WHERE job_id = %s AND node_id = 'work'", one
    )
    assert node["slot_key"] == "noded:a"


async def test_jobs_wait_pending_for_their_turn(engine: Engine, worker: HandWorker) -> None:
    jobs = [await engine.create("jobbed") for _ in range(4)]
    assert [(await engine.job(job_id)).status for job_id in jobs] == ["PENDING"] * 4
    await act(engine)
    assert [(await engine.job(job_id)).status for job_id in jobs] == ["RUNNING", "RUNNING", "PENDING", "PENDING"]
    assert await waiting(engine, jobs[0]) is None
    assert await waiting(engine, jobs[2]) == {"kind": "slot", "detail": {"key": "global:gate"}}
    messages = await engine.messages(jobs[1])
    await worker.claim(*messages)
    await worker.complete(messages[0])
    assert await due(engine) == []
    await worker.complete(messages[1])
    assert await due(engine) == [jobs[2]]


async def test_the_more_urgent_job_is_served_first_and_a_change_of_priority_counts(
    engine: Engine, worker: HandWorker
) -> None:
    first, low, lower, high = [
        await engine.create("noded", priority=priority) for priority in ("routine", "backfill", "backfill", 8)
    ]
    message = await leased(engine, worker, first)
    async with pipelined(engine.pool) as conn:
        await CommandRepository(conn).put(lower, "priority", {"priority": 9}, "ann", None)
    await engine.advance(lower)
    await worker.complete(message)
    order = []
    while jobs := await due(engine):
        order += jobs
        await worker.complete(await leased(engine, worker, jobs[0]))
    assert order == [lower, high, low]


async def test_a_child_job_lines_up_with_everybody_else(engine: Engine, worker: HandWorker) -> None:
    one = await engine.create("noded")
    message = await leased(engine, worker, one)
    parent = await engine.create("parent")
    assert await due(engine) == []
    await worker.complete(message)
    (child,) = await due(engine)
    assert (await engine.job(child)).parent_task_id == f"{parent}_call_0"


ABOVE = """
workflow_id: above
version: 1
concurrency: {key: "global:{{ inputs.k }}", limit: 1}
inputs: {k: {type: string, default: a}}
nodes:
  start: {type: start, next: call}
  call: {type: workflow, workflow_id: below, inputs: {k: "{{ inputs.k }}"}, next: end}
  end: {type: end}
"""
BELOW = """
workflow_id: below
version: 1
inputs: {k: {type: string}}
nodes:
  start: {type: start, next: hold}
  hold: {type: gate, next: work}
  work: {handler: echo, concurrency: {key: "global:{{ inputs.k }}", limit: 1}, next: end}
  end: {type: end}
"""


async def test_a_child_job_remembers_which_slots_are_held_above_it(pool: AsyncPool) -> None:
    engine = Engine(pool, workflows_of(ABOVE, BELOW))
    parent = await engine.create("above")
    await engine.advance(parent)
    (child,) = await engine.query("SELECT job_id, slots_above FROM dagapp.dag_jobs WHERE parent_task_id IS NOT NULL")
    assert child["slots_above"] == ["global:a"]
    await engine.order(child["job_id"], "gate", node_id="hold", decision="approved")
    await engine.advance(parent)
    ended = [await engine.job(job_id) for job_id in (child["job_id"], parent)]
    assert [(job.status, (job.error or {})["code"]) for job in ended] == [("FAILED", "SLOT_KEY_INVALID")] * 2


async def test_a_lost_worker_loses_its_slot_with_its_lease(engine: Engine, worker: HandWorker) -> None:
    one, other = await engine.create("noded"), await engine.create("noded")
    message = await leased(engine, worker, one)
    assert await due(engine) == []
    await engine.lapse(message.task_id)
    await engine.advance(one)
    assert await due(engine) == [other]
    await act(engine)
    assert await sent(engine, one, other) == [other]


async def test_a_cancelled_task_holds_its_slot_until_its_worker_says_that_it_stopped(
    engine: Engine, worker: HandWorker, slots: SlotService
) -> None:
    one, other = await engine.create("noded"), await engine.create("noded")
    message = await leased(engine, worker, one)
    await cancel(engine, one)
    assert (await engine.job(one)).status == "CANCELLED"
    assert (await slots.sweep(), await due(engine)) == (0, [])
    (answer,) = await worker.report(Release(task_id=message.task_id, token=message.token))
    assert answer.disposition == "superseded"
    assert await due(engine) == [other]


async def cancel(engine: Engine, job_id: str) -> None:
    async with pipelined(engine.pool) as conn:
        await CommandRepository(conn).put(job_id, "cancel", {}, "ann", None)
    await engine.advance(job_id)


async def test_a_cancelled_task_whose_worker_never_answers_loses_its_slot_when_its_lease_would_be_over(
    engine: Engine, worker: HandWorker, slots: SlotService
) -> None:
    one, other = await engine.create("noded"), await engine.create("noded")
    message = await leased(engine, worker, one)
    await cancel(engine, one)
    await engine.query(
        "UPDATE dagapp.dag_attempts SET lease_expires_at = dagapp.clock() - interval '1 second' WHERE task_id = %s",
        message.task_id,
    )
    assert (await slots.sweep(), await slots.sweep()) == (1, 0)
    assert await due(engine) == [other]


async def test_cancels_in_the_line_leave_nothing_behind(engine: Engine) -> None:
    jobs = [await engine.create(name) for name in ("noded", "noded", "jobbed", "jobbed", "jobbed")]
    for job_id in jobs:
        await cancel(engine, job_id)
    assert await engine.query("SELECT * FROM dagapp.dag_slots") == []


async def test_a_job_that_cannot_be_evaluated_any_more_gives_its_slot_back(engine: Engine) -> None:
    one, other = await engine.create("jobbed"), await engine.create("noded")
    await act(engine)
    for job_id in (one, other):
        await engine.query("UPDATE dagapp.dag_jobs SET evaluation_failures = 4 WHERE job_id = %s", job_id)
        await break_definition(engine, job_id)
        await engine.query("UPDATE dagapp.dag_jobs SET wake_at = dagapp.clock() WHERE job_id = %s", job_id)
        await engine.advance(job_id)
        assert (await engine.job(job_id)).status == "FAILED"
    await SlotService(engine.pool).sweep()
    assert await engine.query("SELECT * FROM dagapp.dag_slots") == []


async def test_an_operator_changes_limits_and_the_line_moves_at_once(
    engine: Engine, slots: SlotService, worker: HandWorker
) -> None:
    jobs = [await engine.create("noded") for _ in range(3)]
    await act(engine)
    view = await slots.set_limit("noded:here", 2, "op")
    assert (view.limit, view.set_by, view.held, view.waiting) == (2, "op", 2, 1)
    assert await due(engine) == [jobs[1]]
    await slots.set_limit("noded:here", None, "op")
    await engine.create("noded")
    assert [(one.slot_key, one.limit, one.set_by) for one in await slots.limits()] == [("noded:here", 1, None)]


@pytest.mark.parametrize(
    ("key", "limit", "error"),
    [
        ("", 1, ParameterInvalid),
        ("x" * 401, 1, ParameterInvalid),
        ("a\x00", 1, ParameterInvalid),
        ("k", -1, ParameterInvalid),
        ("k", 100_001, ParameterInvalid),
        ("nobody", None, NotFound),
    ],
)
async def test_limits_that_cannot_be_are_refused(
    slots: SlotService, key: str, limit: int | None, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await slots.set_limit(key, limit, "op")


async def test_many_jobs_at_once_never_have_more_tasks_out_than_the_limit_allows(
    engine: Engine, slots: SlotService
) -> None:
    jobs = [await engine.create("noded", {"place": f"p{number % 3}"}) for number in range(18)]
    workers = [HandWorker(engine, f"worker-{number}") for number in range(3)]
    out: Counter[str] = Counter()

    async def work(worker: HandWorker, number: int) -> None:
        while await engine.query("SELECT 1 FROM dagapp.dag_jobs WHERE status IN ('PENDING', 'RUNNING')"):
            if found := await due(engine) + await reported(engine):
                await engine.advance(*(found[number : number + 3] or found[:1]))
            if number == 0:
                await slots.sweep()
            for message in (await engine.messages())[:4]:
                await take(worker, message)

    async def take(worker: HandWorker, message: TaskMessage) -> None:
        (answer,) = await worker.claim(message)
        if answer.outcome != "granted":
            return
        rows = await engine.query(
            "SELECT slot_key, count(*) AS n FROM dagapp.dag_slots AS s JOIN dagapp.dag_attempts AS a"
            " ON a.task_id = s.holder WHERE a.state = 'leased' GROUP BY slot_key"
        )
        out.update({row["slot_key"]: 1 for row in rows if row["n"] > 1})
        await engine.query("DELETE FROM dagqueue.messages WHERE task_id = %s", message.task_id)
        await worker.complete(message)

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(worker, number) for number, worker in enumerate(workers)))
    assert not out
    assert {(await engine.job(job_id)).status for job_id in jobs} == {"COMPLETED"}
    assert await engine.query("SELECT * FROM dagapp.dag_slots") == []
