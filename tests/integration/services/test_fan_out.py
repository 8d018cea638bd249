"""Fan-outs through the services on a real database."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import psycopg
import pytest

from core.payloads import PayloadRef, decode
from core.ports import BlobRepository
from core.wire import Beat, ItemOutcome, Release, ResultDisposition, TaskStatus
from repositories.database import AsyncPool
from tests.integration.services.fans import FAN_OUT, Fans, bad, failed, good, of_items
from tests.support.databases import Database
from tests.support.engine import Engine, HandWorker, workflows_of
from tests.support.waiting import await_until

Start = Callable[..., Awaitable[Fans]]
RESTLESS = """
CREATE SEQUENCE public.looks;
GRANT USAGE ON SEQUENCE public.looks TO PUBLIC;
CREATE OR REPLACE FUNCTION dagapp.clock() RETURNS timestamptz LANGUAGE plpgsql STABLE AS
$$ BEGIN RETURN '2030-01-01Z'::timestamptz + nextval('public.looks') * interval '50 ms'; END $$;
"""
"""A clock that goes on by 50 ms whenever it is looked at."""
OVERSLEPT = """
SELECT j.wake_at, t.node_id, t.timer FROM dagapp.dag_jobs AS j CROSS JOIN LATERAL (
    SELECT node_id, not_before AS timer FROM dagapp.dag_node_states WHERE job_id = j.job_id AND status = 'WAITING'
    UNION ALL
    SELECT node_id, redispatch_at FROM dagapp.dag_attempts WHERE job_id = j.job_id AND state = 'queued'
) AS t
WHERE j.job_id = %s AND t.timer IS NOT NULL AND j.wake_at > greatest(t.timer, j.updated_at + interval '1 second')
"""
"""What nobody looks at when its time comes, a second after the last look at the latest."""
DUE = "SELECT job_id FROM dagapp.dag_jobs WHERE job_id = %s AND wake_at <= dagapp.clock()"
WAITS_FOR_A_LOCK = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
SENT_AGAIN = "SELECT task_id FROM dagapp.dag_attempts WHERE dispatch_no > 1"


@pytest.fixture
def start(pool: AsyncPool, blobs: BlobRepository) -> Start:
    """Return how a job with a fan-out is created: items, then lines of its definition."""
    return partial(Fans.start, pool, blobs)


async def test_a_job_with_a_fan_out_runs_to_its_end_with_results_in_item_order(start: Start) -> None:
    fans = await start(["a", {"b": 1}, None])
    messages = await fans.fresh()
    assert [message.params for message in messages] == [
        {"v": "a", "n": 0},
        {"v": {"b": 1}, "n": 1},
        {"v": None, "n": 2},
    ]
    for message in reversed(messages):
        assert (await fans.worker.run(message)).disposition is ResultDisposition.APPLIED
    job = await fans.engine.job(fans.job_id)
    assert job.status == "COMPLETED"
    assert job.outputs == {"all": [{"echoed_params": message.params} for message in messages]}
    assert set((await fans.children()).values()) == {"COMPLETED"}
    assert (await fans.row())["state"] == "done"
    assert set((await fans.attempts()).values()) == {"reported"}


async def test_no_items_end_the_job_at_once(start: Start) -> None:
    fans = await start([])
    await fans.advance()
    job = await fans.engine.job(fans.job_id)
    assert (job.status, job.outputs) == ("COMPLETED", {"all": []})


async def test_many_results_in_one_call_move_the_window_by_as_many(start: Start) -> None:
    fans = await start(range(1100), "max_concurrency: 90")
    made = 0
    while await fans.status() == "RUNNING":
        messages = await fans.fresh()
        made += len(messages)
        assert 0 < len(messages) <= 90
        await fans.worker.claim(*messages)
        await fans.worker.complete(*messages)
        await fans.engine.desk.settled()
    assert made == 1100
    assert await fans.status() == "COMPLETED"
    assert (await fans.row())["succeeded"] == 1100


async def test_a_result_told_again_beside_another_takes_no_attempt_from_the_last_child(start: Start) -> None:
    """Seed 36 of the simulation: as many results as live children, but one of them was known already."""
    fans = await start([1, 2, 3])
    first, second, third = await fans.fresh()
    await fans.worker.claim(first, second, third)
    await fans.worker.complete(first)
    answers = await fans.worker.complete(first, second)
    assert [answer.disposition for answer in answers] == [ResultDisposition.DUPLICATE, ResultDisposition.APPLIED]
    assert await fans.attempts() == {first.task_id: "reported", second.task_id: "reported", third.task_id: "leased"}
    assert (await fans.worker.complete(third))[0].disposition is ResultDisposition.APPLIED
    assert await fans.status() == "COMPLETED"


async def test_a_child_is_tried_again_when_its_backoff_is_over(start: Start) -> None:
    fans = await start([1, 2])
    first, second = await fans.fresh()
    await fans.worker.claim(first)
    await fans.worker.report(failed(first, transient=True))
    assert (await fans.children())["many__0"] == "WAITING"
    await fans.advance()
    assert (await fans.children())["many__0"] == "WAITING"
    await fans.let_time_pass()
    await fans.advance()
    again, repeated = await fans.fresh()
    assert (again.attempt, again.params) == (1, first.params)
    assert (repeated.task_id, repeated.dispatch_no) == (second.task_id, 2)
    await fans.worker.run(again)
    await fans.worker.run(repeated)
    assert await fans.status() == "COMPLETED"


async def test_a_lost_worker_is_found_without_a_timer_and_costs_only_its_own_children(start: Start) -> None:
    fans = await start([1, 2])
    first, second = await fans.fresh()
    await fans.worker.claim(first, second)
    await fans.engine.lapse(first.task_id)
    await fans.advance()
    states = await fans.attempts()
    assert (states[first.task_id], states[second.task_id]) == ("expired", "leased")
    (again,) = await fans.fresh()
    (late,) = await fans.worker.complete(first)
    assert late.disposition is ResultDisposition.SUPERSEDED
    await fans.worker.run(again)
    await fans.worker.complete(second)
    assert await fans.status() == "COMPLETED"


async def test_a_late_result_beside_a_good_one_does_not_cost_its_child_the_attempt_of_now(start: Start) -> None:
    fans = await start([1, 2, 3])
    first, second, third = await fans.fresh()
    await fans.worker.claim(first, second)
    await fans.engine.lapse(first.task_id)
    await fans.advance()
    (again,) = await fans.fresh()
    late, on_time = await fans.worker.complete(first, second)
    assert (late.disposition, on_time.disposition) == (ResultDisposition.SUPERSEDED, ResultDisposition.APPLIED)
    assert (await fans.attempts())[again.task_id] == "queued"
    assert await fans.fresh() == []
    await fans.worker.run(again)
    await fans.worker.run(third)
    assert await fans.status() == "COMPLETED"


async def test_a_result_that_stops_the_fan_out_reaches_children_that_were_not_loaded(start: Start) -> None:
    fans = await start(range(9), "max_concurrency: 4")
    messages = await fans.fresh()
    await fans.worker.claim(messages[0], messages[1])
    (answer,) = await fans.worker.report(failed(messages[0]))
    assert answer.disposition is ResultDisposition.APPLIED
    await fans.advance()
    assert await fans.children() == {
        "many__0": "FAILED",
        "many__1": "DISPATCHED",
        "many__2": "CANCELLED",
        "many__3": "CANCELLED",
    }
    left = {one.node_id for one in await fans.engine.messages(fans.job_id)}
    assert left <= {"many__0", "many__1"}
    await fans.worker.complete(messages[1])
    job = await fans.engine.job(fans.job_id)
    assert job.status == "FAILED"
    assert (job.error or {})["code"] == "FAN_OUT_FAILED"
    found = await fans.row()
    assert (found["succeeded"], found["failed"], found["skipped"], found["active"]) == (1, 1, 7, 0)
    assert found["failures"][0]["index"] == 0


async def test_the_deadline_reaches_every_child(start: Start) -> None:
    fans = await start([1, 2, 3])
    messages = await fans.fresh()
    await fans.worker.claim(messages[0])
    await fans.engine.query("UPDATE dagapp.dag_jobs SET deadline_at = dagapp.clock()")
    await fans.advance()
    assert await fans.status() == "FAILED"
    assert set((await fans.children()).values()) == {"CANCELLED"}
    assert set((await fans.attempts()).values()) == {"revoked"}
    assert not [one for one in await fans.engine.messages() if one.task_id != messages[0].task_id]
    answer = await fans.worker.beat(Beat(task_id=messages[0].task_id, token=messages[0].token))
    assert [one.task_id for one in answer.revoked] == [messages[0].task_id]


async def test_another_instance_goes_on_where_the_first_one_stopped(start: Start) -> None:
    fans = await start([1, 2, 3, 4], "max_concurrency: 2")
    first, second = await fans.fresh()
    await fans.worker.run(first)
    engine = fans.engine
    fans.engine = Engine(engine.pool, engine.catalogue, owner_id="owner-2", blobs=engine.blobs)
    other = HandWorker(fans.engine, worker_id="worker-2")
    await other.run(second)
    await fans.finish()
    job = await fans.engine.job(fans.job_id)
    assert [one["echoed_params"]["v"] for one in (job.outputs or {})["all"]] == [1, 2, 3, 4]


async def test_a_result_while_another_transaction_holds_the_job_waits_in_the_inbox(start: Start) -> None:
    fans = await start([1])
    (message,) = await fans.fresh()
    await fans.worker.claim(message)
    async with fans.engine.pool.connection() as conn:
        await conn.execute("SELECT 1 FROM dagapp.dag_jobs WHERE job_id = %s FOR NO KEY UPDATE", (fans.job_id,))
        await fans.worker.complete(message)
    assert await fans.status() == "RUNNING"
    await fans.advance()
    assert await fans.status() == "COMPLETED"


async def test_every_child_has_a_token_of_its_own(start: Start) -> None:
    fans = await start(range(70))
    tokens = {message.token for message in await fans.fresh()}
    assert len(tokens) == 70
    assert {len(bytes.fromhex(token)) for token in tokens} == {16}


async def test_an_unclaimed_child_is_sent_again_under_a_new_token(start: Start) -> None:
    fans = await start([1])
    (message,) = await fans.fresh()
    await fans.let_time_pass()
    await fans.advance()
    (again,) = await fans.fresh()
    assert (again.task_id, again.dispatch_no) == (message.task_id, 2)
    (refused,) = await fans.worker.claim(message)
    assert refused.outcome == "superseded"
    await fans.worker.run(again)
    assert await fans.status() == "COMPLETED"


async def test_the_items_of_a_batch_end_one_by_one_in_results_and_heartbeats(start: Start) -> None:
    fans = await start(range(6), "batch_size: 4\n    tolerate: {count: 1}")
    first, second = await fans.fresh()
    assert (first.items, second.items) == ((0, 1, 2, 3), (4, 5))
    assert second.params == {"items": [{"index": n, "params": {"v": n, "n": n}} for n in (4, 5)]}
    await fans.worker.claim(first, second)
    await fans.worker.beat(Beat(task_id=first.task_id, token=first.token, outcomes=(good(0),)))
    await fans.worker.beat(Beat(task_id=first.task_id, token=first.token, outcomes=(good(1), bad(2))))
    await fans.worker.beat(Beat(task_id=first.task_id, token=first.token))
    await fans.engine.lapse(first.task_id)
    await fans.advance()
    found = await fans.row()
    assert (found["succeeded"], found["failed"]) == (2, 1)
    (again,) = await fans.fresh()
    assert (again.attempt, again.items) == (1, (3,))
    await fans.worker.claim(again)
    await fans.worker.report(of_items(again, good(3)), of_items(second, good(4), good(5)))
    job = await fans.engine.job(fans.job_id)
    assert job.outputs == {"all": [{"i": index} for index in (0, 1, 3, 4, 5)]}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "a\x00b"])
@pytest.mark.parametrize("in_heartbeat", [False, True])
async def test_an_output_of_an_item_that_is_not_json_fails_the_item_naming_the_path(
    start: Start, value: object, in_heartbeat: bool
) -> None:
    fans = await start([1, 2], "batch_size: 2\n    tolerate: {count: 1}")
    (batch,) = await fans.fresh()
    await fans.worker.claim(batch)
    odd = ItemOutcome(index=1, status=TaskStatus.COMPLETED, output={"x": [None, value]})
    if in_heartbeat:
        await fans.worker.beat(Beat(task_id=batch.task_id, token=batch.token, outcomes=(odd,)))
    await fans.worker.report(of_items(batch, good(0)) if in_heartbeat else of_items(batch, good(0), odd))
    (failure,) = (await fans.row())["failures"]
    assert (failure["index"], failure["error"]["code"]) == (1, "OUTPUT_INVALID")
    assert "output.x[1]" in failure["error"]["message"]


async def test_a_batch_that_is_sent_again_carries_only_what_is_left(start: Start) -> None:
    fans = await start(range(3), "batch_size: 3")
    (message,) = await fans.fresh()
    await fans.worker.claim(message)
    await fans.worker.report(Release(task_id=message.task_id, token=message.token, outcomes=(good(0),)))
    (again,) = await fans.fresh()
    assert (again.attempt, again.items) == (1, (1, 2))
    await fans.let_time_pass()
    await fans.advance()
    (third,) = await fans.fresh()
    assert (third.attempt, third.dispatch_no, third.items) == (1, 2, (1, 2))


async def test_a_large_source_is_expanded_and_a_large_result_gathered_beside_the_evaluations(start: Start) -> None:
    items = [{"number": number, "text": "x" * 1000} for number in range(1200)]
    fans = await start(items, "max_concurrency: 1000")
    assert (await fans.row())["item_count"] == 1200
    await fans.finish()
    job = await fans.engine.job(fans.job_id)
    assert job.status == "COMPLETED", job.error
    assert job.outputs_ref is not None
    ref = PayloadRef.model_validate(job.outputs_ref)
    value = decode(ref, await fans.engine.store.get(ref))
    assert [one["echoed_params"]["v"]["number"] for one in value["all"]] == list(range(1200))


async def test_a_cancel_reaches_every_child_and_its_worker(start: Start) -> None:
    fans = await start([1, 2, 3])
    messages = await fans.fresh()
    await fans.worker.claim(messages[0])
    answer = await fans.engine.order(fans.job_id, "cancel")
    assert answer.job.status == "CANCELLED"
    assert set((await fans.children()).values()) == {"CANCELLED"}
    assert set((await fans.attempts()).values()) == {"revoked"}
    stopped = await fans.worker.beat(Beat(task_id=messages[0].task_id, token=messages[0].token))
    assert [one.task_id for one in stopped.revoked] == [messages[0].task_id]


async def test_the_window_is_changed_while_it_runs(start: Start) -> None:
    fans = await start(range(9), "max_concurrency: 2")
    assert len(await fans.fresh()) == 2
    await fans.engine.order(fans.job_id, "window", node_id="many", max_concurrency=5)
    await fans.advance()
    assert len(await fans.fresh()) == 3
    assert (await fans.row())["max_concurrency"] == 5


async def test_a_rerun_makes_children_anew_whose_attempts_were_never_used(start: Start) -> None:
    fans = await start([1, 2])
    first, second = await fans.fresh()
    await fans.worker.run(first)
    await fans.worker.claim(second)
    await fans.worker.report(failed(second))
    assert await fans.status() == "FAILED"
    await fans.engine.order(fans.job_id, "retry")
    again = await fans.fresh()
    assert [(one.node_id, one.attempt, one.params["v"]) for one in again] == [("many__0", 1, 1), ("many__1", 1, 2)]
    for message in again:
        await fans.worker.run(message)
    assert await fans.status() == "COMPLETED"


async def test_a_paused_job_parks_its_children_and_sends_them_again_when_it_goes_on(start: Start) -> None:
    fans = await start([1, 2], "max_concurrency: 1")
    (message,) = await fans.fresh()
    await fans.engine.order(fans.job_id, "pause")
    (refused,) = await fans.worker.claim(message)
    assert refused.outcome == "paused"
    assert (await fans.attempts())[message.task_id] == "parked"
    await fans.advance()
    await fans.engine.order(fans.job_id, "resume")
    (again,) = [one for one in await fans.fresh() if one.dispatch_no == 2]
    await fans.worker.run(again)
    await fans.finish()
    assert await fans.status() == "COMPLETED"


async def test_a_pause_switch_of_the_queue_holds_the_window(start: Start) -> None:
    fans = await start([1, 2, 3], "max_concurrency: 1")
    (message,) = await fans.fresh()
    await fans.worker.claim(message)
    await fans.engine.pause("queue:functionapp-tasks")
    await fans.worker.complete(message)
    assert await fans.fresh() == []
    await fans.engine.pause("queue:functionapp-tasks", on=False)
    await fans.finish()
    assert await fans.status() == "COMPLETED"


async def test_a_timer_that_came_due_during_a_pause_is_not_lost_when_a_result_is_the_first_to_see_its_end(
    start: Start,
) -> None:
    fans = await start([1, 2])
    first, second = await fans.fresh()
    await fans.worker.claim(first, second)
    await fans.worker.report(failed(first, transient=True))
    await fans.engine.pause("all")
    await fans.let_time_pass()
    await fans.advance()
    await fans.engine.pause("all", on=False)
    await fans.worker.complete(second)
    assert await fans.engine.query(OVERSLEPT, fans.job_id) == []
    await await_until(lambda: fans.engine.query(DUE, fans.job_id), "the timer of the job is due")
    await fans.finish()
    assert await fans.status() == "COMPLETED"


async def test_no_timer_is_lost_between_two_statements_of_one_evaluation(start: Start, database: Database) -> None:
    """Time goes on between them: what comes due there was left out by the one and by the other."""
    with psycopg.connect(database.admin, autocommit=True) as admin:
        admin.execute(RESTLESS)
    fans = await start(range(40))
    messages = await fans.fresh()
    await fans.worker.claim(*messages[:20])
    for message in messages[:20]:
        await fans.worker.report(failed(message, transient=True))
    tried_again: set[str] = set()
    while len(tried_again) < 20 or not await fans.engine.query(SENT_AGAIN):
        await fans.advance()
        assert await fans.engine.query(OVERSLEPT, fans.job_id) == []
        tried_again |= {message.node_id for message in await fans.fresh() if message.attempt == 1}


async def test_a_result_that_comes_while_its_job_is_read_is_applied(start: Start, database: Database) -> None:
    """It was stored after attempts had been read and before the inbox was, and set aside as one of no child."""
    fans = await start([1, 2])
    first, second = await fans.fresh()
    await fans.worker.claim(first, second)
    await fans.engine.lapse(first.task_id)
    async with await psycopg.AsyncConnection.connect(database.admin) as holder:
        await holder.execute("SELECT FROM dagapp.dag_attempts WHERE task_id = %s FOR UPDATE", (first.task_id,))
        look = asyncio.create_task(fans.advance())
        await await_until(lambda: fans.engine.query(WAITS_FOR_A_LOCK), "the look waits amid its reading")
        (answer,) = await fans.worker.complete(second)
    assert answer.disposition is ResultDisposition.APPLIED
    await look
    await fans.advance()
    assert (await fans.children())["many__1"] == "COMPLETED"
    (again,) = await fans.fresh()
    await fans.worker.run(again)
    assert await fans.status() == "COMPLETED"


PAD = random.Random(1).randbytes(25_000).hex()
"""Three of these are more than an evaluation loads."""


@pytest.mark.parametrize(
    ("aggregation", "made"),
    [
        ("sum", {"total": 6}),
        ("concat", {"results": [1, 2, 3]}),
        ("first", {"result": {"n": 1, "l": [1], "pad": PAD}}),
        ("last", {"result": {"n": 3, "l": [3], "pad": PAD}}),
    ],
)
async def test_outputs_that_are_not_loaded_are_aggregated_as_the_fan_in_says(
    pool: AsyncPool, blobs: BlobRepository, aggregation: str, made: dict[str, Any]
) -> None:
    text = FAN_OUT.format(fan_out="batch_size: 1").replace(
        "{type: fan_in,", f"{{type: fan_in, aggregation: {aggregation},"
    )
    engine = Engine(pool, workflows_of(text.replace(".results", "")), blobs=blobs)
    fans = Fans(engine, await engine.create("fans", {"items": ["a", "b", "c"]}))
    for number, message in enumerate(await fans.fresh(), start=1):
        await fans.worker.run(message, {"n": number, "l": [number], "pad": PAD})
    await engine.desk.settled()
    await fans.advance()
    found = (await engine.job(fans.job_id)).outputs["all"]
    assert {name: found[name] for name in found.keys() & {"results", "result", "total"}} == made
