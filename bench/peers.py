"""The durable queues that the engine is compared with: procrastinate and pgqueuer, each as its own pages advise.

Each has a database of its own on the same server and two workers. A task is done when the peer's own table says so. A
queue forgets what a task returns and knows no fan-in, so who needs both writes them: each task of a fan-out stores its
result in a table, and once none is open one statement gathers these in the order of the items. Other tasks do nothing.
`python -m bench.peers NAME` is one worker; its database comes from `PEER_DSN`.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
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
ECHO, ITEM = "bench_echo", "bench_item"
"""The task that does nothing, and the one that stores its result."""
TABLES = """
CREATE TABLE bench_results (item integer PRIMARY KEY, value jsonb NOT NULL);
CREATE TABLE bench_outputs (output jsonb NOT NULL)
"""
FAN_IN: LiteralString = """
WITH results AS (DELETE FROM bench_results RETURNING item, value)
INSERT INTO bench_outputs SELECT jsonb_agg(value ORDER BY item) FROM results RETURNING jsonb_array_length(output)
"""


class Peer(Protocol):
    """One queue: how its schema is made, how tasks come in, how they are worked, and how many are not done yet."""

    open_tasks: LiteralString
    """Statement that counts them."""

    async def install(self, dsn: str) -> None:
        """Make the schema."""

    async def work(self, dsn: str) -> None:
        """Work until cancelled."""

    def submitting(self, dsn: str) -> Any:
        """Yield (submit one, submit many of a name, each with its item)."""


Submit = tuple[Callable[[], Awaitable[Any]], Callable[[str, Sequence[int]], Awaitable[Any]]]


class Procrastinate:
    """https://procrastinate.readthedocs.io: one fetch and one finish a task, on a pool."""

    open_tasks = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"

    def _app(self, dsn: str) -> procrastinate.App:
        connector = procrastinate.PsycopgConnector(conninfo=dsn, min_size=4, max_size=20)
        app = procrastinate.App(connector=connector)

        @app.task(name=ECHO, queue="bench")
        async def echo(item: int) -> int:
            return item

        @app.task(name=ITEM, queue="bench")
        async def store(item: int) -> None:
            await connector.execute_query_async(
                "INSERT INTO bench_results (item, value) VALUES (%(item)s, to_jsonb(%(item)s::integer))", item=item
            )

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
        """Yield (submit one, submit many of a name, each with its item)."""
        app = self._app(dsn)
        async with app.open_async():
            yield (
                lambda: app.tasks[ECHO].defer_async(item=0),
                lambda name, items: app.tasks[name].batch_defer_async(*map(_item, items)),
            )


def _item(number: int) -> dict[str, procrastinate.types.JSONValue]:
    return {"item": number}


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

            @queuer.entrypoint(ECHO)
            async def echo(job: Job) -> None:
                assert job.payload is not None

            @queuer.entrypoint(ITEM)
            async def store(job: Job) -> None:
                item = int(job.payload or b"")
                await pool.execute("INSERT INTO bench_results (item, value) VALUES ($1, to_jsonb($1::integer))", item)

            await queuer.run(batch_size=IN_FLIGHT)

    @asynccontextmanager
    async def submitting(self, dsn: str) -> AsyncIterator[Submit]:
        """Yield (submit one, submit many of a name, each with its item)."""
        async with asyncpg.create_pool(dsn, min_size=2, max_size=10) as pool:
            queries = Queries.from_asyncpg_pool(pool)
            yield (
                lambda: queries.enqueue(ECHO, b"0"),
                lambda name, items: queries.enqueue(
                    [name] * len(items), [str(item).encode() for item in items], [0] * len(items)
                ),
            )


PEERS: dict[str, Peer] = {"procrastinate": Procrastinate(), "pgqueuer": PgQueuerPeer()}


@dataclass(frozen=True, slots=True)
class Rates:
    """Measures one queue; every rate is in tasks a second, from the first submit to the last task done."""

    peer: Peer
    submit: Submit
    conn: psycopg.AsyncConnection[Any]

    async def warm_up(self) -> None:
        """Let pools and prepared statements fill."""
        await self.batch(100)
        await self.fan_out(100)

    async def single(self, count: int) -> float:
        """Submit tasks one by one, some at a time."""
        one, _ = self.submit
        gate = asyncio.Semaphore(IN_FLIGHT)

        async def gated() -> None:
            async with gate:
                await one()

        began = time.perf_counter()
        await asyncio.gather(*(gated() for _ in range(count)))
        await self._done()
        return count / (time.perf_counter() - began)

    async def batch(self, count: int) -> float:
        """Submit tasks by few calls."""
        began = time.perf_counter()
        await self._submit(ECHO, count)
        return count / (time.perf_counter() - began)

    async def fan_out(self, count: int) -> float:
        """Submit tasks by few calls, and gather their results."""
        began = time.perf_counter()
        await self._submit(ITEM, count)
        if (await (await self.conn.execute(FAN_IN)).fetchone()) != (count,):
            raise RuntimeError("results are missing")
        return count / (time.perf_counter() - began)

    async def _submit(self, task: str, count: int) -> None:
        _, many = self.submit
        for start in range(0, count, CHUNK):
            await many(task, range(start, min(start + CHUNK, count)))
        await self._done()

    async def _done(self) -> None:
        deadline = time.perf_counter() + TIMEOUT_SECONDS
        while (await (await self.conn.execute(self.peer.open_tasks)).fetchone()) != (0,):
            if time.perf_counter() > deadline:
                raise TimeoutError("the peer's tasks are not done")
            await asyncio.sleep(LOOK_SECONDS)


@asynccontextmanager
async def measuring(peer: Peer, dsn: str) -> AsyncIterator[Rates]:
    """Yield what measures a queue, warm."""
    conn = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
    async with conn, peer.submitting(dsn) as submit:
        await conn.execute(TABLES)
        rates = Rates(peer, submit, conn)
        await rates.warm_up()
        yield rates


def main() -> None:
    """Be one worker until SIGTERM."""
    asyncio.run(PEERS[sys.argv[1]].work(os.environ["PEER_DSN"]))


if __name__ == "__main__":
    main()
