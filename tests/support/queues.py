"""Queue adapters under the conformance suite; a new adapter joins by one more factory in ADAPTERS."""

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from psycopg import AsyncConnection

from core.ports import TaskQueue, TaskReceiver
from core.wire import TaskMessage
from messaging.postgres import PostgresTaskQueue, PostgresTaskReceiver
from repositories import roles
from repositories.database import AsyncPool, listen, transaction
from tests.support.databases import Database

QUEUE = "functionapp-tasks"
_NUMBERS = itertools.count()


def message(
    name: str = "a", *, priority: int = 5, dispatch_no: int = 1, queue: str = QUEUE, **params: Any
) -> TaskMessage:
    """Return a message of a task `job_<name>_0`."""
    return TaskMessage(
        task_id=f"job_{name}_0",
        job_id="job",
        node_id=name,
        attempt=0,
        dispatch_no=dispatch_no,
        handler="echo",
        queue=queue,
        priority=priority,
        params=params,
        timeout_seconds=60,
        token="00" * 16,
    )


@dataclass
class QueueAdapter:
    """One adapter: its sending side, its receivers, and what only the adapter's own tools can tell."""

    queue: TaskQueue
    open_receiver: Callable[..., TaskReceiver]
    transaction: Callable[[], AbstractAsyncContextManager[Any]]
    dead_letters: Callable[[], Any]
    put_unreadable: Callable[[str], Any]
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def send(self, *messages: TaskMessage) -> None:
        """Enqueue in a transaction of its own."""
        async with self.transaction() as conn:
            await self.queue.enqueue(conn, messages)

    async def receiver(self, **options: Any) -> TaskReceiver:
        """Return a receiver of the test queue, closed at the end."""
        receiver = self.open_receiver(**options)
        self.stack.push_async_callback(receiver.close)
        return receiver


async def postgres_adapter(database: Database, pool: AsyncPool) -> QueueAdapter:
    """Return the adapter of the embedded default, its receivers in the worker's role."""
    dsn = database.conninfo(roles.WORKER)

    async def connect() -> AsyncConnection[Any]:
        return await listen(dsn, name="test receiver")

    def open_receiver(queue: str = QUEUE, **options: Any) -> PostgresTaskReceiver:
        return PostgresTaskReceiver(connect, connect, queue=queue, consumer_id=f"c{next(_NUMBERS)}", **options)

    async def dead_letters() -> Sequence[tuple[str, str]]:
        async with transaction(pool) as conn:
            cursor = await conn.execute("SELECT message_id, reason FROM dagqueue.dead_letters ORDER BY dead_letter_id")
            return [(row[0], row[1]) for row in await cursor.fetchall()]

    async def put_unreadable(message_id: str) -> None:
        async with transaction(pool) as conn:
            await conn.execute(
                "INSERT INTO dagqueue.messages (message_id, queue, task_id, body) VALUES (%s, %s, 'x', %s)",
                (message_id, QUEUE, '{"token": "do not tell", "surprise": 1}'),
            )

    return QueueAdapter(PostgresTaskQueue(), open_receiver, lambda: transaction(pool), dead_letters, put_unreadable)


ADAPTERS = {"postgres": postgres_adapter}


@pytest.fixture(params=sorted(ADAPTERS))
async def queue_adapter(
    request: pytest.FixtureRequest, database: Database, pool: AsyncPool
) -> AsyncIterator[QueueAdapter]:
    """Return every adapter in turn."""
    adapter = await ADAPTERS[request.param](database, pool)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(adapter.stack.aclose)
        yield adapter
