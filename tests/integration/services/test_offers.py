"""Workers that wait at an instance: new tasks are leased to them at once, unless something older waits."""

import pytest

from core.errors import NotFound
from services.jobs import Order
from services.submits import Submits
from tests.support.engine import Engine, HandWorker


async def order(engine: Engine) -> Order:
    return await engine.jobs.order(workflow_id="echo_test", inputs={})


async def test_a_new_job_runs_where_a_worker_waits(engine: Engine, worker: HandWorker) -> None:
    offer = engine.offers.open(worker.wish(2))
    submits = Submits(engine.pool, engine.jobs, engine.offers)
    job = (await submits.create(await order(engine))).job
    (grant,) = await offer.granted
    assert await engine.messages() == []
    assert (await engine.statuses(job.job_id))["echo_handler"] == "RUNNING"
    attempt = await engine.attempt(grant.message.task_id)
    assert (attempt["state"], attempt["claim_id"]) == ("leased", offer.request.claim_id)
    assert (await engine.events(job.job_id))[-1] == "node_started"
    assert [one.disposition for one in await worker.complete(grant.message)] == ["applied"]
    assert [one.job_id for one in engine.ended] == [job.job_id]


async def test_an_offer_is_filled_once_and_the_rest_goes_to_the_queue(engine: Engine, worker: HandWorker) -> None:
    offer = engine.offers.open(worker.wish(2))
    async with engine.offers.transaction(engine.pool) as (conn, lent):
        await engine.jobs.create_many(conn, [await order(engine) for _ in range(5)], lent)
    assert len(await offer.granted) == 2
    assert len(await engine.messages()) == 3


async def test_those_who_wait_are_served_in_turns(engine: Engine, worker: HandWorker) -> None:
    offers = [engine.offers.open(worker.wish(9)), engine.offers.open(worker.wish(1))]
    async with engine.offers.transaction(engine.pool) as (conn, lent):
        await engine.jobs.create_many(conn, [await order(engine) for _ in range(4)], lent)
    assert [len(await offer.granted) for offer in offers] == [3, 1]
    assert await engine.messages() == []


async def test_older_messages_go_first(engine: Engine, worker: HandWorker) -> None:
    await engine.create("echo_test")
    offer = engine.offers.open(worker.wish(9))
    async with engine.offers.transaction(engine.pool) as (conn, lent):
        await engine.jobs.create_many(conn, [await order(engine)], lent)
    assert not offer.granted.done()
    assert len(await engine.messages()) == 2
    await engine.query("DELETE FROM dagqueue.messages")
    async with engine.offers.transaction(engine.pool) as (conn, lent):
        await engine.jobs.create_many(conn, [await order(engine)], lent)
    assert len(await offer.granted) == 1


async def test_what_is_rolled_back_was_never_granted(engine: Engine, worker: HandWorker) -> None:
    offer = engine.offers.open(worker.wish(9))

    async def fail() -> None:
        async with engine.offers.transaction(engine.pool) as (conn, lent):
            await engine.jobs.create_many(conn, [await order(engine)], lent)
            raise NotFound("the transaction fails at its end")

    with pytest.raises(NotFound):
        await fail()
    assert not offer.granted.done()
    async with engine.offers.transaction(engine.pool) as (conn, lent):
        (job,) = await engine.jobs.create_many(conn, [await order(engine)], lent)
    assert [grant.message.job_id for grant in await offer.granted] == [job.job_id]


async def test_one_transaction_at_a_time_has_an_offer(engine: Engine, worker: HandWorker) -> None:
    offer = engine.offers.open(worker.wish(1))
    async with engine.offers.transaction(engine.pool) as (first, lent):
        async with engine.offers.transaction(engine.pool) as (second, nothing):
            await engine.jobs.create_many(second, [await order(engine)], nothing)
        engine.offers.close(offer)
        assert not offer.granted.done()
        (job,) = await engine.jobs.create_many(first, [await order(engine)], lent)
    assert await offer.granted == ()
    assert len(await engine.messages(job.job_id)) == 1


async def test_who_waits_no_longer_is_given_nothing(engine: Engine, worker: HandWorker) -> None:
    gone, leaving = engine.offers.open(worker.wish(1)), engine.offers.open(worker.wish(1, "draining"))
    engine.offers.close(gone)
    async with engine.offers.transaction(engine.pool) as (conn, lent):
        await engine.jobs.create_many(conn, [await order(engine)], lent)
    assert await gone.granted == ()
    engine.offers.close_all()
    assert await leaving.granted == ()
    assert len(await engine.messages()) == 1
