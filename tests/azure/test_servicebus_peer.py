"""The real SDK finds on the peer what Service Bus promises."""

from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import MessageLockLostError

from tests.peers.servicebus.model import QueueSettings
from tests.peers.servicebus.peer import PeerSettings, ThreadedPeer, threaded_peer

QUEUE = "work"


@pytest.fixture(scope="module")
def peer() -> Iterator[ThreadedPeer]:
    with threaded_peer(PeerSettings(queues=(QueueSettings(QUEUE, lock_seconds=5, max_delivery_count=3),))) as running:
        yield running


@pytest.fixture(scope="module")
def client(peer: ThreadedPeer) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(peer.connection_string, retry_total=0) as opened:
        yield opened


@pytest.fixture(scope="module")
def sender(client: ServiceBusClient) -> Iterator[ServiceBusSender]:
    with client.get_queue_sender(QUEUE) as opened:
        yield opened


@pytest.fixture(scope="module")
def receiver(client: ServiceBusClient) -> Iterator[ServiceBusReceiver]:
    with client.get_queue_receiver(QUEUE, max_wait_time=5) as opened:
        yield opened


def test_a_message_comes_as_it_was_sent_and_is_gone_when_completed(
    peer: ThreadedPeer, sender: ServiceBusSender, receiver: ServiceBusReceiver
) -> None:
    sender.send_messages(ServiceBusMessage(b"body", message_id="one", application_properties={"kind": "task"}))
    message = next(receiver)
    assert (b"".join(message.body), message.message_id, message.delivery_count) == (b"body", "one", 0)
    assert message.application_properties == {b"kind": b"task"}
    receiver.complete_message(message)
    assert peer.call(lambda running: len(running.broker.find(QUEUE).messages)) == 0


def test_an_abandoned_message_is_counted_and_a_dead_one_says_why(
    client: ServiceBusClient, sender: ServiceBusSender, receiver: ServiceBusReceiver
) -> None:
    sender.send_messages(ServiceBusMessage("again"))
    receiver.abandon_message(next(receiver))
    second = next(receiver)
    assert second.delivery_count == 1
    receiver.dead_letter_message(second, reason="poison", error_description="cannot be read")
    with client.get_queue_receiver(QUEUE, sub_queue="deadletter", max_wait_time=5) as dead:
        buried = next(dead)
        assert (buried.dead_letter_reason, buried.dead_letter_error_description) == ("poison", "cannot be read")
        dead.complete_message(buried)


def test_a_renewed_lock_holds_and_an_expired_one_is_told(
    peer: ThreadedPeer, sender: ServiceBusSender, receiver: ServiceBusReceiver
) -> None:
    sender.send_messages(ServiceBusMessage("slow"))
    message = next(receiver)
    peer.call(lambda running: running.advance(3))
    receiver.renew_message_lock(message)
    peer.call(lambda running: running.advance(4))
    receiver.renew_message_lock(message)
    peer.call(lambda running: running.advance(6))
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(message)
    receiver.complete_message(next(receiver))
