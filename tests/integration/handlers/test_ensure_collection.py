"""The collection is created once, by the worker's own database role, and never twice or changed."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from psycopg import AsyncConnection

from core.stac import collection_document
from core.stac_params import EnsureCollectionOutput, EnsureCollectionParams
from handlers.context import Checkpoint, InlineContext, TaskInfo
from handlers.stac.ensure_collection import ensure_collection
from repositories import pgstac, roles
from repositories.database import AsyncPool, async_pool, transaction
from tests.support.databases import Database


@pytest.fixture
async def worker_pool(database: Database) -> AsyncIterator[AsyncPool]:
    """Return an open pool as geodag_worker."""
    async with async_pool(database.conninfo(roles.WORKER), name="worker", min_size=1, max_size=8) as pool:
        yield pool


def context(open_transaction: Callable[[], AbstractAsyncContextManager[Any]]) -> InlineContext:
    return InlineContext(
        task=TaskInfo("job_node_1", "job", "node", 1),
        params={},
        logger=logging.LoggerAdapter(logging.getLogger("test")),
        checkpoint=Checkpoint(None, lambda _: None),
        report=lambda _: None,
        open_transaction=open_transaction,
        write_journal=lambda _: None,
    )


async def ensure(pool: AsyncPool, title: str = "Rasters") -> EnsureCollectionOutput:
    params = EnsureCollectionParams(collection_id="ddh-rasters", title=title)
    outcome = await ensure_collection(context(lambda: transaction(pool)), params)
    return EnsureCollectionOutput.model_validate(outcome.output)


async def test_the_first_creates_it_and_the_second_leaves_it_alone(
    worker_pool: AsyncPool, conn: AsyncConnection[Any]
) -> None:
    assert await ensure(worker_pool) == EnsureCollectionOutput(collection_id="ddh-rasters", created=True)
    assert await ensure(worker_pool, "Another title") == EnsureCollectionOutput(
        collection_id="ddh-rasters", created=False
    )
    stored = await pgstac.read_collection(conn, "ddh-rasters")
    assert pgstac.differences(collection_document("ddh-rasters", "Rasters"), stored) == ()


async def test_of_many_at_once_one_creates_it(worker_pool: AsyncPool) -> None:
    answers = await asyncio.gather(*(ensure(worker_pool) for _ in range(8)))
    assert [answer.created for answer in answers].count(True) == 1


async def test_a_transaction_that_loses_its_fence_writes_nothing(
    worker_pool: AsyncPool, conn: AsyncConnection[Any]
) -> None:
    class FenceLost(Exception):
        pass

    @asynccontextmanager
    async def overtaken() -> AsyncIterator[AsyncConnection[Any]]:
        async with transaction(worker_pool) as connection:
            yield connection
            raise FenceLost

    params = EnsureCollectionParams(collection_id="ddh-rasters", title="Rasters")
    with pytest.raises(FenceLost):
        await ensure_collection(context(overtaken), params)
    assert await pgstac.read_collection(conn, "ddh-rasters") is None
