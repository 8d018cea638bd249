"""The relay: in order, bounded, never losing a row, and saying what the broker will never take."""

from dataclasses import replace
from typing import Any

from psycopg.types.json import Jsonb

from core.statuses import JobStatus
from messaging.postgres import PostgresTaskQueue
from repositories.database import AsyncPool, transaction
from tests.peers.servicebus.peer import Peer
from tests.support.engine import Engine, HandWorker
from tests.support.queues import QUEUE, message
from tests.support.service_bus import BusSide
from tests.support.waiting import await_until


def at_the_broker(peer: Peer, queue: str = QUEUE) -> list[str]:
    """Return the ids of the messages of a queue in their order."""
    found = sorted(peer.broker.find(queue).messages.values(), key=lambda one: one.sequence)
    return [str(one.envelope.message_id) for one in found]


async def outbox(pool: AsyncPool) -> list[str]:
    async with transaction(pool) as conn:
        cursor = await conn.execute("SELECT message_id FROM dagqueue.messages ORDER BY message_id")
        return [row[0] for row in await cursor.fetchall()]


async def send(pool: AsyncPool, *names: str, **fields: Any) -> None:
    async with transaction(pool) as conn:
        await PostgresTaskQueue().enqueue(conn, [message(name, **fields) for name in names])


async def test_rows_leave_as_messages_of_their_ids_and_are_gone(side: BusSide, pool: AsyncPool, peer: Peer) -> None:
    side.start_relay()
    await send(pool, "a", "b")
    await await_until(lambda: outbox_is_empty(pool), "passed on", 20)
    assert at_the_broker(peer) == ["job_a_0.1", "job_b_0.1"]


async def outbox_is_empty(pool: AsyncPool) -> bool:
    return await outbox_holds(pool, 0)


async def outbox_holds(pool: AsyncPool, count: int) -> bool:
    return len(await outbox(pool)) == count


async def test_no_more_are_left_to_the_broker_than_may_be_and_the_urgent_overtake_the_rest(
    side: BusSide, pool: AsyncPool, peer: Peer
) -> None:
    engine, worker = Engine(pool), HandWorker(Engine(pool))
    jobs = [await engine.create("echo_test", priority=3) for _ in range(24)]
    side.start_relay(max_unclaimed=10)
    await await_until(lambda: holds(peer, 10), "the broker has its fill", 20)
    urgent = await engine.create("echo_test", priority=9)
    first = await side.receiver().receive(1, 20)
    assert first[0].message is not None
    await worker.run(first[0].message)
    await await_until(lambda: has_of(peer, urgent), "the urgent one is next to leave", 20)
    # The broker has a message a moment before its row is gone.
    await await_until(lambda: outbox_holds(pool, 24 + 1 - 11), "the others are left in the outbox", 20)
    assert len(jobs) == 24


async def holds(peer: Peer, count: int) -> bool:
    return len(at_the_broker(peer)) == count


async def has_of(peer: Peer, job_id: str) -> bool:
    return any(one.startswith(job_id) for one in at_the_broker(peer))


async def test_a_row_that_the_broker_will_never_take_fails_its_node_with_the_reason(
    side: BusSide, pool: AsyncPool, peer: Peer
) -> None:
    engine = Engine(pool)
    large, small = await engine.create("echo_test"), await engine.create("echo_test")
    await engine.query(
        "UPDATE dagqueue.messages SET body = jsonb_set(body, '{params}', %s) WHERE starts_with(task_id, %s)",
        Jsonb({"message": "x" * 300_000}),
        large,
    )
    side.start_relay()
    await await_until(lambda: outbox_is_empty(pool), "dealt with", 20)
    assert [one.split("_")[0] for one in at_the_broker(peer)] == [small]
    assert await engine.dead_letters.take_over() == 1
    await engine.advance(large)
    job = await engine.job(large)
    assert job.status is JobStatus.FAILED
    assert job.error is not None
    assert job.error["code"] == "MESSAGE_TOO_LARGE"
    assert f"at most {peer.max_message_bytes} are taken" in job.error["message"]


async def test_many_rows_leave_in_batches_within_the_limit(side: BusSide, pool: AsyncPool, peer: Peer) -> None:
    names = [f"n{number:03}" for number in range(100)]
    await send(pool, *names, text="x" * 5000)
    side.start_relay()
    await await_until(lambda: outbox_is_empty(pool), "passed on", 20)
    assert sorted(at_the_broker(peer)) == [f"job_{name}_0.1" for name in names]


async def test_rows_wait_for_a_broker_that_is_away(side: BusSide, pool: AsyncPool, peer: Peer) -> None:
    relay = side.start_relay()
    await send(pool, "a")
    await await_until(lambda: outbox_is_empty(pool), "passed on", 20)
    port = peer.ports["amqp"]
    await peer.stop()
    await send(pool, "b")

    async def in_trouble() -> bool:
        return relay.trouble is not None

    await await_until(in_trouble, "it says so", 30)
    assert await outbox(pool) == ["job_b_0.1"]
    peer.settings = replace(peer.settings, port=port)
    await peer.start()
    await await_until(lambda: outbox_is_empty(pool), "passed on later", 60)
    assert "job_b_0.1" in at_the_broker(peer)
