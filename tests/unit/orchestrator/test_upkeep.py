"""Chores that fail are tried again; only what nobody foresaw leaves a traceback."""

import asyncio
import logging

import pytest

from core.errors import DatabaseUnavailable
from orchestrator.upkeep import upkeep


async def test_without_a_database_chores_wait_in_one_line_each(caplog: pytest.LogCaptureFixture) -> None:
    done: asyncio.Queue[str] = asyncio.Queue()

    async def sweeps() -> None:
        raise DatabaseUnavailable("the database is not available: PoolTimeout")

    async def breaks() -> None:
        raise ValueError("nobody foresaw it")

    async def goes_on() -> None:
        done.put_nowait("once more")

    with caplog.at_level(logging.WARNING):
        task = asyncio.create_task(upkeep([sweeps, breaks, goes_on], 0.001))
        for _ in range(2):
            await asyncio.wait_for(done.get(), 10)
        task.cancel()
        await asyncio.wait([task])
    said = {
        (one.levelname, one.message, one.exc_info is not None)
        for one in caplog.records
        if one.name == upkeep.__module__
    }
    assert said == {("WARNING", "upkeep waits for the database", False), ("ERROR", "upkeep failed", True)}
