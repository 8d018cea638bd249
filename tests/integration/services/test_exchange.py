"""Results in, tasks out: leased in the transaction of the results, older ones first, each as fenced as by a claim."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, NoReturn

import pytest

from core.models.engine import Attempt
from core.payloads import PayloadRef
from core.ports import BlobRepository
from core.wire import Capacity, ExchangeRequest, Grant, ResultAnswer, TaskMessage
from repositories.database import AsyncPool
from services.claims import Free
from services.results import MANY
from services.rooms import Room, Task, is_small
from tests.integration.services.fans import Fans
from tests.support.engine import Engine, HandWorker, completed


async def test_a_chain_needs_no_message_after_its_first(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("chain_10")
    message = await engine.message(job_id)
    await worker.claim(message)
    await engine.query("DELETE FROM dagqueue.messages")
    for number in range(2, 11):
        (answer,), (grant,) = await worker.exchange(completed(message))
        assert answer.disposition == "applied"
        message = grant.message
        assert message.node_id == f"step_{number}"
        attempt = await engine.attempt(message.task_id)
        assert (attempt["state"], attempt["worker_id"], attempt["redispatch_at"]) == ("leased", "worker-1", None)
        assert (await engine.statuses(job_id))[message.node_id] == "RUNNING"
        assert await engine.messages() == []
    assert await worker.exchange(completed(message)) == ([answer.model_copy(update={"task_id": message.task_id})], ())
    assert [job.status for job in engine.ended] == ["COMPLETED"]
    assert (await engine.events(job_id)).count("node_started") == 10


async def test_what_waits_in_the_queue_comes_before_what_is_new(engine: Engine, worker: HandWorker) -> None:
    chain = await engine.create("chain_10")
    first = await engine.message(chain)
    await worker.claim(first)
    await engine.query("DELETE FROM dagqueue.messages")
    waiting = await engine.message(await engine.create("echo_test"))
    _, (grant,) = await worker.exchange(completed(first), slots=1)
    assert grant.message == waiting
    assert (await engine.attempt(waiting.task_id))["state"] == "leased"
    assert [message.node_id for message in await engine.messages()] == ["step_2"]
    _, (grant,) = await worker.exchange(completed(waiting), slots=2)
    assert grant.message.node_id == "step_2"
    assert await engine.messages() == []


async def test_room_for_both_takes_both(engine: Engine, worker: HandWorker) -> None:
    first = await engine.message(await engine.create("chain_10"))
    await worker.claim(first)
    await engine.query("DELETE FROM dagqueue.messages")
    waiting = await engine.message(await engine.create("echo_test"))
    _, grants = await worker.exchange(completed(first), slots=2)
    assert {grant.message.node_id for grant in grants} == {waiting.node_id, "step_2"}


async def test_while_older_ones_may_be_left_nothing_new_is_leased(
    engine: Engine, worker: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.rooms.MOST_TAKEN", 1)
    first = await engine.message(await engine.create("chain_10"))
    await worker.claim(first)
    await engine.query("DELETE FROM dagqueue.messages")
    waiting = await engine.message(await engine.create("echo_test"))
    _, (grant,) = await worker.exchange(completed(first), slots=9)
    assert grant.message == waiting
    assert [message.node_id for message in await engine.messages()] == ["step_2"]


async def test_who_has_no_room_or_leaves_is_given_nothing(engine: Engine, worker: HandWorker) -> None:
    first = await engine.message(await engine.create("chain_10"))
    await worker.claim(first)
    assert (await worker.exchange(completed(first), slots=0))[1] == ()
    (second,) = [message for message in await engine.messages() if message.node_id == "step_2"]
    await worker.claim(second)
    assert (await worker.exchange(completed(second), state="draining"))[1] == ()
    assert [message.node_id for message in await engine.messages()][-1] == "step_3"


async def test_an_attempt_that_somebody_holds_is_passed_over(engine: Engine, worker: HandWorker) -> None:
    held, free = [await engine.message(await engine.create("echo_test")) for _ in range(2)]
    async with engine.pool.connection() as holder:
        await holder.execute("SELECT FROM dagapp.dag_attempts WHERE task_id = %s FOR UPDATE", (held.task_id,))
        _, grants = await worker.exchange()
        await holder.rollback()
    assert [grant.message for grant in grants] == [free]
    assert await engine.messages() == [held]


async def test_a_paused_task_is_parked_and_its_message_goes(engine: Engine, worker: HandWorker) -> None:
    message = await engine.message(await engine.create("echo_test"))
    await engine.order(message.job_id, "pause")
    assert (await worker.exchange())[1] == ()
    assert (await engine.attempt(message.task_id))["state"] == "parked"
    assert await engine.messages() == []


async def test_a_message_of_an_old_dispatch_goes_without_a_grant(engine: Engine, worker: HandWorker) -> None:
    message = await engine.message(await engine.create("echo_test"))
    await engine.query("UPDATE dagapp.dag_attempts SET dispatch_no = 2")
    assert (await worker.exchange())[1] == ()
    assert await engine.messages() == []
    assert (await engine.attempt(message.task_id))["state"] == "queued"


async def test_an_answer_that_is_lost_costs_a_lease(engine: Engine, worker: HandWorker) -> None:
    """Nothing renews what nobody knows of: it is tried again like the task of a lost worker."""
    first = await engine.message(await engine.create("chain_10"))
    await worker.claim(first)
    await engine.query("DELETE FROM dagqueue.messages")
    _, (lost,) = await worker.exchange(completed(first))
    (again,), grants = await worker.exchange(completed(first))
    assert (again.disposition, grants) == ("duplicate", ())
    await engine.lapse(lost.message.task_id)
    await engine.advance(first.job_id)
    assert (await engine.attempt(lost.message.task_id))["state"] == "expired"
    (late,), _ = await worker.exchange(completed(lost.message))
    assert late.disposition == "superseded"


async def test_a_retry_takes_the_way_through_the_queue(engine: Engine, worker: HandWorker) -> None:
    """Its claim looks for what the attempt before had saved."""
    message = await engine.message(await engine.create("echo_test"))
    attempt = Attempt.model_validate(await engine.attempt(message.task_id))
    request = ExchangeRequest(worker=worker.identity, free=Capacity(slots=9), claim_id="c")
    room = Room(request, 20.0, Free(9, 0))
    task = Task(attempt, message.params, None, message.token, None)
    assert room.lease(task._replace(attempt=attempt.model_copy(update={"attempt": 1})), attempt.queued_at) is None
    leased = room.lease(task, attempt.queued_at)
    assert leased is not None
    assert (leased.state, leased.claim_id) == ("leased", "c")


async def test_what_needs_more_than_the_event_loop_comes_by_message(engine: Engine) -> None:
    message = await engine.message(await engine.create("echo_test"))
    assert is_small(message.handler, None)
    large = PayloadRef(blob="payloads/x", sha256="0" * 64, size_bytes=100_000)
    assert not is_small(message.handler, large)
    others = ("raster.create_cog", "source.fetch", "raster.stac_ensure_collection", "nobody")
    assert not any(is_small(name, None) for name in others)


async def test_calls_about_one_job_at_once_are_each_applied_and_answered_with_tasks(
    pool: AsyncPool, blobs: BlobRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them finds the job held by its neighbour, which would leave its results to the owner's next look."""
    monkeypatch.setattr("services.turns.MOST_SECONDS", 60)  # however slow the machine is
    fans, calls = await four_calls_about_one_job(pool, blobs)
    for answers, grants in await asyncio.gather(*calls):
        assert [answer.disposition for answer in answers] == ["applied"] * 5
        assert len(grants) == 5
    assert (await fans.row())["succeeded"] == 20


async def test_calls_that_do_not_get_their_turn_in_time_lose_nothing(
    pool: AsyncPool, blobs: BlobRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What finds the job held is stored, and applied by the owner's next look."""
    monkeypatch.setattr("services.turns.MOST_SECONDS", 0)
    fans, calls = await four_calls_about_one_job(pool, blobs)
    for answers, _ in await asyncio.gather(*calls):
        assert [answer.disposition for answer in answers] == ["applied"] * 5
    await fans.advance()
    assert (await fans.row())["succeeded"] == 20


async def four_calls_about_one_job(
    pool: AsyncPool, blobs: BlobRepository
) -> tuple[Fans, list[Coroutine[Any, Any, tuple[list[ResultAnswer], Sequence[Grant]]]]]:
    """Return calls that report five children each, of a fan-out of which twenty may run and as many wait."""
    fans = await Fans.start(pool, blobs, list(range(40)), "max_concurrency: 20")
    first = await fans.fresh()
    await fans.worker.claim(*first)
    await fans.engine.query("DELETE FROM dagqueue.messages")
    return fans, [fans.worker.exchange(*map(completed, first[start : start + 5])) for start in range(0, 20, 5)]


async def many_children(pool: AsyncPool, blobs: BlobRepository) -> tuple[Fans, Sequence[TaskMessage]]:
    """Return a fan-out of which so many children run that their results are written before they are evaluated."""
    fans = await Fans.start(pool, blobs, list(range(MANY)))
    messages = await fans.fresh()
    await fans.worker.claim(*messages)
    return fans, messages


INBOX = "SELECT processed, disposition, count(*) FROM dagapp.dag_task_results GROUP BY 1, 2 ORDER BY count(*)"


async def test_results_that_could_not_be_evaluated_wait_in_the_inbox_however_many(
    pool: AsyncPool, blobs: BlobRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    fans, messages = await many_children(pool, blobs)

    def fails(*_: object, **_more: object) -> NoReturn:
        raise ArithmeticError

    with monkeypatch.context() as patch:
        patch.setattr("services.evaluation.advance", fails)
        answers = await fans.worker.complete(*messages)
    assert {answer.disposition for answer in answers} == {"applied"}
    assert await fans.engine.query(INBOX) == [{"processed": False, "disposition": None, "count": MANY}]
    await fans.advance()
    assert await fans.engine.query(INBOX) == [{"processed": True, "disposition": "applied", "count": MANY}]
    assert (await fans.row())["succeeded"] == MANY


async def test_a_result_that_nobody_can_use_is_told_apart_among_however_many(
    pool: AsyncPool, blobs: BlobRepository
) -> None:
    fans, messages = await many_children(pool, blobs)
    unusable = completed(messages[3]).model_copy(update={"output": None})
    answers = await fans.worker.report(*(completed(one) for one in messages if one is not messages[3]), unusable)
    assert [answer.disposition for answer in answers] == [*["applied"] * (MANY - 1), "rejected"]
    assert await fans.engine.query(INBOX) == [
        {"processed": True, "disposition": "poison", "count": 1},
        {"processed": True, "disposition": "applied", "count": MANY - 1},
    ]
    row = await fans.row()
    assert (row["succeeded"], row["failed"]) == (MANY - 1, 1)
