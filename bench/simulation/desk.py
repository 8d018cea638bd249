"""The desk where evaluations leave what they want done beside them; here what it does is part of the history."""

import asyncio
from collections.abc import Mapping
from typing import Any

from bench.simulation.world import CURRENT, Process, World
from repositories.payloads import PayloadStore
from services.payload_desk import AT_A_TIME, Make, PayloadDesk

UNLIMITED = 1000


class SimulatedDesk(PayloadDesk):
    """The real desk whose work gets its turns from the world; nobody waits for a place at it."""

    def __init__(self, store: PayloadStore, world: World, process: Process) -> None:
        super().__init__(store, _turns={pace: asyncio.Semaphore(UNLIMITED) for pace in AT_A_TIME})
        self._world = world
        self._process = process
        self._asked: set[str] = set()

    def _start(self, key: str, facts: Mapping[str, Any], make: Make, pace: str) -> None:
        async def serve() -> None:
            try:
                await self._serve(key, facts, make, pace)
            finally:
                self._asked.discard(key)

        if key not in self._asked:
            self._asked.add(key)
            self._world.spawn(self._process, serve, f"makes {key}")


class VirtualAsyncio:
    """Stands in for the module `asyncio` where production code sleeps, and makes tasks that it waits for at once."""

    create_task = staticmethod(asyncio.create_task)
    """The task has the turn of whoever waits for it; no fan-out here has so many items that he would sleep first."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def sleep(self, seconds: float) -> None:
        """Give up the turn for so long."""
        await self._world.pause(CURRENT.get(), seconds)
