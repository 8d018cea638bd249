"""What every adapter of the task queue must do."""

import asyncio

import pytest

from core.ports import Delivery, TaskReceiver
from tests.support.queues import QueueAdapter, message
from tests.support.waiting import await_until

PATIENCE = 20.0
"""Seconds for what has to arrive: a broker's connection may take one of them to open, on a busy machine more."""


async def collect(receiver: TaskReceiver, count: int, *, at_a_time: int = 10) -> list[Delivery]:
    """Receive so many; an adapter may hand over what is there before the rest has arrived."""
    found: list[Delivery] = []
    while len(found) < count:
        got = await receiver.receive(min(at_a_time, count - len(found)), PATIENCE)
        assert got, f"only {len(found)} of {count} arrived"
        found += got
    return found


def names(deliveries: object) -> list[str]:
    assert isinstance(deliveries, list | tuple)
    return [delivery.message.node_id for delivery in deliveries]


async def test_a_message_arrives_as_it_was_sent(queue_adapter: QueueAdapter) -> None:
    sent = message("a", exact=2**60 + 1, text="ä", nested={"list": [1, None, 2.5]})
    await queue_adapter.send(sent)
    (delivery,) = await (await queue_adapter.receiver()).receive(10, PATIENCE)
    assert delivery.message == sent
    assert (delivery.message_id, delivery.delivery_count) == ("job_a_0.1", 0)


async def test_nothing_leaves_when_the_transaction_rolls_back(queue_adapter: QueueAdapter) -> None:
    async def send_and_fail() -> None:
        async with queue_adapter.transaction() as conn:
            await queue_adapter.queue.enqueue(conn, [message("a")])
            raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError, match="changed my mind"):
        await send_and_fail()
    assert not await (await queue_adapter.receiver()).receive(10, 0.1)


async def test_nothing_leaves_before_the_transaction_commits(queue_adapter: QueueAdapter) -> None:
    receiver = await queue_adapter.receiver()
    async with queue_adapter.transaction() as conn:
        await queue_adapter.queue.enqueue(conn, [message("a")])
        assert not await receiver.receive(10, 0.1)
    assert names(await receiver.receive(10, PATIENCE)) == ["a"]


async def test_higher_priority_leaves_first_and_older_first_within_it(queue_adapter: QueueAdapter) -> None:
    for name, priority in (("old", 5), ("low", 1), ("new", 5), ("high", 9)):
        await queue_adapter.send(message(name, priority=priority))
    assert names(await collect(await queue_adapter.receiver(), 4)) == ["high", "old", "new", "low"]


async def test_a_receiver_gets_at_most_what_it_asks_for(queue_adapter: QueueAdapter) -> None:
    await queue_adapter.send(*(message(f"n{n}") for n in range(5)))
    receiver = await queue_adapter.receiver()
    assert len(await collect(receiver, 2, at_a_time=2)) == 2
    assert len(await receiver.receive(1, PATIENCE)) == 1
    assert len(await collect(receiver, 2)) == 2
    assert not await receiver.receive(10, 0.1)


async def test_two_receivers_never_hold_the_same_message(queue_adapter: QueueAdapter) -> None:
    await queue_adapter.send(*(message(f"n{n}") for n in range(40)))
    receivers = [await queue_adapter.receiver() for _ in range(4)]
    found: list[str] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < 40:
            got = await asyncio.gather(*(receiver.receive(10, 0.5) for receiver in receivers for _ in range(2)))
            found += [name for deliveries in got for name in names(deliveries)]
    assert sorted(found) == sorted(f"n{n}" for n in range(40))


async def test_a_completed_message_is_gone(queue_adapter: QueueAdapter) -> None:
    await queue_adapter.send(message("a"))
    receiver = await queue_adapter.receiver(lock_seconds=0.2)
    await receiver.complete(await receiver.receive(1, PATIENCE))
    assert not await receiver.receive(1, 0.5)


async def test_an_abandoned_message_returns_with_a_higher_count_after_its_delay(queue_adapter: QueueAdapter) -> None:
    await queue_adapter.send(message("a"))
    receiver = await queue_adapter.receiver()
    (delivery,) = await receiver.receive(1, PATIENCE)
    await receiver.abandon(delivery, 0.4)
    assert not await receiver.receive(1, 0.1)
    (again,) = await receiver.receive(1, PATIENCE)
    assert (again.message_id, again.delivery_count) == (delivery.message_id, 1)


async def test_a_message_whose_lock_ran_out_is_delivered_again(queue_adapter: QueueAdapter) -> None:
    await queue_adapter.send(message("a"))
    first, second = await queue_adapter.receiver(lock_seconds=0.3), await queue_adapter.receiver()
    (lost,) = await first.receive(1, PATIENCE)
    (found,) = await second.receive(1, PATIENCE)
    assert found.delivery_count == 1
    await first.complete([lost])
    await second.abandon(found)
    assert names(await second.receive(1, PATIENCE)) == ["a"], "a lost lock removes nothing"


async def test_a_renewed_lock_holds_longer(queue_adapter: QueueAdapter) -> None:
    await queue_adapter.send(message("a"))
    holder, other = await queue_adapter.receiver(lock_seconds=1.0), await queue_adapter.receiver()
    held = await holder.receive(1, PATIENCE)
    for _ in range(4):
        await holder.renew(held)
        assert not await other.receive(1, 0.4)


async def test_a_dead_lettered_message_is_set_aside_with_its_reason(queue_adapter: QueueAdapter) -> None:
    await queue_adapter.send(message("a"))
    receiver = await queue_adapter.receiver()
    (delivery,) = await receiver.receive(1, PATIENCE)
    await receiver.dead_letter(delivery, "no such task")
    assert await queue_adapter.dead_letters() == [("job_a_0.1", "no such task")]
    assert not await receiver.receive(1, 0.1)


async def test_an_unreadable_message_is_delivered_as_such_without_its_content(queue_adapter: QueueAdapter) -> None:
    await queue_adapter.put_unreadable("strange")
    (delivery,) = await (await queue_adapter.receiver()).receive(1, PATIENCE)
    assert delivery.message is None
    assert delivery.unreadable is not None
    assert "do not tell" not in delivery.unreadable


async def test_a_discarded_message_is_not_delivered(queue_adapter: QueueAdapter) -> None:
    await queue_adapter.send(message("a"), message("b"))
    async with queue_adapter.transaction() as conn:
        await queue_adapter.queue.discard(conn, ["job_a_0"])
    assert names(await (await queue_adapter.receiver()).receive(10, PATIENCE)) == ["b"]


async def test_closing_gives_back_what_was_not_settled(queue_adapter: QueueAdapter) -> None:
    await queue_adapter.send(message("a"), message("b"))
    first = await queue_adapter.receiver()
    settled, _kept = await collect(first, 2)
    await first.complete([settled])
    await first.close()
    assert names(await (await queue_adapter.receiver()).receive(10, PATIENCE)) == ["b"]


async def test_two_dispatches_of_one_task_are_two_messages(queue_adapter: QueueAdapter) -> None:
    await queue_adapter.send(message("a", dispatch_no=1), message("a", dispatch_no=2))
    got = await collect(await queue_adapter.receiver(), 2)
    assert sorted(delivery.message_id for delivery in got) == ["job_a_0.1", "job_a_0.2"]


async def test_a_receiver_sees_only_its_own_queue(queue_adapter: QueueAdapter) -> None:
    await queue_adapter.send(message("heavy", queue="container-tasks"), message("light"))
    assert names(await (await queue_adapter.receiver()).receive(10, PATIENCE)) == ["light"]
    assert names(await (await queue_adapter.receiver(queue="container-tasks")).receive(10, PATIENCE)) == ["heavy"]


async def test_a_waiting_receiver_is_woken_by_an_enqueue(queue_adapter: QueueAdapter) -> None:
    receiver = await queue_adapter.receiver()
    waiting: asyncio.Task[list[Delivery]] = asyncio.create_task(receiver.receive(1, 30))  # type: ignore[arg-type]
    await await_until(lambda: asyncio.sleep(0, not waiting.done()), "the receiver waits")
    await queue_adapter.send(message("a"))
    async with asyncio.timeout(5):
        assert names(await waiting) == ["a"]
