"""A child whose result was set aside, though its attempt was the current one, keeps nobody for ever."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from core.ports import BlobRepository
from repositories.database import AsyncPool
from services.stalls import StallService
from tests.integration.services.fans import Fans

Start = Callable[..., Awaitable[Fans]]
SET_ASIDE = "UPDATE dagapp.dag_task_results SET processed = true, disposition = 'superseded' WHERE task_id = %s"


@pytest.fixture
def start(pool: AsyncPool, blobs: BlobRepository) -> Start:
    """Return how a job with a fan-out is created."""
    return partial(Fans.start, pool, blobs)


async def stuck(start: Start) -> Fans:
    """Return a fan-out with one child whose result was set aside, and one that has ended."""
    fans = await start([1, 2])
    first, second = await fans.fresh()
    await fans.worker.claim(first, second)
    async with fans.engine.pool.connection() as conn:
        await conn.execute("SELECT 1 FROM dagapp.dag_jobs WHERE job_id = %s FOR NO KEY UPDATE", (fans.job_id,))
        await fans.worker.complete(first)
    await fans.engine.query(SET_ASIDE, first.task_id)
    await fans.worker.complete(second)
    await fans.advance()
    return fans


async def test_a_stalled_child_is_lost_and_tried_again(start: Start) -> None:
    fans = await stuck(start)
    service = StallService(fans.engine.pool, fans.engine.advance_service)
    assert await fans.children() == {"many__0": "DISPATCHED", "many__1": "COMPLETED"}
    assert await service.move_stalled() == 1
    (again,) = await fans.fresh()
    assert (again.node_id, again.attempt) == ("many__0", 1)
    assert await service.move_stalled() == 0
    await fans.worker.run(again)
    assert await fans.status() == "COMPLETED"
    row = await fans.engine.query("SELECT losses_used FROM dagapp.dag_node_states WHERE node_id = 'many__0'")
    assert row == [{"losses_used": 1}]


async def test_a_fan_out_with_a_stalled_child_can_be_cancelled(start: Start) -> None:
    fans = await stuck(start)
    answer = await fans.engine.order(fans.job_id, "cancel")
    assert answer.job.status == "CANCELLED"
    assert await fans.children() == {"many__0": "CANCELLED", "many__1": "COMPLETED"}
