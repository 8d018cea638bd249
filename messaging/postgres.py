"""The embedded task queue: tables of schema `dagqueue`, received with SKIP LOCKED, woken by NOTIFY.

The queue row is the outbox row: `enqueue` writes it in the caller's transaction. A lost, late or repeated message
changes nothing but latency, since the claim decides; so the receiving side commits without waiting for the disk (set
per transaction, because a pooler would hand a session's setting on to others).
An idle receiver is a row of `dagqueue.consumers`; an enqueue clears the flag of one idle consumer and notifies its
channel, without payload. A notification that falls between a poll and the flag is made up for by quick polls after
going idle, and by the safety poll after that.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from pydantic_core import to_json

from core.errors import DatabaseUnavailable
from core.ids import message_id
from core.ports import Delivery
from core.wire import TaskMessage
from messaging.listener import CONNECTION_ERRORS, Connect, Listener
from messaging.taken import QueueNames, TakenMessages, delivery_of

log = logging.getLogger(__name__)

Connection = psycopg.AsyncConnection[Any]

LOCK_SECONDS = 60.0
RENEWED_SEEN_SECONDS = 5.0
CONSUMER_SILENT_SECONDS = 20.0
REGISTER_SECONDS = 600.0
"""A consumer registers again after this time: others remove rows that were not seen for an hour."""
DEAF_POLL_SECONDS = 0.2
IDLE_POLL_SECONDS = (0.004, 0.05, 0.3, 1.0)
"""Waits before the polls after going idle; the last one repeats and is the safety poll."""
RECONNECT_SECONDS = (0.1, 0.25, 0.5, 1.0)


class PostgresTaskQueue:
    """Sending side: writes into `dagqueue.messages` in the caller's transaction."""

    async def enqueue(self, conn: Connection, messages: Sequence[TaskMessage]) -> None:
        """Write messages and wake one idle consumer of each queue; both happen when the caller commits."""
        rows = [
            {
                "message_id": message_id(message.task_id, message.dispatch_no),
                "queue": message.queue,
                "priority": message.priority,
                "task_id": message.task_id,
                "body": message,
            }
            for message in messages
        ]
        if not rows:
            return
        await conn.execute(
            """
            WITH written AS (
                INSERT INTO dagqueue.messages (message_id, queue, priority, task_id, body)
                SELECT m.message_id, m.queue, m.priority, m.task_id, m.body
                FROM jsonb_to_recordset(%s::jsonb)
                    AS m(message_id text, queue text, priority smallint, task_id text, body jsonb)
                ON CONFLICT (message_id) DO NOTHING
            ),
            woken AS (
                UPDATE dagqueue.consumers SET idle = false
                WHERE consumer_id = ANY(ARRAY(
                    SELECT chosen.consumer_id
                    FROM unnest(%s::text[]) AS wanted(queue)
                    CROSS JOIN LATERAL (
                        SELECT c.consumer_id FROM dagqueue.consumers AS c
                        WHERE c.queue = wanted.queue AND c.idle
                            AND c.seen_at > dagapp.clock() - make_interval(secs => %s)
                        ORDER BY c.seen_at DESC LIMIT 1 FOR UPDATE SKIP LOCKED
                    ) AS chosen
                ))
                RETURNING channel
            )
            SELECT pg_notify(channel, '') FROM woken
            """,
            (to_json(rows).decode(), sorted({message.queue for message in messages}), CONSUMER_SILENT_SECONDS),
        )

    async def discard(self, conn: Connection, task_ids: Iterable[str]) -> None:
        """Delete messages of these tasks that no receiver holds."""
        await conn.execute(
            """
            DELETE FROM dagqueue.messages WHERE message_id = ANY(ARRAY(
                SELECT message_id FROM dagqueue.messages
                WHERE task_id = ANY(%s) AND (locked_until IS NULL OR locked_until <= dagapp.clock())
                FOR UPDATE SKIP LOCKED
            ))
            """,
            (list(task_ids),),
        )

    async def take(self, conn: Connection, queue: str, max_messages: int) -> TakenMessages:
        """Lock the first messages that nobody holds; the locks end with the transaction."""
        cursor = await conn.execute(
            """
            SELECT message_id, delivery_count, body::text FROM dagqueue.messages
            WHERE queue = %s AND visible_at <= dagapp.clock()
                AND (locked_until IS NULL OR locked_until <= dagapp.clock())
            ORDER BY priority DESC, enqueued_at, message_id LIMIT %s
            FOR UPDATE SKIP LOCKED
            """,
            (queue, max_messages),
        )
        return TakenMessages(cursor)

    async def backlog(self, conn: Connection, queues: Sequence[str]) -> QueueNames:
        """Ask which of these queues have messages that nobody holds."""
        cursor = await conn.execute(
            """
            SELECT q.name FROM unnest(%s::text[]) AS q(name) WHERE EXISTS (
                SELECT FROM dagqueue.messages WHERE queue = q.name AND visible_at <= dagapp.clock()
                    AND (locked_until IS NULL OR locked_until <= dagapp.clock()))
            """,
            (list(queues),),
        )
        return QueueNames(cursor)

    async def remove(self, conn: Connection, message_ids: Sequence[str]) -> None:
        """Delete messages that this transaction has taken."""
        await conn.execute("DELETE FROM dagqueue.messages WHERE message_id = ANY(%s)", (list(message_ids),))


class PostgresTaskReceiver:
    """Receiving side of one queue in one worker; a lock on a message is a time and a token in its row.

    `connect` opens autocommit connections for statements, `listen` for notifications (past any pooler).
    """

    def __init__(
        self,
        connect: Connect,
        listen: Connect,
        *,
        queue: str,
        consumer_id: str,
        lock_seconds: float = LOCK_SECONDS,
    ) -> None:
        self._connect = connect
        self._queue = queue
        self._consumer_id = consumer_id
        self._lock_seconds = lock_seconds
        self._lock_token = secrets.token_hex(8)
        self._channel = f"dagq_{secrets.token_hex(8)}"
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._registered_at: float | None = None
        self._woken = asyncio.Event()
        self._idle_polls = 0
        self._failures = 0
        self._held: dict[str, Delivery] = {}
        self._listener = Listener(listen, [self._channel], lambda _channel: self._woken.set())

    @property
    def hears(self) -> bool:
        """Return whether notifications arrive; without them the queue is polled every 200 ms."""
        return self._listener.hears.is_set()

    async def receive(self, max_messages: int, wait_seconds: float) -> Sequence[Delivery]:
        """Return up to `max_messages`; empty on time-out, also when the database was away all that time."""
        self._listener.start()
        deadline = time.monotonic() + wait_seconds
        while True:
            self._woken.clear()
            deliveries = await self._poll_safely(max_messages)
            remaining = deadline - time.monotonic()
            if deliveries or remaining <= 0:
                return deliveries
            await self._wait(min(remaining, self._pause()))

    async def complete(self, deliveries: Sequence[Delivery]) -> None:
        """Delete them, as far as their locks are still ours."""
        with self._errors_translated():
            connection = await self._connected()
            await connection.execute(
                """
                DELETE FROM dagqueue.messages
                WHERE message_id = ANY(%s) AND lock_token = %s AND set_config('synchronous_commit', 'off', true) = 'off'
                """,
                ([delivery.message_id for delivery in deliveries], self._lock_token),
            )
        self._forget(deliveries)

    async def abandon(self, delivery: Delivery, delay_seconds: float = 0.0) -> None:
        """Unlock one, visible again after the delay."""
        with self._errors_translated():
            await self._give_back(await self._connected(), [delivery], delay_seconds)
        self._forget([delivery])

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        """Lock them for another full period."""
        with self._errors_translated():
            connection = await self._connected()
            await connection.execute(
                """
                UPDATE dagqueue.messages SET locked_until = dagapp.clock() + make_interval(secs => %s)
                WHERE message_id = ANY(%s) AND lock_token = %s
                """,
                (self._lock_seconds, [delivery.message_id for delivery in deliveries], self._lock_token),
            )

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Move one to the dead letters, as far as its lock is still ours."""
        with self._errors_translated():
            connection = await self._connected()
            await connection.execute(
                """
                WITH removed AS (
                    DELETE FROM dagqueue.messages WHERE message_id = %s AND lock_token = %s RETURNING *
                )
                INSERT INTO dagqueue.dead_letters
                    (message_id, queue, task_id, body, reason, delivery_count, enqueued_at)
                SELECT message_id, queue, task_id, body, %s, delivery_count, enqueued_at FROM removed
                """,
                (delivery.message_id, self._lock_token, reason),
            )
        self._forget([delivery])

    async def close(self) -> None:
        """Unlock what was not settled, forget the consumer and disconnect; without a database, only disconnect."""
        await self._listener.close()
        if self._connection is None:
            return
        try:
            await self._give_back(self._connection, list(self._held.values()), 0.0)
            await self._connection.execute(
                "DELETE FROM dagqueue.consumers WHERE consumer_id = %s", (self._consumer_id,)
            )
        except CONNECTION_ERRORS as error:
            log.warning("queue not closed cleanly", extra={"error": type(error).__name__})
        self._held.clear()
        await self._drop_connection()

    async def _poll_safely(self, max_messages: int) -> list[Delivery]:
        try:
            deliveries = await self._poll(max_messages)
        except CONNECTION_ERRORS as error:
            log.warning("queue unreachable", extra={"queue": self._queue, "error": type(error).__name__})
            await self._drop_connection()
            self._failures += 1
            return []
        self._failures = 0
        self._idle_polls = 0 if deliveries else self._idle_polls + 1
        self._held.update((delivery.message_id, delivery) for delivery in deliveries)
        return deliveries

    async def _poll(self, max_messages: int) -> list[Delivery]:
        """Take messages and set the idle flag in one statement; pass the wake-up on when more are left."""
        connection = await self._connected()
        cursor = await connection.execute(
            """
            WITH taken AS (
                UPDATE dagqueue.messages
                SET locked_until = dagapp.clock() + make_interval(secs => %(lock)s), lock_token = %(token)s,
                    delivery_count = delivery_count + 1
                WHERE message_id = ANY(ARRAY(
                    SELECT message_id FROM dagqueue.messages
                    WHERE queue = %(queue)s AND visible_at <= dagapp.clock()
                        AND (locked_until IS NULL OR locked_until <= dagapp.clock())
                    ORDER BY priority DESC, enqueued_at, message_id LIMIT %(limit)s
                    FOR UPDATE SKIP LOCKED
                ))
                RETURNING message_id, priority, enqueued_at, delivery_count, body
            ),
            flagged AS (
                UPDATE dagqueue.consumers
                SET idle = NOT EXISTS (SELECT FROM taken), seen_at = dagapp.clock()
                WHERE consumer_id = %(consumer)s
                    AND (idle = EXISTS (SELECT FROM taken)
                        OR seen_at < dagapp.clock() - make_interval(secs => %(seen)s))
            )
            SELECT message_id, delivery_count, body::text
            FROM taken CROSS JOIN set_config('synchronous_commit', 'off', true)
            ORDER BY priority DESC, enqueued_at, message_id
            """,
            {
                "lock": self._lock_seconds,
                "token": self._lock_token,
                "queue": self._queue,
                "limit": max_messages,
                "consumer": self._consumer_id,
                "seen": RENEWED_SEEN_SECONDS,
            },
        )
        deliveries = [delivery_of(row) for row in await cursor.fetchall()]
        if len(deliveries) == max_messages:
            await self._wake_next(connection)
        return deliveries

    async def _wake_next(self, connection: Connection) -> None:
        """Wake one more idle consumer when messages are left: a transaction wakes only one for all it enqueues."""
        await connection.execute(
            """
            WITH woken AS (
                UPDATE dagqueue.consumers SET idle = false
                WHERE consumer_id = ANY(ARRAY(
                    SELECT consumer_id FROM dagqueue.consumers
                    WHERE queue = %(queue)s AND idle AND consumer_id <> %(consumer)s
                        AND seen_at > dagapp.clock() - make_interval(secs => %(silent)s)
                        AND EXISTS (
                            SELECT FROM dagqueue.messages
                            WHERE queue = %(queue)s AND visible_at <= dagapp.clock()
                                AND (locked_until IS NULL OR locked_until <= dagapp.clock())
                        )
                    ORDER BY seen_at DESC LIMIT 1 FOR UPDATE SKIP LOCKED
                ))
                RETURNING channel
            )
            SELECT pg_notify(channel, '') FROM woken
            """,
            {"queue": self._queue, "consumer": self._consumer_id, "silent": CONSUMER_SILENT_SECONDS},
        )

    def _pause(self) -> float:
        if self._failures:
            return RECONNECT_SECONDS[min(self._failures, len(RECONNECT_SECONDS)) - 1]
        if not self.hears:
            return DEAF_POLL_SECONDS
        return IDLE_POLL_SECONDS[min(max(self._idle_polls, 1), len(IDLE_POLL_SECONDS)) - 1]

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return

    async def _connected(self) -> Connection:
        async with self._connecting:
            if self._connection is None or self._connection.closed:
                self._connection = await self._connect()
                self._registered_at = None
            if self._registered_at is None or time.monotonic() - self._registered_at > REGISTER_SECONDS:
                await self._register(self._connection)
                self._registered_at = time.monotonic()
            return self._connection

    async def _register(self, connection: Connection) -> None:
        """Write this consumer's row and remove rows of the dead."""
        await connection.execute(
            "DELETE FROM dagqueue.consumers WHERE seen_at < dagapp.clock() - make_interval(hours => 1)"
        )
        await connection.execute(
            """
            INSERT INTO dagqueue.consumers (consumer_id, queue, channel) VALUES (%s, %s, %s)
            ON CONFLICT (consumer_id)
            DO UPDATE SET queue = excluded.queue, channel = excluded.channel, idle = false, seen_at = dagapp.clock()
            """,
            (self._consumer_id, self._queue, self._channel),
        )

    async def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _give_back(self, connection: Connection, deliveries: Sequence[Delivery], delay_seconds: float) -> None:
        await connection.execute(
            """
            UPDATE dagqueue.messages
            SET locked_until = NULL, lock_token = NULL, visible_at = dagapp.clock() + make_interval(secs => %s)
            WHERE message_id = ANY(%s) AND lock_token = %s
            """,
            (delay_seconds, [delivery.message_id for delivery in deliveries], self._lock_token),
        )

    def _forget(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self._held.pop(delivery.message_id, None)

    @contextmanager
    def _errors_translated(self) -> Iterator[None]:
        try:
            yield
        except CONNECTION_ERRORS as error:
            raise DatabaseUnavailable("the queue's database does not answer") from error
