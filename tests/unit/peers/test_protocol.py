"""What the peer does with frames, seen by a client that sends them one by one."""

import asyncio
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.peers.servicebus.auth import ALL, Claim, Grant, SharedKey
from tests.peers.servicebus.codec import encode
from tests.peers.servicebus.faults import Action, Fault, Step
from tests.peers.servicebus.messages import BATCH_FORMAT, body_value, parse
from tests.peers.servicebus.model import QueueSettings
from tests.peers.servicebus.peer import Peer, PeerSettings
from tests.peers.servicebus.performatives import (
    ACCEPTED,
    AMQP_HEADER,
    MODIFIED,
    REJECTED,
    RELEASED,
    SASL_HEADER,
    Attach,
    Close,
    Detach,
    Disposition,
    Flow,
    SaslInit,
    SaslOutcome,
    Transfer,
    encode_frame,
    outcome,
)
from tests.peers.servicebus.types import Array, Described, Symbol, ULong
from tests.support.amqp_wire import Wire, message
from tests.support.waiting import await_until

KEYS = (SharedKey("owner", "k"), SharedKey("reader", "r", frozenset({Claim.LISTEN})))


@pytest.fixture
async def peer() -> Peer:
    """Return a peer that listens nowhere."""
    return Peer(PeerSettings(queues=(QueueSettings("work", lock_seconds=10), QueueSettings("other")), keys=KEYS))


@pytest.fixture
async def wire(peer: Peer) -> Wire:
    """Return a connection with every right and a session."""
    made = Wire(peer)
    made.open_as_owner()
    return made


async def written(wire: Wire) -> bool:
    return bool(wire.written)


def _condition(closing: Close | Detach) -> str:
    assert isinstance(closing.error, Described)
    return str(closing.error.value[0])


def _transfer(delivery_id: int, payload: bytes = b"", **more: object) -> Transfer:
    return Transfer(0, delivery_id, b"t", 0, settled=False, payload=payload or message(), **more)  # type: ignore[arg-type]


async def test_without_sasl_or_with_an_unknown_way_there_is_no_connection(peer: Peer) -> None:
    bare = Wire(peer)
    bare.connection.data_received(AMQP_HEADER)
    assert bare.ended == "closed"
    for mechanism, response in (("SCRAM", b""), ("PLAIN", b"\0owner\0no"), ("PLAIN", b""), ("PLAIN", b"\0who\0k")):
        wire = Wire(peer)
        wire.connection.data_received(SASL_HEADER)
        wire.say(SaslInit(Symbol(mechanism), response))
        assert (wire.hear_one(SaslOutcome).code, wire.ended) == (1, "closed")


async def test_nothing_is_attached_before_a_token_opens_it(peer: Peer) -> None:
    wire = Wire(peer)
    wire.open()
    for handle, attach in enumerate((wire.send_to, wire.receive_from)):
        attach("work", handle)
        assert _condition(wire.hear_one(Detach)) == "amqp:unauthorized-access"
    answer = wire.ask("work/$management", {"operation": "com.microsoft:peek-message"}, {"from-sequence-number": 0})
    assert answer.application["statusCode"] == 401


async def test_a_right_opens_what_it_names_and_no_more(peer: Peer) -> None:
    wire = Wire(peer)
    wire.open("PLAIN", b"\0reader\0r")
    wire.receive_from("work", 1)
    assert not [frame for frame in wire.hear() if isinstance(frame, Detach)]
    wire.send_to("work", 2)
    refused = wire.hear()
    assert [type(frame) for frame in refused] == [Attach, Detach]
    schedule = {"operation": "com.microsoft:schedule-message"}
    assert wire.ask("work/$management", schedule, {"messages": []}).application["statusCode"] == 401


async def test_a_missing_queue_is_refused_without_its_end_and_late_frames_are_lost(wire: Wire) -> None:
    wire.send_to("nowhere")
    attach, detach = wire.hear()
    assert isinstance(attach, Attach)
    assert isinstance(detach, Detach)
    assert (attach.target, _condition(detach)) == (None, "amqp:not-found")
    wire.say(_transfer(1), Flow(1, 10, 1, 10, handle=0, link_credit=1, delivery_count=0))
    assert (wire.hear(), wire.ended) == ([], "")
    wire.say(Detach(0, closed=True))
    wire.receive_from("nowhere", 0)
    refused = wire.hear()
    assert [type(frame) for frame in refused] == [Attach, Detach]
    assert isinstance(refused[0], Attach)
    assert (refused[0].source, wire.ended) == (None, "")


async def test_a_message_in_parts_is_one_message(wire: Wire) -> None:
    wire.send_to("work")
    payload = message(b"long " * 100)
    for start in range(0, len(payload), 50):
        part = payload[start : start + 50]
        wire.say(_transfer(5, part, more=start + 50 < len(payload)))
    answer = wire.hear_one(Disposition)
    assert (answer.first, answer.settled, answer.state) == (5, True, outcome(ACCEPTED))
    wire.receive_from("work")
    assert parse(wire.hear_one(Transfer).payload).body.endswith(b"long " * 100)


async def test_a_large_message_goes_out_in_frames_that_the_client_takes(peer: Peer) -> None:
    wire = Wire(peer)
    wire.open_as_owner(frame_bytes=512)
    wire.send_to("work")
    wire.say(_transfer(1, message(b"y" * 2000)))
    wire.receive_from("work", settled=True)
    sizes, size = [], 0
    raw = bytes(wire.written)
    while raw:
        size = int.from_bytes(raw[:4], "big")
        sizes.append(size)
        raw = raw[size:]
    parts = [frame for frame in wire.hear() if isinstance(frame, Transfer)]
    assert max(sizes) <= 512
    assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]
    assert parse(b"".join(part.payload for part in parts)).body.endswith(b"y" * 2000)


async def test_the_parts_of_a_message_wait_for_the_window(peer: Peer) -> None:
    wire = Wire(peer)
    wire.open_as_owner(frame_bytes=512)
    wire.send_to("work")
    wire.say(_transfer(1, message(b"y" * 2000)))
    wire.receive_from("work", credit=0)
    wire.hear()
    wire.say(Flow(1, 2, 2, 1000, handle=1, delivery_count=0, link_credit=1))
    first = [frame for frame in wire.hear() if isinstance(frame, Transfer)]
    assert [part.more for part in first] == [True, True]
    wire.say(Flow(3, 100, 2, 1000))
    rest = [frame for frame in wire.hear() if isinstance(frame, Transfer)]
    assert parse(b"".join(part.payload for part in (*first, *rest))).body.endswith(b"y" * 2000)


async def test_a_settled_disposition_asks_for_no_answer(wire: Wire) -> None:
    wire.send_to("work")
    wire.say(_transfer(1))
    wire.receive_from("work", credit=1)
    delivery = wire.hear_one(Transfer)
    wire.say(Disposition(role=True, first=delivery.delivery_id or 0, settled=True, state=outcome(ACCEPTED)))
    assert not [frame for frame in wire.hear() if isinstance(frame, Disposition)]
    assert not wire.connection.peer.broker.find("work").messages


async def test_an_aborted_message_never_was(wire: Wire) -> None:
    wire.send_to("work")
    wire.say(_transfer(1, more=True), Transfer(0, 1, aborted=True))
    wire.say(_transfer(2, message(b"whole")))
    assert wire.hear_one(Disposition).first == 2
    assert len(wire.connection.peer.broker.find("work").messages) == 1


async def test_a_batch_holds_many_messages(wire: Wire) -> None:
    wire.send_to("work")
    parts = b"".join(encode(Described(ULong(0x75), message(body))) for body in (b"1", b"2", b"3"))
    wire.say(Transfer(0, 1, b"t", BATCH_FORMAT, settled=False, payload=parts))
    wire.receive_from("work")
    bodies = [parse(frame.payload).body[-1:] for frame in wire.hear() if isinstance(frame, Transfer)]
    assert bodies == [b"1", b"2", b"3"]


async def test_what_is_too_large_or_no_message_is_refused(wire: Wire) -> None:
    wire.send_to("work")
    wire.say(_transfer(1, b"\x00\x53\x99\x45"))
    assert wire.hear_one(Disposition).state.descriptor == REJECTED
    for _ in range(10):
        wire.say(_transfer(2, b"z" * 60_000, more=True))
        if found := [frame for frame in wire.hear() if isinstance(frame, Detach)]:
            break
    assert _condition(found[0]) == "amqp:link:message-size-exceeded"
    assert not wire.connection.peer.broker.find("work").messages


async def test_credit_and_window_hold_messages_back(wire: Wire) -> None:
    wire.send_to("work")
    for number in range(6):
        wire.say(_transfer(number))
    wire.hear()
    wire.receive_from("work", credit=2)
    assert sum(isinstance(frame, Transfer) for frame in wire.hear()) == 2
    wire.say(Flow(3, 0, 7, 1000, handle=1, delivery_count=2, link_credit=10))
    assert sum(isinstance(frame, Transfer) for frame in wire.hear()) == 0
    wire.say(Flow(3, 3, 7, 1000))
    assert sum(isinstance(frame, Transfer) for frame in wire.hear()) == 3


async def test_draining_gives_the_rest_of_the_credit_back(wire: Wire) -> None:
    wire.send_to("work")
    wire.say(_transfer(1))
    wire.receive_from("work", credit=1)
    wire.hear()
    wire.say(Flow(2, 1000, 2, 1000, handle=1, delivery_count=1, link_credit=5, drain=True))
    flow = wire.hear_one(Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (6, 0, True)
    wire.say(_transfer(2))
    assert not [frame for frame in wire.hear() if isinstance(frame, Transfer)]


@pytest.mark.parametrize(
    ("said", "active", "dead", "counted"),
    [
        (outcome(ACCEPTED), 0, 0, 0),
        (outcome(RELEASED), 1, 0, 0),
        (outcome(MODIFIED, True, False, None), 1, 0, 1),
        (outcome(MODIFIED, False, True, None), 1, 0, 1),
        (outcome(REJECTED), 0, 1, 0),
    ],
    ids=["complete", "release", "abandon", "defer", "dead-letter"],
)
async def test_an_outcome_is_confirmed_by_its_own_name(
    wire: Wire, said: Described, active: int, dead: int, counted: int
) -> None:
    broker = wire.connection.peer.broker
    wire.send_to("work")
    wire.say(_transfer(1))
    wire.receive_from("work", credit=1)
    delivery = wire.hear_one(Transfer)
    wire.say(Disposition(role=True, first=delivery.delivery_id or 0, settled=False, state=said))
    answer = wire.hear_one(Disposition)
    assert (answer.role, answer.settled, answer.state.descriptor) == (False, True, said.descriptor)
    assert not any(answer.state.value) or said.descriptor == MODIFIED
    found = broker.find("work").messages.values()
    assert (len(found), len(broker.find("work/$DeadLetterQueue").messages)) == (active, dead)
    assert sum(message.delivery_count for message in found) == counted


async def test_a_lost_lock_is_a_rejection_with_an_error(peer: Peer, wire: Wire) -> None:
    wire.send_to("work")
    wire.say(_transfer(1))
    wire.receive_from("work", credit=1)
    delivery = wire.hear_one(Transfer)
    peer.advance(11)
    wire.say(Disposition(role=True, first=delivery.delivery_id or 0, settled=False, state=outcome(ACCEPTED)))
    answer = wire.hear_one(Disposition)
    assert answer.state.descriptor == REJECTED
    assert answer.state.value[0].value[0] == "com.microsoft:message-lock-lost"


async def test_locks_outlive_the_connection_and_are_settled_through_management(peer: Peer, wire: Wire) -> None:
    wire.send_to("work")
    wire.say(_transfer(1))
    wire.receive_from("work", credit=1)
    token = UUID(bytes_le=wire.hear_one(Transfer).delivery_tag or b"")
    wire.abort()
    second = Wire(peer)
    second.open_as_owner()
    second.receive_from("work")
    assert not [frame for frame in second.hear() if isinstance(frame, Transfer)]
    renewed = second.ask(
        "work/$management", {"operation": b"com.microsoft:renew-lock"}, {"lock-tokens": Array((token,))}
    )
    assert (renewed.application["statusCode"], renewed.properties[5]) == (200, 7)
    assert body_value(renewed)["expirations"].items[0] > 0
    asked = {"lock-tokens": Array((token,)), "disposition-status": "completed"}
    for status in (200, 410):
        answer = second.ask("work/$management", {"operation": "com.microsoft:update-disposition"}, asked)
        assert answer.application["statusCode"] == status
    assert answer.application["errorCondition"] == "com.microsoft:message-lock-lost"


@pytest.mark.parametrize(
    ("operation", "value", "status"),
    [
        ("com.microsoft:get-rules", {}, 501),
        ("com.microsoft:renew-lock", {}, 400),
        ("com.microsoft:renew-lock", {"lock-tokens": Array((1,))}, 400),
        ("com.microsoft:update-disposition", {"lock-tokens": [], "disposition-status": "eaten"}, 400),
        ("com.microsoft:schedule-message", {"messages": [{"message": b"\x40"}]}, 400),
        ("com.microsoft:schedule-message", {"messages": [{}]}, 400),
        ("com.microsoft:schedule-message", {"messages": 3}, 400),
        ("com.microsoft:cancel-scheduled-message", {"sequence-numbers": Array((9,))}, 404),
        ("com.microsoft:peek-message", {"from-sequence-number": 0, "message-count": 5}, 204),
        ("com.microsoft:peek-message", {"from-sequence-number": 0}, 400),
        ("com.microsoft:peek-message", None, 400),
        ("com.microsoft:receive-by-sequence-number", {"sequence-numbers": [], "receiver-settle-mode": 1}, 204),
    ],
)
async def test_a_request_that_makes_no_sense_is_told_so(wire: Wire, operation: str, value: object, status: int) -> None:
    answer = wire.ask("work/$management", {"operation": operation}, value)
    assert answer.application["statusCode"] == status


async def test_expired_tokens_take_their_links_with_them(peer: Peer) -> None:
    wire = Wire(peer)
    wire.open_as_owner()
    wire.connection.admit(Grant("", ALL, peer.clock.now() + 60))
    wire.receive_from("work")
    peer.advance(59)
    assert not [frame for frame in wire.hear() if isinstance(frame, Detach)]
    peer.advance(2)
    assert _condition(wire.hear_one(Detach)) == "amqp:unauthorized-access"


async def test_a_token_expires_by_itself_and_a_renewed_one_lasts(peer: Peer) -> None:
    wire = Wire(peer)
    wire.open()
    wire.connection.admit(Grant("work", ALL, peer.clock.now() + 0.01))
    wire.connection.admit(Grant("other", ALL, peer.clock.now() + 0.01))
    wire.receive_from("work", 1)
    wire.receive_from("other", 2)
    wire.connection.admit(Grant("other", ALL, peer.clock.now() + 60))
    wire.hear()
    await await_until(lambda: written(wire), "something written", 5)
    assert wire.hear_one(Detach).handle == 1
    wire.connection.drop()


async def test_a_handle_in_use_is_not_given_again(wire: Wire) -> None:
    wire.receive_from("work", 1)
    wire.hear()
    wire.receive_from("work", 1)
    assert _condition(wire.hear_one(Close)) == "amqp:session:handle-in-use"
    assert not wire.connection.peer.broker.find("work").consumers


async def test_a_frame_out_of_place_closes_the_connection_and_says_why(wire: Wire) -> None:
    wire.say(Transfer(77, 1, b"t", payload=message()))
    assert (_condition(wire.hear_one(Close)), wire.ended) == ("amqp:session:unattached-handle", "closed")


async def test_a_frame_larger_than_agreed_is_not_waited_for(wire: Wire) -> None:
    wire.connection.data_received((1 << 24).to_bytes(4, "big") + b"\x02\x00\x00\x00")
    assert _condition(wire.hear_one(Close)) == "amqp:connection:framing-error"


async def test_a_silent_client_is_closed() -> None:
    peer = Peer(PeerSettings(idle_seconds=0.02))
    wire = Wire(peer)
    await asyncio.wait_for(wire.connection.gone.wait(), 5)
    assert wire.ended == "closed"


@pytest.mark.parametrize("action", [Action.LOSE, Action.DROP])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_send_whose_answer_is_lost_may_or_may_not_have_arrived(
    peer: Peer, wire: Wire, action: Action, when: str
) -> None:
    wire.send_to("work")
    wire.hear()
    peer.faults.add(Fault(Step.TRANSFER_IN, action, when=when))  # type: ignore[arg-type]
    wire.say(_transfer(1))
    assert wire.hear() == []
    assert wire.ended == ("aborted" if action is Action.DROP else "")
    assert len(peer.broker.find("work").messages) == (when == "after")


async def test_faults_strike_one_queue_after_those_that_are_skipped(peer: Peer, wire: Wire) -> None:
    peer.faults.add(Fault(Step.TRANSFER_IN, Action.BUSY, queue="WORK", skip=2, times=2))
    wire.send_to("other", 0)
    wire.hear()
    wire.say(_transfer(1))
    assert wire.hear_one(Disposition).state.descriptor == ACCEPTED
    wire.send_to("work", 3)
    wire.hear()
    answers = []
    for number in range(5):
        wire.say(Transfer(3, 10 + number, b"t", 0, settled=False, payload=message()))
        answers.append(wire.hear_one(Disposition).state.descriptor)
    assert answers == [ACCEPTED, ACCEPTED, REJECTED, REJECTED, ACCEPTED]
    assert [queue for _, queue in peer.faults.struck] == ["work", "work"]


async def test_a_duplicate_is_delivered_under_another_lock(peer: Peer, wire: Wire) -> None:
    peer.faults.add(Fault(Step.TRANSFER_OUT, Action.DUPLICATE))
    wire.send_to("work")
    wire.say(_transfer(1))
    wire.receive_from("work")
    first, second = (frame for frame in wire.hear() if isinstance(frame, Transfer))
    assert first.delivery_tag != second.delivery_tag
    for frame in (first, second):
        wire.say(Disposition(role=True, first=frame.delivery_id or 0, settled=False, state=outcome(ACCEPTED)))
        assert wire.hear_one(Disposition).state.descriptor == ACCEPTED


async def test_a_lock_expires_where_it_is_told_to(peer: Peer, wire: Wire) -> None:
    wire.send_to("work")
    wire.say(_transfer(1))
    peer.faults.add(Fault(Step.TRANSFER_OUT, Action.EXPIRE_LOCK, when="after"))
    wire.receive_from("work")
    first, second = (frame for frame in wire.hear() if isinstance(frame, Transfer))
    assert parse(second.payload).header[4] == 1
    peer.faults.add(Fault(Step.RENEW, Action.EXPIRE_LOCK))
    token = UUID(bytes_le=second.delivery_tag or b"")
    asked = {"lock-tokens": Array((token,))}
    answer = wire.ask("work/$management", {"operation": "com.microsoft:renew-lock"}, asked)
    assert answer.application["statusCode"] == 410
    assert first.delivery_tag != second.delivery_tag


async def test_a_delayed_answer_comes_later(peer: Peer, wire: Wire) -> None:
    wire.send_to("work")
    wire.hear()
    peer.faults.add(Fault(Step.TRANSFER_IN, Action.DELAY, when="after", seconds=0.01))
    wire.say(_transfer(1))
    assert (wire.hear(), len(peer.broker.find("work").messages)) == ([], 1)
    await await_until(lambda: written(wire), "something written", 5)
    assert wire.hear_one(Disposition).state.descriptor == ACCEPTED


async def test_an_action_that_makes_no_sense_at_a_step_is_not_planned(peer: Peer) -> None:
    with pytest.raises(ValueError, match="makes no sense"):
        peer.faults.add(Fault(Step.ATTACH, Action.EXPIRE_LOCK))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.booleans())
def test_no_bytes_bring_the_peer_down(chunks: list[bytes], opened: bool) -> None:
    async def throw() -> None:
        wire = Wire(Peer(PeerSettings(keys=KEYS)))
        if opened:
            wire.open_as_owner()
        for chunk in chunks:
            frame = (len(chunk) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + chunk if opened else chunk
            wire.connection.data_received(frame)
        assert wire.ended != "aborted"
        wire.connection.drop()

    asyncio.run(throw())


async def test_frames_are_read_however_they_are_cut(wire: Wire) -> None:
    wire.send_to("work")
    wire.hear()
    frame = encode_frame(0, _transfer(1))
    for byte in frame + frame:
        wire.connection.data_received(bytes((byte,)))
    assert sum(isinstance(answer, Disposition) for answer in wire.hear()) == 2
