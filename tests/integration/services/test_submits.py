"""Submits that come together are stored together, and each gets its own answer."""

import asyncio
from dataclasses import replace

import psycopg
import pytest

from core.errors import DatabaseUnavailable
from repositories.database import AsyncPool, async_pool
from services.jobs import Created, Order
from services.submits import MAX_TOGETHER, Submits
from tests.support.databases import Database
from tests.support.engine import Engine


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


async def test_an_error_reaches_only_whoever_caused_it(pool: AsyncPool) -> None:
    engine = Engine(pool)
    submits, orders = Submits(pool, engine.jobs, engine.offers), await orders_of(engine, 4)
    orders[1] = replace(orders[1], priority=10**9)
    fates = await asyncio.gather(*(submits.create(order) for order in orders), return_exceptions=True)
    assert [type(fate) for fate in fates] == [Created, psycopg.errors.NumericValueOutOfRange, Created, Created]


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
