"""A node that starts anew while somebody still stores something for its run before."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench.simulation.patching import replaced
from repositories.blobs_folder import FolderBlobRepository
from repositories.database import AsyncPool, transaction
from repositories.fan_outs import FanOutRepository
from tests.support.databases import Database
from tests.support.engine import Engine, workflows_of
from tests.support.gaps.desk import SMALL, HandDesk
from tests.support.gaps.scenes import LARGE, SOURCES, Scene, serve
from tests.support.stepping import Caller, Stops


@pytest.fixture
async def scene(pool: AsyncPool, tmp_path: Path) -> AsyncIterator[Scene]:
    """Return a job whose large source is known and not stored as rows yet."""
    blobs = FolderBlobRepository(tmp_path / "blobs")
    with replaced(*SMALL):
        scene = Scene(Engine(pool, workflows_of(*SOURCES), blobs=blobs, desk_of=HandDesk), "large")
        await scene.create(scene.admin)
        desk = scene.admin.desk
        assert isinstance(desk, HandDesk)
        await desk.serve_one()
        assert await states(scene) == ["expanding"]
        yield scene


async def states(scene: Scene) -> list[str]:
    return [row["state"] for row in await scene.admin.query("SELECT state FROM dagapp.dag_fan_outs")]


async def items(scene: Scene) -> list[Any]:
    rows = await scene.admin.query("SELECT items FROM dagapp.dag_fan_out_items ORDER BY chunk_no")
    return [item["n"] for row in rows for item in row["items"]]


@pytest.mark.parametrize("node_id", ["start", "many"])
async def test_items_of_the_run_before_are_not_taken_for_those_of_the_next(
    scene: Scene, pool: AsyncPool, database: Database, node_id: str
) -> None:
    job_id, caller = scene.jobs[0], Caller(pool, Stops.NOWHERE)
    other = Engine(caller.pool, scene.admin.catalogue, blobs=scene.admin.blobs, desk_of=HandDesk)
    async with await psycopg.AsyncConnection.connect(database.admin, autocommit=True) as observer:
        async with transaction(pool) as conn:
            assert await FanOutRepository(conn).store_lines(job_id, "many", 1, 0, ['[{"n": 98}, {"n": 99}]'])
            order = caller.start(lambda: other.order(job_id, "rerun", node_id=node_id))
            assert not await caller.settled(observer), "it waits for who stores"
        await order
    assert await items(scene) == []
    await serve(other)
    await scene.admin.advance(job_id)
    assert (await states(scene), await items(scene)) == (["running"], [one["n"] for one in LARGE])
