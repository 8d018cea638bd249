"""What planned misfortune looks like from the real SDK: the peer's hooks do what their table says.

That geodag comes through all of it is tested on its adapter; here it is the hooks that are judged.
"""

import gc
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError, ServiceBusServerBusyError

from tests.peers.servicebus.auth import SharedKey
from tests.peers.servicebus.control import RemotePeer
from tests.peers.servicebus.faults import Action, Fault, Step
from tests.peers.servicebus.model import QueueSettings
from tests.peers.servicebus.peer import PeerSettings, ThreadedPeer, connection_string, threaded_peer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.filterwarnings(
    # The SDK lets go of the socket of a connection that the peer ended, without closing it.
    "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
)
ROOT = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 15


@dataclass
class Room:
    """A peer and a client that tries again, soon."""

    peer: ThreadedPeer
    client: ServiceBusClient

    def queue(self, **settings: float) -> str:
        """Create a queue under a name of its own."""
        name = f"q{secrets.token_hex(4)}"
        made = QueueSettings(name, lock_seconds=5, **settings)
        self.peer.call(lambda running: running.broker.create(made))
        return name

    def plan(self, step: Step, action: Action, queue: str, when: Literal["before", "after"] = "before") -> None:
        """Plan a fault."""
        fault = Fault(step, action, queue, when, seconds=0.3)
        self.peer.call(lambda running: running.faults.add(fault))

    def left(self, queue: str) -> int:
        """Return how many messages lie in a queue."""
        return self.peer.call(lambda running: len(running.broker.find(queue).messages))


@pytest.fixture(scope="module")
def room() -> Iterator[Room]:
    """Yield the room."""
    patience = {"retry_total": 3, "retry_backoff_factor": 0.05, "retry_backoff_max": 0.2, "try_timeout": 2}
    with (
        threaded_peer(PeerSettings()) as peer,
        ServiceBusClient.from_connection_string(peer.connection_string, **patience) as client,
    ):
        yield Room(peer, client)
    gc.collect()  # what was let go of is found here, not in another module


def _next(receiver: ServiceBusReceiver) -> bytes:
    [message] = receiver.receive_messages(1, max_wait_time=WAIT_SECONDS)
    receiver.complete_message(message)
    return b"".join(message.body)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_send_that_is_tried_again_arrives_once_or_twice(room: Room, when: Literal["before", "after"]) -> None:
    """Only the window of duplicates makes one message of the two that the SDK sends after a lost answer."""
    for window, arrived in ((None, 1 if when == "before" else 2), (60, 1)):
        queue = room.queue() if window is None else room.queue(duplicate_window_seconds=window)
        with room.client.get_queue_sender(queue) as sender:
            room.plan(Step.TRANSFER_IN, Action.DROP, queue, when)
            sender.send_messages(ServiceBusMessage("x", message_id="same"))
        assert room.left(queue) == arrived


def test_a_busy_attach_is_tried_again_and_a_busy_send_is_told(room: Room) -> None:
    queue = room.queue()
    room.plan(Step.ATTACH, Action.BUSY, queue)
    with room.client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("x"))
        for _ in range(4):
            room.plan(Step.TRANSFER_IN, Action.BUSY, queue)
        with pytest.raises(ServiceBusServerBusyError):
            sender.send_messages(ServiceBusMessage("y"))
    assert room.left(queue) == 1


@pytest.mark.parametrize("action", [Action.LOSE, Action.DELAY, Action.DROP])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_settlement_without_an_answer_is_settled_through_management(
    room: Room, action: Action, when: Literal["before", "after"]
) -> None:
    queue = room.queue()
    with room.client.get_queue_sender(queue) as sender, room.client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("x"))
        [message] = receiver.receive_messages(1, max_wait_time=WAIT_SECONDS)
        receiver._config.timeout = 1  # else it waits a minute for the answer, and there is no public way to say so
        room.plan(Step.DISPOSITION, action, queue, when)
        if when == "after" and action is not Action.DELAY:  # it was settled already, which the SDK hears as a lost lock
            with pytest.raises(MessageLockLostError):
                receiver.complete_message(message)
        else:
            receiver.complete_message(message)
    assert room.left(queue) == 0


def test_a_delivery_that_got_lost_comes_after_its_lock(room: Room) -> None:
    queue = room.queue()
    with room.client.get_queue_sender(queue) as sender, room.client.get_queue_receiver(queue) as receiver:
        room.plan(Step.TRANSFER_OUT, Action.LOSE, queue)
        sender.send_messages([ServiceBusMessage("first"), ServiceBusMessage("second")])
        assert _next(receiver) == b"second"
        room.peer.call(lambda running: running.advance(6))
        assert _next(receiver) == b"first"


def test_a_duplicate_and_an_expired_lock_bring_a_message_twice(room: Room) -> None:
    queue = room.queue()
    with room.client.get_queue_sender(queue) as sender, room.client.get_queue_receiver(queue) as receiver:
        room.plan(Step.TRANSFER_OUT, Action.DUPLICATE, queue)
        sender.send_messages(ServiceBusMessage("twice"))
        assert [_next(receiver), _next(receiver)] == [b"twice", b"twice"]
        room.plan(Step.TRANSFER_OUT, Action.EXPIRE_LOCK, queue, "after")
        sender.send_messages(ServiceBusMessage("lost"))
        [stale] = receiver.receive_messages(1, max_wait_time=WAIT_SECONDS)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(stale)
        assert _next(receiver) == b"lost"


def test_a_renewal_fails_as_planned(room: Room) -> None:
    queue = room.queue()
    with room.client.get_queue_sender(queue) as sender, room.client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("x"))
        [message] = receiver.receive_messages(1, max_wait_time=WAIT_SECONDS)
        room.plan(Step.RENEW, Action.BUSY, queue)
        receiver.renew_message_lock(message)
        room.plan(Step.RENEW, Action.EXPIRE_LOCK, queue)
        with pytest.raises(MessageLockLostError):
            receiver.renew_message_lock(message)
        assert _next(receiver) == b"x"
        struck = [fault.action for fault, where in room.peer.peer.faults.struck if where == queue]
        assert struck == [Action.BUSY, Action.EXPIRE_LOCK]


def _process(folder: Path, port: int = 0) -> tuple["subprocess.Popen[bytes]", dict[str, int]]:
    ports = folder / "ports.json"
    ports.unlink(missing_ok=True)
    where = ["--journal", str(folder / "journal"), "--ports-file", str(ports), "--control-port", "0"]
    command = [sys.executable, "-m", "tests.peers.servicebus", "--port", str(port), "--queue", "work", *where]
    started = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(ROOT)})
    wait_until(ports.exists, "the peer listens", WAIT_SECONDS)
    found: dict[str, int] = json.loads(ports.read_text())
    return started, found


def test_a_killed_peer_goes_on_where_it_was_and_the_clients_with_it(tmp_path: Path) -> None:
    started, ports = _process(tmp_path)
    patience = {"retry_total": 5, "retry_backoff_factor": 0.1, "retry_backoff_max": 0.5}
    try:
        string = connection_string(SharedKey(), ports["amqp"])
        with ServiceBusClient.from_connection_string(string, **patience) as client:
            sender: ServiceBusSender = client.get_queue_sender("work")
            with sender, client.get_queue_receiver("work") as receiver:
                sender.send_messages([ServiceBusMessage(str(number)) for number in range(3)])
                assert _next(receiver) == b"0"
                started.kill()
                started.wait()
                started, ports = _process(tmp_path, ports["amqp"])
                sender.send_messages(ServiceBusMessage("after"))
                assert [_next(receiver) for _ in range(3)] == [b"1", b"2", b"after"]
                remote = RemotePeer(f"http://127.0.0.1:{ports['control']}")
                assert remote.queues()["work"]["active"] == 0
                remote.add(Fault(Step.TRANSFER_IN, Action.DROP, queue="work", times=20))
                with pytest.raises(ServiceBusError):
                    sender.send_messages(ServiceBusMessage("never"))
                assert {fault["struck"] for fault in remote.struck()} == {"work"}
                remote.clear()
    finally:
        started.send_signal(signal.SIGTERM)
        assert started.wait(10) == 0
