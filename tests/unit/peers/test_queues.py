"""The rules of a queue, with time as an argument."""

import contextlib
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.peers.servicebus.errors import ARGUMENT, LOCK_LOST, MESSAGE_NOT_FOUND, BrokerError
from tests.peers.servicebus.messages import SCHEDULED_TIME, Envelope
from tests.peers.servicebus.model import Message, QueueSettings, State
from tests.peers.servicebus.queues import EXPIRED_REASON, MAX_DELIVERIES_REASON, Queue
from tests.peers.servicebus.types import Timestamp, UInt


def _queue(**settings: object) -> Queue:
    made = QueueSettings("work", **{"lock_seconds": 10.0, "max_delivery_count": 3, **settings})  # type: ignore[arg-type]
    return Queue(made, Queue(QueueSettings("work/$DeadLetterQueue", lock_seconds=10.0)))


def _envelope(message_id: str | None = None, ttl_seconds: float | None = None, at: float | None = None) -> Envelope:
    return Envelope(
        header=[] if ttl_seconds is None else [None, None, UInt(round(ttl_seconds * 1000))],
        annotations={} if at is None else {SCHEDULED_TIME: Timestamp(round(at * 1000))},
        properties=[message_id],
        body=b"\x00\x53\x75\xa0\x01x",
    )


def _taken(queue: Queue, now: float) -> tuple[Message, UUID]:
    message = queue.take(now)
    assert message is not None
    assert message.lock is not None
    return message, message.lock


def _dead(queue: Queue) -> Message:
    assert queue.dead is not None
    [message] = queue.dead.messages.values()
    return message


def test_messages_are_taken_in_order_and_each_by_one() -> None:
    queue = _queue()
    for name in "abc":
        queue.put(_envelope(name), 0)
    assert [_taken(queue, 0)[0].envelope.message_id for _ in "abc"] == ["a", "b", "c"]
    assert queue.take(0) is None


def test_a_message_that_is_given_back_keeps_its_place() -> None:
    queue = _queue()
    for name in "ab":
        queue.put(_envelope(name), 0)
    _, first = _taken(queue, 0)
    queue.abandon(first, 1)
    message, again = _taken(queue, 1)
    assert (message.envelope.message_id, message.delivery_count) == ("a", 1)
    queue.release(again, 2)
    assert _taken(queue, 2)[0].delivery_count == 1


@pytest.mark.parametrize(
    "settle", [Queue.complete, Queue.abandon, Queue.release, Queue.defer, Queue.dead_letter, Queue.renew]
)
def test_a_lost_lock_settles_nothing(settle: Callable[[Queue, UUID, float], object]) -> None:
    queue = _queue()
    queue.put(_envelope(), 0)
    _, token = _taken(queue, 0)
    for now, lock in ((10.0, token), (0.0, uuid4())):
        with pytest.raises(BrokerError) as refused:
            settle(queue, lock, now)
        assert refused.value.condition == LOCK_LOST
    assert _taken(queue, 10)[0].delivery_count == 1


def test_a_renewed_lock_holds_from_the_renewal_on() -> None:
    queue = _queue()
    queue.put(_envelope(), 0)
    _, token = _taken(queue, 0)
    assert queue.renew(token, 8) == 18
    assert queue.take(17.9) is None
    queue.complete(token, 17.9)
    assert not queue.messages


def test_tried_too_often_is_dead_with_its_reason() -> None:
    queue = _queue()
    queue.put(_envelope("poison"), 0)
    queue.abandon(_taken(queue, 0)[1], 0)
    _taken(queue, 0)
    queue.tick(10)
    queue.abandon(_taken(queue, 10)[1], 10)
    dead = _dead(queue)
    assert (queue.messages, dead.envelope.application["DeadLetterReason"]) == ({}, MAX_DELIVERIES_REASON)
    assert (dead.delivery_count, dead.sequence) == (3, 1)


def test_a_dead_letter_says_why_and_stays_until_it_is_completed() -> None:
    queue = _queue()
    queue.put(_envelope(), 0)
    queue.dead_letter(_taken(queue, 0)[1], 1, "bad", "cannot be read")
    assert queue.dead is not None
    said = _dead(queue).envelope.application
    assert said == {"DeadLetterReason": "bad", "DeadLetterErrorDescription": "cannot be read"}
    for now in range(0, 200, 20):
        _taken(queue.dead, now)
    message, token = _taken(queue.dead, 300)
    with pytest.raises(BrokerError) as refused:
        queue.dead.dead_letter(token, 300)
    assert (refused.value.condition, message.delivery_count) == (ARGUMENT, 10)
    queue.dead.complete(token, 300)
    assert not queue.dead.messages


def test_a_deferred_message_comes_to_who_asks_for_it() -> None:
    queue = _queue()
    queue.put(_envelope(), 0)
    message, token = _taken(queue, 0)
    queue.defer(token, 0)
    assert queue.take(0) is None
    [again] = queue.take_deferred([message.sequence], 1)
    assert (again.state, again.lock is not None) == (State.DEFERRED, True)
    with pytest.raises(BrokerError) as refused:
        queue.take_deferred([message.sequence], 1)
    assert refused.value.condition == MESSAGE_NOT_FOUND
    queue.tick(11)
    [third] = queue.take_deferred([message.sequence], 11)
    assert third.lock is not None
    queue.complete(third.lock, 12)
    assert not queue.messages


def test_deferred_messages_come_together_or_not_at_all() -> None:
    queue = _queue()
    for _ in range(2):
        queue.put(_envelope(), 0)
        queue.defer(_taken(queue, 0)[1], 0)
    with pytest.raises(BrokerError):
        queue.take_deferred([1, 2, 3], 0)
    assert len(queue.take_deferred([1, 2], 0, keep=False)) == 2
    assert not queue.messages


def test_a_scheduled_message_appears_when_it_is_due() -> None:
    queue = _queue()
    queue.put(_envelope("later", at=50), 0)
    queue.put(_envelope("now"), 0)
    assert _taken(queue, 49)[0].envelope.message_id == "now"
    assert queue.take(49) is None
    message, _ = _taken(queue, 50)
    assert (message.envelope.message_id, message.enqueued_at) == ("later", 50)


def test_a_schedule_is_cancelled_while_it_lasts() -> None:
    queue = _queue()
    first, second = (queue.schedule(_envelope(at=50), 0).sequence for _ in range(2))
    queue.cancel_scheduled([first])
    with pytest.raises(BrokerError) as refused:
        queue.cancel_scheduled([second, first])
    assert refused.value.condition == MESSAGE_NOT_FOUND
    assert _taken(queue, 50)[0].sequence == second
    with pytest.raises(BrokerError):
        queue.cancel_scheduled([second])
    with pytest.raises(BrokerError) as without:
        queue.schedule(_envelope(), 0)
    assert without.value.condition == ARGUMENT


@pytest.mark.parametrize("dead_letter_expired", [True, False])
def test_a_message_that_outlived_its_time_goes_when_nobody_holds_it(*, dead_letter_expired: bool) -> None:
    queue = _queue(ttl_seconds=30.0, dead_letter_expired=dead_letter_expired)
    queue.put(_envelope("short", ttl_seconds=5), 0)
    queue.put(_envelope("long", ttl_seconds=500), 0)
    _, token = _taken(queue, 4)
    queue.tick(7)
    assert len(queue.messages) == 2
    queue.abandon(token, 8)
    assert [message.envelope.message_id for message in queue.messages.values()] == ["long"]
    queue.tick(30)
    assert not queue.messages
    assert queue.dead is not None
    reasons = [message.envelope.application["DeadLetterReason"] for message in queue.dead.messages.values()]
    assert reasons == ([EXPIRED_REASON] * 2 if dead_letter_expired else [])


def test_a_duplicate_within_the_window_is_taken_once() -> None:
    queue = _queue(duplicate_window_seconds=60.0)
    assert queue.put(_envelope("same"), 0) is not None
    assert queue.put(_envelope("same"), 59) is None
    assert queue.put(_envelope(None), 59) is not None
    assert queue.put(_envelope(None), 59) is not None
    assert queue.put(_envelope("same"), 60) is not None
    assert _queue().put(_envelope("same"), 0) is not None


def test_peeking_shows_all_states_and_touches_nothing() -> None:
    queue = _queue()
    queue.put(_envelope("a"), 0)
    queue.put(_envelope("b", at=90), 0)
    queue.put(_envelope("c"), 0)
    _taken(queue, 0)
    assert [message.sequence for message in queue.peek(0, 10)] == [1, 2, 3]
    assert [message.sequence for message in queue.peek(2, 1)] == [2]


class Reader:
    """A consumer with credit."""

    keeps = True

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self.got: list[Message] = []

    def wants(self) -> bool:
        return len(self.got) < self.credit

    def deliver(self, message: Message) -> None:
        self.got.append(message)


def test_consumers_are_served_in_turn_as_far_as_their_credit_goes() -> None:
    queue = _queue()
    few, many = Reader(1), Reader(9)
    queue.consumers.extend((few, many))
    for _ in range(5):
        queue.put(_envelope(), 0)
    queue.pump(0)
    assert [message.sequence for message in few.got] == [1]
    assert [message.sequence for message in many.got] == [2, 3, 4, 5]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["put", "take", "complete", "abandon", "release", "defer", "bury", "renew", "undefer", "expire"]
        ),
        st.integers(0, 7),
        st.sampled_from([0.0, 0.0, 1.0, 6.0, 11.0]),
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(STEPS)
def test_every_message_is_somewhere_once_until_it_is_completed(steps: list[tuple[str, int, float]]) -> None:
    queue, now, put, completed = _queue(), 0.0, 0, set[int]()
    held: list[tuple[Message, UUID]] = []
    for step, pick, passes in steps:
        now += passes
        with contextlib.suppress(BrokerError):
            if step == "put":
                put += queue.put(_envelope(), now) is not None
            elif step == "take" and (message := queue.take(now)) is not None and message.lock is not None:
                assert message.sequence not in completed
                held.append((message, message.lock))
            elif step == "undefer":
                held += [(found, found.lock) for found in queue.take_deferred([pick], now) if found.lock is not None]
            elif step == "expire":
                queue.expire_locks(now)
            elif held:
                message, token = held[pick % len(held)]
                settle = {"complete": queue.complete, "abandon": queue.abandon, "release": queue.release}
                settle |= {"defer": queue.defer, "bury": queue.dead_letter, "renew": queue.renew}  # type: ignore[dict-item]
                if step in settle:
                    settle[step](token, now)
                    completed |= {message.sequence} if step == "complete" else set()
        assert queue.dead is not None
        here = sorted(message.sequence for message in (*queue.messages.values(), *queue.dead.messages.values()))
        assert sorted([*here, *completed]) == list(range(1, put + 1))
        locks = [message.lock for message in queue.messages.values() if message.lock is not None]
        assert len(set(locks)) == len(locks)
        assert all(message.delivery_count < 3 or message.state is State.DEFERRED for message in queue.messages.values())
