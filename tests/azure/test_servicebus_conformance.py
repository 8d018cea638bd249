"""What geodag relies on of Service Bus, asked with the real SDK: of the peer, and of a namespace of one's own if given.

`SERVICE_BUS_CONNECTION_STRING=... ./scripts/test_azure -k conformance` makes queues there and deletes them again. Where
time has to pass, the peer's clock is put forward and a real namespace is waited for.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest
from azure.servicebus import (
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusError,
)

from tests.peers.servicebus.model import QueueSettings
from tests.support.service_bus_namespace import KINDS, Namespace, namespace
from tests.support.waiting import wait_until

LOCK_SECONDS = 5
TRIES = 3
WAIT_SECONDS = 10
"""What a test waits for a message that must come; one that must not come is asked for once the queue is known empty."""


@dataclass
class Bus:
    """A namespace, one client and the usual queue, with a link each way."""

    space: Namespace
    client: ServiceBusClient
    queue: str
    sender: ServiceBusSender
    receiver: ServiceBusReceiver

    def send(self, *messages: ServiceBusMessage) -> None:
        """Send messages to the usual queue."""
        self.sender.send_messages(list(messages))

    def take(self) -> ServiceBusReceivedMessage:
        """Return its next message, locked."""
        [message] = self.receiver.receive_messages(1, max_wait_time=WAIT_SECONDS)
        return message

    def dead(self, queue: str = "") -> ServiceBusReceivedMessage:
        """Return the next dead letter, which is gone afterwards."""
        with self.client.get_queue_receiver(queue or self.queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            [message] = receiver.receive_messages(1, max_wait_time=WAIT_SECONDS)
            receiver.complete_message(message)
            return message

    def is_empty(self, queue: str = "") -> bool:
        """Return whether nothing lies in a queue, in whatever state."""
        with self.client.get_queue_receiver(queue or self.queue) as receiver:
            return not receiver.peek_messages(10)


@pytest.fixture(scope="module", params=KINDS)
def space(request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """Yield the namespace that is asked."""
    with namespace(request.param) as found:
        yield found


@pytest.fixture(scope="module")
def client(space: Namespace) -> Iterator[ServiceBusClient]:
    """Yield a client that takes no failure for a passing one."""
    with ServiceBusClient.from_connection_string(space.connection_string, retry_total=0) as opened:
        yield opened


@pytest.fixture(scope="module")
def opened(space: Namespace, client: ServiceBusClient) -> Iterator[Bus]:
    """Yield the usual queue with its links, which all tests share since opening them takes a second."""
    queue = space.create(QueueSettings("usual", lock_seconds=LOCK_SECONDS, max_delivery_count=TRIES))
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        yield Bus(space, client, queue, sender, receiver)


@pytest.fixture
def bus(opened: Bus) -> Iterator[Bus]:
    """Yield the same, and see to it that a test leaves nothing behind."""
    yield opened
    assert not opened.receiver.peek_messages(1), "the test left messages in the queue"


def _body(message: ServiceBusReceivedMessage) -> bytes:
    return b"".join(message.body)


def test_a_message_comes_with_all_that_its_sender_said(bus: Bus) -> None:
    sent = ServiceBusMessage(
        b"\x00body\xff",
        message_id="id-1",
        correlation_id="job-7",
        subject="ingest",
        content_type="application/json",
        reply_to="answers",
        to="somebody",
        time_to_live=timedelta(minutes=5),
        application_properties={"text": "ü", "number": 7, "flag": True, "real": 0.5, "nothing": None},
    )
    before = bus.space.now()
    bus.send(sent)
    message = bus.take()
    assert _body(message) == b"\x00body\xff"
    names = ("message_id", "correlation_id", "subject", "content_type", "reply_to", "to", "time_to_live")
    assert [getattr(message, name) for name in names] == [getattr(sent, name) for name in names]
    told = {name.decode(): value for name, value in (message.application_properties or {}).items()}
    assert told == {"text": "ü".encode(), "number": 7, "flag": True, "real": 0.5, "nothing": None}
    assert (message.delivery_count, message.dead_letter_reason) == (0, None)
    assert message.sequence_number is not None
    assert message.lock_token is not None
    assert message.enqueued_time_utc is not None
    assert message.locked_until_utc is not None
    assert abs(message.enqueued_time_utc - before) < timedelta(minutes=2)
    assert message.locked_until_utc - message.enqueued_time_utc <= timedelta(seconds=LOCK_SECONDS + 10)
    bus.receiver.complete_message(message)


def test_an_abandoned_message_comes_again_counted_until_it_is_dead(bus: Bus) -> None:
    bus.send(ServiceBusMessage("poison"))
    counts = []
    for _ in range(TRIES):
        message = bus.take()
        counts.append(message.delivery_count)
        bus.receiver.abandon_message(message)
    assert counts == list(range(TRIES))
    assert bus.dead().dead_letter_reason == "MaxDeliveryCountExceeded"


def test_a_dead_letter_keeps_its_content_and_says_why(bus: Bus) -> None:
    bus.send(ServiceBusMessage("bad", message_id="m", application_properties={"kind": "x"}))
    bus.receiver.dead_letter_message(bus.take(), reason="Unreadable", error_description="no JSON at all")
    dead = bus.dead()
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("Unreadable", "no JSON at all")
    assert (_body(dead), dead.message_id) == (b"bad", "m")
    assert (dead.application_properties or {})[b"kind"] == b"x"


def test_a_renewed_lock_lasts_longer(bus: Bus) -> None:
    bus.send(ServiceBusMessage("slow"))
    message = bus.take()
    first = message.locked_until_utc
    bus.space.pass_time(3)
    assert bus.receiver.renew_message_lock(message) > first
    bus.space.pass_time(3)
    bus.receiver.complete_message(message)


def test_an_expired_lock_gives_the_message_to_the_next_and_settles_nothing(bus: Bus) -> None:
    bus.send(ServiceBusMessage("stuck"))
    stale = bus.take()
    bus.space.pass_time(LOCK_SECONDS + 1)
    message = bus.take()
    assert message.delivery_count == 1
    for act in (bus.receiver.complete_message, bus.receiver.abandon_message, bus.receiver.renew_message_lock):
        with pytest.raises(MessageLockLostError):
            act(stale)
    bus.receiver.complete_message(message)


def test_a_deferred_message_comes_only_to_who_names_it(bus: Bus) -> None:
    bus.send(ServiceBusMessage("later"), ServiceBusMessage("next"))
    later = bus.take()
    bus.receiver.defer_message(later)
    following = bus.take()
    assert _body(following) == b"next"
    bus.receiver.complete_message(following)
    assert later.sequence_number is not None
    [found] = bus.receiver.receive_deferred_messages([later.sequence_number])
    assert (_body(found), found.lock_token is None) == (b"later", False)
    bus.receiver.complete_message(found)
    with pytest.raises(MessageNotFoundError):
        bus.receiver.receive_deferred_messages([later.sequence_number])


def test_a_scheduled_message_is_invisible_until_it_is_due(bus: Bus) -> None:
    due = bus.space.now() + timedelta(seconds=20)
    [number] = bus.sender.schedule_messages(ServiceBusMessage("due"), due)
    bus.send(ServiceBusMessage("now"), ServiceBusMessage("due too", scheduled_enqueue_time_utc=due))
    message = bus.take()
    assert _body(message) == b"now"
    bus.receiver.complete_message(message)
    states = [(_body(peeked), peeked.state.name) for peeked in bus.receiver.peek_messages(5, sequence_number=1)]
    assert states == [(b"due", "SCHEDULED"), (b"due too", "SCHEDULED")]
    bus.space.pass_time(21)
    first, second = bus.take(), bus.take()
    assert {_body(first), _body(second)} == {b"due", b"due too"}
    assert number in (first.sequence_number, second.sequence_number)
    for received in (first, second):
        bus.receiver.complete_message(received)


def test_a_schedule_is_cancelled_once(bus: Bus) -> None:
    numbers = bus.sender.schedule_messages([ServiceBusMessage("a")] * 2, bus.space.now() + timedelta(hours=1))
    bus.sender.cancel_scheduled_messages(numbers)
    with pytest.raises(MessageNotFoundError):
        bus.sender.cancel_scheduled_messages(numbers)


def test_peeking_changes_nothing(bus: Bus) -> None:
    bus.send(ServiceBusMessage("seen"))
    peeked = [bus.receiver.peek_messages(1, sequence_number=1)[0] for _ in range(2)]
    assert [_body(message) for message in peeked] == [b"seen"] * 2
    message = bus.take()
    assert message.delivery_count == 0
    bus.receiver.complete_message(message)


def test_a_batch_is_many_messages_in_order(bus: Bus) -> None:
    batch = bus.sender.create_message_batch()
    for number in range(100):
        batch.add_message(ServiceBusMessage(str(number), message_id=f"b{number}"))
    bus.sender.send_messages(batch)
    got: list[ServiceBusReceivedMessage] = []
    while len(got) < 100:
        got += bus.receiver.receive_messages(100 - len(got), max_wait_time=WAIT_SECONDS)
    assert [(_body(message).decode(), message.message_id) for message in got] == [(str(n), f"b{n}") for n in range(100)]
    assert len({message.sequence_number for message in got}) == 100
    for message in got:
        bus.receiver.complete_message(message)


def test_a_message_of_many_frames_arrives_and_one_too_large_is_refused(bus: Bus) -> None:
    large = bytes(range(256)) * 800
    bus.send(ServiceBusMessage(large))
    message = bus.take()
    assert _body(message) == large
    bus.receiver.complete_message(message)
    batch = bus.sender.create_message_batch()
    with pytest.raises(MessageSizeExceededError):
        batch.add_message(ServiceBusMessage(b"x" * batch.max_size_in_bytes))
    with pytest.raises(ServiceBusError):
        bus.sender.send_messages(ServiceBusMessage(b"x" * (2 << 20)))


def test_received_and_deleted_is_gone(bus: Bus) -> None:
    bus.send(ServiceBusMessage("once"))
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with bus.client.get_queue_receiver(bus.queue, receive_mode=mode) as receiver:
        [message] = receiver.receive_messages(1, max_wait_time=WAIT_SECONDS)
        assert _body(message) == b"once"
    assert bus.is_empty()


def test_what_a_closed_receiver_had_fetched_comes_to_the_next(bus: Bus) -> None:
    bus.send(*(ServiceBusMessage(str(number)) for number in range(5)))
    with bus.client.get_queue_receiver(bus.queue, prefetch_count=5) as greedy:
        [first] = greedy.receive_messages(1, max_wait_time=WAIT_SECONDS)
        greedy.complete_message(first)
    bus.space.pass_time(LOCK_SECONDS + 1)
    rest = [bus.take() for _ in range(4)]
    assert {_body(message) for message in (first, *rest)} == {b"0", b"1", b"2", b"3", b"4"}
    for message in rest:
        bus.receiver.complete_message(message)


def test_competing_consumers_share_without_a_message_twice(bus: Bus) -> None:
    bus.send(*(ServiceBusMessage(str(number)) for number in range(60)))
    got: list[bytes] = []

    def consume() -> None:
        with bus.client.get_queue_receiver(bus.queue, max_wait_time=2) as receiver:
            for message in receiver:
                got.append(_body(message))
                receiver.complete_message(message)

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got, key=int) == [str(number).encode() for number in range(60)]


def test_a_duplicate_is_dropped_within_the_window(space: Namespace, client: ServiceBusClient) -> None:
    queue = space.create(QueueSettings("unique", duplicate_window_seconds=30))
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        for message_id in ("a", "b", "a"):
            sender.send_messages(ServiceBusMessage(message_id, message_id=message_id))
        sender.send_messages([ServiceBusMessage("b", message_id="b"), ServiceBusMessage("c", message_id="c")])
        assert [peeked.message_id for peeked in receiver.peek_messages(9)] == ["a", "b", "c"]


@pytest.mark.parametrize("buried", [True, False], ids=["dead-lettered", "dropped"])
def test_a_message_that_outlived_its_time_is_gone(bus: Bus, *, buried: bool) -> None:
    queue = bus.space.create(QueueSettings(f"short-{buried}".lower(), dead_letter_expired=buried))
    with bus.client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("short", time_to_live=timedelta(seconds=2)))
    bus.space.pass_time(3)
    with bus.client.get_queue_receiver(queue) as receiver:
        assert receiver.receive_messages(1, max_wait_time=1) == []
    if buried:
        assert bus.dead(queue).dead_letter_reason == "TTLExpiredException"
    else:
        assert bus.is_empty(f"{queue}/$DeadLetterQueue")


def test_a_missing_queue_is_told(client: ServiceBusClient) -> None:
    with pytest.raises(MessagingEntityNotFoundError), client.get_queue_sender("no-such-queue") as sender:
        sender.send_messages(ServiceBusMessage("x"))
    with pytest.raises(MessagingEntityNotFoundError), client.get_queue_receiver("no-such-queue") as receiver:
        receiver.receive_messages(1, max_wait_time=1)


def test_a_wrong_key_opens_nothing(space: Namespace, opened: Bus) -> None:
    parts = dict(part.split("=", 1) for part in space.connection_string.strip(";").split(";"))
    parts["SharedAccessKey"] = "c3RyYW5nZXI="
    wrong = ";".join(f"{name}={value}" for name, value in parts.items())
    with (
        ServiceBusClient.from_connection_string(wrong, retry_total=0) as stranger,
        pytest.raises(ServiceBusAuthenticationError),
        stranger.get_queue_sender(opened.queue) as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_renewer_holds_a_lock_beyond_its_time(kind: str) -> None:
    """In a namespace whose clock nobody put forward: the renewer goes by its own."""
    with namespace(kind) as fresh, ServiceBusClient.from_connection_string(fresh.connection_string) as client:
        queue = fresh.create(QueueSettings("renewed", lock_seconds=LOCK_SECONDS))
        with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
            sender.send_messages(ServiceBusMessage("long"))
            [message] = receiver.receive_messages(1, max_wait_time=WAIT_SECONDS)
            first = message.locked_until_utc
            with AutoLockRenewer() as renewer:
                renewer.register(receiver, message, max_lock_renewal_duration=60)
                wait_until(lambda: message.locked_until_utc != first, "the lock is renewed", WAIT_SECONDS)
            receiver.complete_message(message)


async def test_the_asynchronous_client_finds_the_same(space: Namespace) -> None:
    queue = space.create(QueueSettings("async", lock_seconds=LOCK_SECONDS, max_delivery_count=TRIES))
    async with (
        AsyncClient.from_connection_string(space.connection_string, retry_total=0) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
        client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead,
    ):
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(4)])
        done, again, bad, later = [await anext(receiver) for _ in range(4)]
        await receiver.abandon_message(again)
        await receiver.dead_letter_message(bad, reason="Bad")
        await receiver.defer_message(later)
        back = await anext(receiver)
        assert (_body(back), back.delivery_count) == (b"1", 1)
        await receiver.complete_message(back)
        [deferred] = await receiver.receive_deferred_messages([later.sequence_number])
        await receiver.complete_message(deferred)
        first = done.locked_until_utc
        space.pass_time(1)
        assert await receiver.renew_message_lock(done) > first
        space.pass_time(LOCK_SECONDS + 1)
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(done)
        await receiver.complete_message(await anext(receiver))
        buried = await anext(dead)
        assert buried.dead_letter_reason == "Bad"
        await dead.complete_message(buried)
        assert await receiver.peek_messages(9, sequence_number=1) == []
