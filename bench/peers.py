"""The durable queues that the engine is compared with: procrastinate and pgqueuer, each as its own pages advise.

Each has a database of its own on the same server and two workers, whose task does nothing. A task is done when the
peer's own table says so. `python -m bench.peers NAME` is one worker; its database comes from `PEER_DSN`.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, LiteralString, Protocol

import asyncpg
import procrastinate
import procrastinate.types
import psycopg
from pgqueuer import AsyncpgPoolDriver, Job, PgQueuer, Queries

WORKERS = 2
IN_FLIGHT = 64
CHUNK = 1000
LOOK_SECONDS = 0.01
TIMEOUT_SECONDS = 120.0
TASK = "bench_echo"
MESSAGE: dict[str, procrastinate.types.JSONValue] = {"message": "bench"}


class Peer(Protocol):
    """One queue: how its schema is made, how tasks come in, how they are worked, and how many are not done yet."""

    open_tasks: LiteralString
    """Statement that counts them."""

    async def install(self, dsn: str) -> None:
        """Make the schema."""

    async def work(self, dsn: str) -> None:
        """Work until cancelled."""

    def submitting(self, dsn: str) -> Any:
        """Yield (submit one, submit many)."""


Submit = tuple[Callable[[], Awaitable[Any]], Callable[[int], Awaitable[Any]]]


class Procrastinate:
    """https://procrastinate.readthedocs.io: one fetch and one finish a task, on a pool."""

    open_tasks = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"

    def _app(self, dsn: str) -> procrastinate.App:
        app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn, min_size=4, max_size=20))

        @app.task(name=TASK, queue="bench")
        async def echo(message: str) -> str:
            return message

        return app

    async def install(self, dsn: str) -> None:
        """Make the schema."""
        app = self._app(dsn)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def work(self, dsn: str) -> None:
        """Work until cancelled."""
        app = self._app(dsn)
        async with app.open_async():
            await app.run_worker_async(queues=["bench"], concurrency=IN_FLIGHT, install_signal_handlers=False)

    @asynccontextmanager
    async def submitting(self, dsn: str) -> AsyncIterator[Submit]:
        """Yield (submit one, submit many)."""
        app = self._app(dsn)
        async with app.open_async():
            task = app.tasks[TASK]
            yield (
                lambda: task.defer_async(message="bench"),
                lambda count: task.batch_defer_async(*[MESSAGE] * count),
            )


class PgQueuerPeer:
    """https://pgqueuer.readthedocs.io: fetches and finishes in batches, over asyncpg."""

    open_tasks = "SELECT count(*) FROM pgqueuer"

    async def install(self, dsn: str) -> None:
        """Make the schema."""
        connection = await asyncpg.connect(dsn)
        try:
            await Queries.from_asyncpg_connection(connection).install()
        finally:
            await connection.close()

    async def work(self, dsn: str) -> None:
        """Work until cancelled."""
        async with asyncpg.create_pool(dsn, min_size=2, max_size=10) as pool:
            queuer = PgQueuer(AsyncpgPoolDriver(pool))

            @queuer.entrypoint(TASK)
            async def echo(job: Job) -> None:
                assert job.payload is not None

            await queuer.run(batch_size=IN_FLIGHT)

    @asynccontextmanager
    async def submitting(self, dsn: str) -> AsyncIterator[Submit]:
        """Yield (submit one, submit many)."""
        async with asyncpg.create_pool(dsn, min_size=2, max_size=10) as pool:
            queries = Queries.from_asyncpg_pool(pool)
            yield (
                lambda: queries.enqueue(TASK, b"bench"),
                lambda count: queries.enqueue([TASK] * count, [b"bench"] * count, [0] * count),
            )


PEERS: dict[str, Peer] = {"procrastinate": Procrastinate(), "pgqueuer": PgQueuerPeer()}


async def rates(peer: Peer, dsn: str, *, singles: int, fans: tuple[int, ...]) -> tuple[float, dict[int, float]]:
    """Return tasks a second of `singles` submitted one by one, and of each number submitted in batches."""
    conn = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
    async with conn, peer.submitting(dsn) as (one, many):

        async def done() -> None:
            deadline = time.perf_counter() + TIMEOUT_SECONDS
            while (await (await conn.execute(peer.open_tasks)).fetchone()) != (0,):
                if time.perf_counter() > deadline:
                    raise TimeoutError("the peer's tasks are not done")
                await asyncio.sleep(LOOK_SECONDS)

        gate = asyncio.Semaphore(IN_FLIGHT)

        async def gated() -> None:
            async with gate:
                await one()

        await many(100)
        await done()
        began = time.perf_counter()
        await asyncio.gather(*(gated() for _ in range(singles)))
        await done()
        single = singles / (time.perf_counter() - began)
        batches = {}
        for count in fans:
            began = time.perf_counter()
            for start in range(0, count, CHUNK):
                await many(min(CHUNK, count - start))
            await done()
            batches[count] = count / (time.perf_counter() - began)
    return single, batches


def main() -> None:
    """Be one worker until SIGTERM."""
    asyncio.run(PEERS[sys.argv[1]].work(os.environ["PEER_DSN"]))


if __name__ == "__main__":
    main()
