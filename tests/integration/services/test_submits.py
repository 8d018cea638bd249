"""Submits that come together are stored together, and each gets its own answer."""

import asyncio
from dataclasses import replace

import pytest

from core.errors import DatabaseUnavailable
from core.models.engine import Job
from repositories.database import AsyncPool, async_pool
from services.jobs import Created, Order
from services.submits import MAX_TOGETHER, Submits
from services.work import Unwritable
from services.writing import STORED_TOGETHER
from tests.support.databases import Database
from tests.support.engine import Engine, HandWorker


async def orders_of(engine: Engine, count: int) -> list[Order]:
    return [await engine.jobs.order(workflow_id="echo_test", inputs={"message": str(n)}) for n in range(count)]


async def test_what_comes_while_a_transaction_is_under_way_goes_with_the_next(pool: AsyncPool) -> None:
    engine = Engine(pool)
    submits, orders = Submits(pool, engine.jobs, engine.offers), await orders_of(engine, MAX_TOGETHER + 10)
    created = await asyncio.gather(*(submits.create(order) for order in orders))
    assert [one.job.job_id for one in created] == [order.stored.job_id for order in orders]
    assert [one.job.input_params for one in created] == [order.stored.inputs for order in orders]
    assert len({one.job.created_at for one in created}) == 2
    alone = await submits.create((await orders_of(engine, 1))[0])
    assert (await engine.job(alone.job.job_id)).status == "RUNNING"


async def test_many_are_stored_in_parts_by_one_transaction(engine: Engine, worker: HandWorker) -> None:
    orders = await orders_of(engine, 2 * STORED_TOGETHER + 1)
    offer = engine.offers.open(worker.wish(STORED_TOGETHER + 1))

    async def create(orders: list[Order]) -> list[Job]:
        async with engine.offers.transaction(engine.pool) as (conn, lent):
            return await engine.jobs.create_many(conn, orders, lent)

    with pytest.raises(Unwritable):
        await create([*orders[:-1], replace(orders[-1], priority=10**9)])
    assert await engine.query("SELECT FROM dagapp.dag_jobs") == await engine.messages() == []
    assert not offer.granted.done()
    jobs = await create(orders)
    assert [job.job_id for job in jobs] == [order.stored.job_id for order in orders]
    granted = [grant.message.job_id for grant in await offer.granted]
    queued = [message.job_id for message in await engine.messages()]
    assert (len(granted), len(queued)) == (STORED_TOGETHER + 1, STORED_TOGETHER)
    assert sorted(granted + queued) == sorted(job.job_id for job in jobs)
    assert [(await engine.events(job.job_id))[0] for job in jobs] == ["job_created"] * len(jobs)


async def test_an_error_reaches_only_whoever_caused_it(pool: AsyncPool) -> None:
    engine = Engine(pool)
    submits, orders = Submits(pool, engine.jobs, engine.offers), await orders_of(engine, 4)
    orders[1] = replace(orders[1], priority=10**9)
    fates = await asyncio.gather(*(submits.create(order) for order in orders), return_exceptions=True)
    assert [type(fate) for fate in fates] == [Created, Unwritable, Created, Created]


async def test_batches_follow_each_other_also_after_one_that_fails(pool: AsyncPool) -> None:
    engine = Engine(pool)
    submits = Submits(pool, engine.jobs, engine.offers)
    batches = [await orders_of(engine, STORED_TOGETHER + 1) for _ in range(3)]
    batches[1][-1] = replace(batches[1][-1], priority=10**9)
    fates = await asyncio.gather(*map(submits.create_many, batches), return_exceptions=True)
    first, failed, last = fates
    assert isinstance(failed, Unwritable)
    assert isinstance(first, list)
    assert isinstance(last, list)
    assert [one.job.job_id for one in last] == [order.stored.job_id for order in batches[2]]
    assert first[-1].job.created_at < last[0].job.created_at
    assert await engine.query("SELECT count(*) FROM dagapp.dag_jobs") == [{"count": len(first) + len(last)}]


async def test_a_caller_that_goes_away_takes_nobody_with_it(pool: AsyncPool) -> None:
    engine = Engine(pool)
    submits, orders = Submits(pool, engine.jobs, engine.offers), await orders_of(engine, 3)
    calls = [asyncio.create_task(submits.create(order)) for order in orders]
    await asyncio.sleep(0)
    calls[0].cancel()
    fates = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(fate) for fate in fates] == [asyncio.CancelledError, Created, Created]


async def test_without_a_database_all_are_told_at_once(database: Database, pool: AsyncPool) -> None:
    engine, closed = Engine(pool), async_pool(database.conninfo(), name="closed")
    submits, orders = Submits(closed, engine.jobs, engine.offers), await orders_of(engine, 2)
    fates = await asyncio.gather(*(submits.create(order) for order in orders), return_exceptions=True)
    assert {type(fate) for fate in fates} == {DatabaseUnavailable}
    with pytest.raises(DatabaseUnavailable):
        await submits.create(orders[0])
