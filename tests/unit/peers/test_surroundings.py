"""What stands around the queues: the journal, planned faults, durations of the administration, little HTTP."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tests.peers.servicebus import atom, control
from tests.peers.servicebus.broker import Broker
from tests.peers.servicebus.clock import Clock
from tests.peers.servicebus.control import RemotePeer
from tests.peers.servicebus.errors import EXISTS, NOT_FOUND, SERVER_BUSY, BrokerError
from tests.peers.servicebus.faults import POSSIBLE, Action, Fault, Operation, Plan, Step
from tests.peers.servicebus.journal import FileJournal
from tests.peers.servicebus.messages import SCHEDULED_TIME, Envelope
from tests.peers.servicebus.model import QueueSettings, State
from tests.peers.servicebus.peer import Peer, PeerSettings
from tests.peers.servicebus.types import Symbol, Timestamp, UInt
from tests.peers.servicebus.web import Request, serve

BODY = b"\x00\x53\x75\xa0\x01x"


class TestJournal:
    """A restarted peer goes on where it was."""

    def test_messages_come_back_as_they_were_and_the_gone_stay_gone(self, tmp_path: Path) -> None:
        path, clock = tmp_path / "journal", Clock()
        now = clock.now()
        journal = FileJournal(path)
        broker = Broker([QueueSettings("work", max_delivery_count=2)], clock, journal)
        queue = broker.find("work")
        whole = Envelope([True, None, UInt(60_000)], {Symbol("a"): 1}, ["id", None], {"n": UInt(3)}, BODY)
        for _ in range(4):
            queue.put(whole.copy(), now)
        queue.schedule(Envelope(annotations={SCHEDULED_TIME: Timestamp(round((now + 9) * 1000))}, body=BODY), now)
        for settle in (queue.complete, queue.dead_letter, queue.defer, queue.abandon):
            message = queue.take(now)
            assert message is not None
            assert message.lock is not None
            settle(message.lock, now)
        broker.create(QueueSettings("other")).put(Envelope(body=BODY), now)
        broker.create(QueueSettings("gone")).put(Envelope(body=BODY), now)
        broker.delete("gone")
        journal.close()

        reopened = FileJournal(path)
        again = Broker([QueueSettings("work", lock_seconds=3)], clock, reopened)
        found = again.find("WORK")
        assert found.settings.lock_seconds == 3
        assert sorted((m.sequence, m.state, m.delivery_count) for m in found.messages.values()) == [
            (3, State.DEFERRED, 1),
            (4, State.ACTIVE, 1),
            (5, State.SCHEDULED, 0),
        ]
        abandoned = found.take(now)
        assert abandoned is not None
        assert abandoned.envelope.properties == whole.properties
        assert abandoned.envelope.application == whole.application
        assert abandoned.expires_at == pytest.approx(now + 60)
        assert found.next_due() == pytest.approx(now + 3)
        assert [m.sequence for m in again.find("work/$DeadLetterQueue").messages.values()] == [2]
        assert len(again.find("other").messages) == 1
        with pytest.raises(BrokerError) as missing:
            again.find("gone")
        assert missing.value.condition == NOT_FOUND
        fresh = found.put(Envelope(body=BODY), now)
        assert fresh is not None
        assert fresh.sequence == 6
        keys = [m.key for queue in again for m in queue.messages.values()]
        assert len(set(keys)) == len(keys)
        reopened.close()

    def test_a_line_cut_short_takes_nothing_else_with_it(self, tmp_path: Path) -> None:
        path = tmp_path / "journal"
        journal = FileJournal(path)
        queue = Broker([QueueSettings("work")], Clock(), journal).find("work")
        for _ in range(2):
            queue.put(Envelope(body=BODY), 0)
        journal.close()
        path.write_bytes(path.read_bytes()[:-10])
        with contextlib.closing(FileJournal(path)) as reopened:
            assert [message.sequence for _, message in reopened.messages()] == [1]

    def test_the_file_does_not_grow_with_what_is_gone(self, tmp_path: Path) -> None:
        path = tmp_path / "journal"
        journal = FileJournal(path)
        queue = Broker([QueueSettings("work")], Clock(), journal).find("work")
        for _ in range(50):
            queue.put(Envelope(body=BODY), 0)
            queue.take(0, keep=False)
        journal.close()
        before = path.stat().st_size
        with contextlib.closing(FileJournal(path)) as reopened:
            assert path.stat().st_size < before / 10
            assert reopened.last_sequences() == {"work": 50}


class Around:
    """What faults reach, noted."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.waiting: list[Callable[[], None]] = []

    def drop(self) -> None:
        self.log.append("dropped")

    def expire(self, queue: str, tokens: tuple[UUID, ...]) -> None:
        assert (queue, len(tokens)) == ("work", 1)
        self.log.append("expired")

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        assert seconds == 2
        self.log.append("waits")
        self.waiting.append(what)


WANTED = {
    ("drop", "before"): "dropped",
    ("drop", "after"): "done dropped",
    ("lose", "before"): "",
    ("lose", "after"): "done",
    ("delay", "before"): "waits done answered",
    ("delay", "after"): "done waits answered",
    ("duplicate", "before"): "again done answered",
    ("duplicate", "after"): "done answered again",
    ("expire_lock", "before"): "expired done answered",
    ("expire_lock", "after"): "done answered expired",
    ("busy", "before"): "refused",
    ("busy", "after"): "done refused",
}


@pytest.mark.parametrize(("action", "when"), WANTED)
def test_a_fault_strikes_before_or_after_the_effect(action: str, when: str) -> None:
    around, plan = Around(), Plan()
    log = around.log

    def effect() -> Callable[[], None]:
        log.append("done")
        return lambda: log.append("answered")

    def refuse(problem: BrokerError) -> None:
        assert problem.condition == SERVER_BUSY
        log.append("refused")

    step = next(step for step, actions in POSSIBLE.items() if action in actions)
    operation = Operation("work", step, effect, refuse, tokens=(uuid4(),), duplicate=lambda: log.append("again"))
    plan.add(Fault(step, Action(action), when=when, seconds=2))  # type: ignore[arg-type]
    plan.perform(operation, around)
    for what in around.waiting:
        what()
    assert " ".join(log) == WANTED[action, when]
    plan.perform(operation, around)
    assert log[-2:] == ["done", "answered"]


def test_a_refusal_is_lost_and_delayed_like_any_answer() -> None:
    around, refused = Around(), []

    def effect() -> Callable[[], None]:
        raise BrokerError(NOT_FOUND, "no")

    operation = Operation("work", Step.ATTACH, effect, refused.append)
    plan = Plan()
    plan.add(Fault(Step.ATTACH, Action.LOSE, when="after"))
    plan.perform(operation, around)
    assert refused == []
    plan.perform(operation, around)
    assert [problem.condition for problem in refused] == [NOT_FOUND]


def test_every_action_has_a_step_and_every_other_pair_is_refused() -> None:
    plan = Plan()
    for step, action in itertools.product(Step, Action):
        if action in POSSIBLE[step]:
            plan.add(Fault(step, action))
        else:
            with pytest.raises(ValueError, match="makes no sense"):
                plan.add(Fault(step, action))
    plan.clear()
    assert all(plan.strike("work", step) is None for step in Step)


def test_queues_are_made_once_and_found_whatever_the_case() -> None:
    broker = Broker([QueueSettings("Work")], Clock())
    assert broker.find("work").name == "Work"
    assert broker.find("WORK/$deadletterqueue").dead is None
    with pytest.raises(BrokerError) as refused:
        broker.create(QueueSettings("wORK"))
    assert refused.value.condition == EXISTS


@pytest.mark.parametrize(
    ("text", "seconds"), [("PT5S", 5), ("PT1M", 60), ("P14D", 1_209_600), ("P1DT2H3M4.5S", 93_784.5), ("PT0.25S", 0.25)]
)
def test_durations_are_read_and_written(text: str, seconds: float) -> None:
    assert atom.seconds(text) == seconds
    assert atom.seconds(atom.duration(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "P", "PT", "5", "PT5", "P1M", "-PT5S"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(BrokerError):
        atom.seconds(text)


def test_a_control_request_that_makes_no_sense_is_told_so() -> None:
    answer = control.answering(Peer(PeerSettings()))
    for method, path, body in (
        ("GET", "/nowhere", b""),
        ("POST", "/faults", b'{"step": "attach", "action": "expire_lock"}'),
        ("POST", "/faults", b'{"step": "attach"}'),
        ("POST", "/faults", b"no json"),
        ("POST", "/expire", b'{"queue": "none"}'),
        ("POST", "/advance", b"{}"),
    ):
        assert answer(Request(method, path, {}, {}, body)).status == 400


async def test_a_peer_elsewhere_is_told_what_to_do() -> None:
    peer = Peer(PeerSettings(queues=(QueueSettings("work"),), control_port=0))
    await peer.start()
    try:
        remote = RemotePeer(f"http://127.0.0.1:{peer.ports['control']}")
        queue = peer.broker.find("work")
        queue.put(Envelope(body=BODY), peer.clock.now())
        queue.take(peer.clock.now())
        counted = {"active": 1, "deferred": 0, "scheduled": 0, "locked": 1}
        assert (await asyncio.to_thread(remote.queues))["work"] == counted
        assert await asyncio.to_thread(remote.expire_locks, "work") == 1
        assert await asyncio.to_thread(remote.drop_connections) == 0
        await asyncio.to_thread(remote.add, Fault(Step.ATTACH, Action.BUSY, queue="work"))
        assert peer.faults.strike("other", Step.ATTACH) is None
        await asyncio.to_thread(remote.clear)
        assert peer.faults.strike("work", Step.ATTACH) is None
        await asyncio.to_thread(remote.add, Fault(Step.ATTACH, Action.BUSY, when="after"))
        assert peer.faults.strike("work", Step.ATTACH) is not None
        [struck] = await asyncio.to_thread(remote.struck)
        assert (struck["action"], struck["when"], struck["struck"]) == ("busy", "after", "work")
        before = peer.clock.now()
        await asyncio.to_thread(remote.advance, 30)
        assert peer.clock.now() >= before + 30
    finally:
        await peer.stop()


async def test_a_request_that_cannot_be_read_is_refused() -> None:
    server = await serve(control.answering(Peer(PeerSettings())), 0)
    port = server.sockets[0].getsockname()[1]
    for sent in (b"nonsense\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", b"GET / HTTP/1.1\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        writer.write_eof()
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        await writer.wait_closed()
    server.close()
    await server.wait_closed()
