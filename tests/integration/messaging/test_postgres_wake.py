"""Wake-ups of the embedded queue: one idle worker for one enqueue, and no message lost without them."""

import asyncio
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql

from core.ports import Delivery
from messaging.listener import Listener
from messaging.postgres import PostgresTaskReceiver
from repositories import roles
from repositories.database import AsyncPool, listen, transaction
from tests.support.databases import Database
from tests.support.queues import QUEUE, QueueAdapter, message
from tests.support.waiting import await_until


async def idle_consumers(pool: AsyncPool) -> int:
    async with transaction(pool) as conn:
        cursor = await conn.execute("SELECT count(*) FROM dagqueue.consumers WHERE idle")
        row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def test_one_enqueue_wakes_exactly_one_of_many_idle_workers(queue_adapter: QueueAdapter, pool: AsyncPool) -> None:
    receivers = [await queue_adapter.receiver() for _ in range(4)]
    waiting = [asyncio.create_task(receiver.receive(1, 60)) for receiver in receivers]
    await await_until(lambda: _all_idle(pool, 4), "all idle")
    async with transaction(pool) as conn:
        await queue_adapter.queue.enqueue(conn, [message("a"), message("b")])
        cursor = await conn.execute("SELECT count(*) FROM dagqueue.consumers WHERE NOT idle")
        assert await cursor.fetchone() == (1,)
    await await_until(lambda: _done(waiting, 2), "both messages received: the first one woken passes it on")
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def _all_idle(pool: AsyncPool, count: int) -> bool:
    return await idle_consumers(pool) == count


async def _done(tasks: list[Any], count: int) -> bool:
    return sum(task.done() for task in tasks) == count


async def test_an_enqueue_without_idle_workers_notifies_nobody(queue_adapter: QueueAdapter, database: Database) -> None:
    heard: list[str] = []
    dsn = database.conninfo(roles.WORKER)
    busy = await queue_adapter.receiver()
    await queue_adapter.send(message("first"))
    assert len(await busy.receive(1, 5)) == 1
    async with await listen(dsn, name="test") as conn:
        cursor = await conn.execute("SELECT channel FROM dagqueue.consumers")
        for (channel,) in await cursor.fetchall():
            await conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        await queue_adapter.send(message("second"))
        async for notification in conn.notifies(timeout=0.3):
            heard.append(notification.channel)
    assert heard == []


async def test_a_notification_has_no_payload(queue_adapter: QueueAdapter, database: Database, pool: AsyncPool) -> None:
    receiver = await queue_adapter.receiver()
    waiting = asyncio.create_task(receiver.receive(1, 30))
    await await_until(lambda: _all_idle(pool, 1), "idle")
    async with await listen(database.conninfo(roles.WORKER), name="test") as conn:
        cursor = await conn.execute("SELECT channel FROM dagqueue.consumers")
        ((channel,),) = await cursor.fetchall()
        await conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        await queue_adapter.send(message("a"))
        payloads = [notification.payload async for notification in conn.notifies(timeout=5, stop_after=1)]
    assert payloads == [""]
    assert len(await waiting) == 1


async def test_a_worker_without_listener_polls_every_200_ms(queue_adapter: QueueAdapter, database: Database) -> None:
    dsn = database.conninfo(roles.WORKER)

    async def connect() -> AsyncConnection[Any]:
        return await listen(dsn, name="test")

    async def refuse() -> AsyncConnection[Any]:
        raise psycopg.OperationalError("no listener here")

    receiver = PostgresTaskReceiver(connect, refuse, queue=QUEUE, consumer_id="deaf")
    waiting: asyncio.Task[Any] = asyncio.create_task(receiver.receive(1, 30))
    async with asyncio.timeout(5):
        await queue_adapter.send(message("a"))
        found: list[Delivery] = await waiting
    assert len(found) == 1
    assert not receiver.hears
    await receiver.close()


async def test_a_receiver_survives_the_loss_of_its_connections(
    queue_adapter: QueueAdapter, database: Database, pool: AsyncPool
) -> None:
    receiver = await queue_adapter.receiver()
    assert not await receiver.receive(1, 0.1)
    await end_connections(database, "test receiver")
    await queue_adapter.send(message("a"))
    async with asyncio.timeout(10):
        while not (found := await receiver.receive(1, 1)):
            pass
    assert len(found) == 1


async def end_connections(database: Database, name: str) -> None:
    async with await AsyncConnection.connect(database.admin, autocommit=True) as conn:
        await conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", (name,)
        )


async def test_a_listener_reports_every_channel_after_each_connect_and_proves_that_it_hears(database: Database) -> None:
    woken: list[str] = []

    async def connect() -> AsyncConnection[Any]:
        return await listen(database.conninfo(roles.WORKER), name="test listener")

    listener = Listener(connect, ["one", "two"], woken.append)
    listener.start()
    async with asyncio.timeout(10):
        await listener.hears.wait()
        assert woken == ["one", "two"]
        await end_connections(database, "test listener")
        await await_until(lambda: asyncio.sleep(0, len(woken) == 4), "both reported again")
        await listener.hears.wait()
    await listener.close()


async def test_a_listener_that_never_hears_itself_says_so(database: Database) -> None:
    class Deaf(AsyncConnection[Any]):
        """A connection as behind a pooler that swallows LISTEN."""

        async def execute(self, query: Any, *more: Any, **options: Any) -> Any:
            if "LISTEN" in str(query):
                query = "SELECT 1"
            return await super().execute(query, *more, **options)

    async def connect() -> AsyncConnection[Any]:
        return await Deaf.connect(database.conninfo(roles.WORKER), autocommit=True)

    reported: list[str] = []
    listener = Listener(connect, ["one"], reported.append)
    listener.start()
    await await_until(lambda: asyncio.sleep(0, len(reported) >= 2), "it tried again", timeout_seconds=15)
    assert not listener.hears.is_set()
    await listener.close()


async def test_a_listener_outlives_any_error(database: Database) -> None:
    """As on a standby during a failover, where LISTEN is refused with an error of no connection's kind."""
    failures = iter([psycopg.errors.ReadOnlySqlTransaction("cannot execute LISTEN during recovery"), ValueError("odd")])
    heard: list[str] = []

    async def connect() -> AsyncConnection[Any]:
        if error := next(failures, None):
            raise error
        return await listen(database.conninfo(roles.WORKER), name="test")

    listener = Listener(connect, ["test_channel"], heard.append)
    listener.start()
    await asyncio.wait_for(listener.hears.wait(), 5)
    assert heard == ["test_channel"]
    await listener.close()
