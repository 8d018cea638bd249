"""Cases of group D on Service Bus: lock-lost, duplicate-delivery, poison-message, token-expiry."""

import contextlib
import time
from dataclasses import replace
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.servicebus.aio import ServiceBusClient

from core.statuses import JobStatus
from core.wire import ClaimOutcome
from messaging.postgres import PostgresTaskQueue
from messaging.servicebus import Outgoing, QueueUnavailable, ServiceBus
from repositories.database import AsyncPool, transaction
from tests.peers.servicebus.auth import Claim, Directory
from tests.peers.servicebus.faults import Action, Fault, Step
from tests.peers.servicebus.peer import Peer, running_peer
from tests.support.databases import Database
from tests.support.engine import Engine, HandWorker
from tests.support.queues import QUEUE, message
from tests.support.service_bus import BusSide, peer_settings
from tests.support.tokens import ISSUER, SigningKey
from tests.support.waiting import await_until


async def test_a_lost_lock_runs_nothing_a_second_time(side: BusSide, pool: AsyncPool, peer: Peer) -> None:
    """Case D01: the lock ends while the task runs; whoever gets the message next is told so and lets it go."""
    engine = Engine(pool)
    worker, second = HandWorker(engine), HandWorker(engine, "worker-2")
    job = await engine.create("echo_test")
    side.start_relay()
    here, there = side.receiver(), side.receiver()
    (delivery,) = await here.receive(1, 20)
    assert delivery.message is not None
    (granted,) = await worker.claim(delivery.message)
    assert granted.outcome is ClaimOutcome.GRANTED
    assert peer.expire_locks(QUEUE) == 1
    (again,) = await there.receive(1, 20)
    assert (again.message_id, again.delivery_count) == (delivery.message_id, 1)
    assert again.message is not None
    (refused,) = await second.claim(again.message)
    assert refused.outcome is ClaimOutcome.LEASED
    await there.complete([again])
    await here.complete([delivery])
    await worker.complete(delivery.message)
    assert (await engine.job(job)).status is JobStatus.COMPLETED
    await await_until(lambda: is_empty(peer), "nothing left", 10)


async def is_empty(peer: Peer) -> bool:
    return not peer.broker.find(QUEUE).messages


async def test_the_second_delivery_of_a_message_is_settled_without_work(
    side: BusSide, pool: AsyncPool, peer: Peer
) -> None:
    """Case D03."""
    engine = Engine(pool)
    worker = HandWorker(engine)
    await engine.create("echo_test")
    peer.faults.add(Fault(Step.TRANSFER_IN, Action.DUPLICATE, queue=QUEUE))
    side.start_relay()
    receiver = side.receiver()
    outcomes = []
    for _ in range(2):
        (delivery,) = await receiver.receive(1, 20)
        assert delivery.message is not None
        (answer,) = await worker.claim(delivery.message)
        outcomes.append(answer.outcome)
        if answer.outcome is ClaimOutcome.GRANTED:
            await worker.complete(delivery.message)
        await receiver.complete([delivery])
    assert outcomes == [ClaimOutcome.GRANTED, ClaimOutcome.FINISHED]
    await await_until(lambda: is_empty(peer), "nothing left", 10)


@pytest.mark.parametrize("body", [b"{not json", b"[]", b"", b"\xff\xfe", b'{"a": "\\u0000"}'])
async def test_a_poisoned_message_ends_its_run_with_the_reason(
    side: BusSide, pool: AsyncPool, peer: Peer, body: bytes
) -> None:
    """Case D05: set aside at once, watched, and the job that waits for it fails."""
    engine = Engine(pool)
    job = await engine.create("echo_test")
    message = await engine.message(job)
    await engine.query("DELETE FROM dagqueue.messages")
    await side.bus.send(QUEUE, [Outgoing(f"{message.task_id}.{message.dispatch_no}", body)])
    receiver = side.receiver()
    (delivery,) = await receiver.receive(1, 20)
    assert delivery.message is None
    await receiver.dead_letter(delivery, delivery.unreadable or "")
    assert await side.carrier().carry(20) == 1
    assert await engine.dead_letters.take_over() == 1
    await engine.advance(job)
    ended = await engine.job(job)
    assert ended.error is not None
    assert (ended.status, ended.error["code"]) == (JobStatus.FAILED, "MESSAGE_UNREADABLE")
    assert "not a task message" in ended.error["message"]


async def test_a_letter_whose_carrier_dies_before_completing_it_is_one_letter(
    side: BusSide, pool: AsyncPool, peer: Peer
) -> None:
    engine = Engine(pool)
    await side.bus.send(QUEUE, [Outgoing("job_a_0.1", b"[]")])
    receiver, carrier = side.receiver(), side.carrier()
    (delivery,) = await receiver.receive(1, 20)
    await receiver.dead_letter(delivery, "nobody wants it")
    peer.faults.add(Fault(Step.DISPOSITION, Action.LOSE, queue=f"{QUEUE}/$DeadLetterQueue"))
    assert await carrier.carry(20) == 1
    peer.expire_locks(f"{QUEUE}/$DeadLetterQueue")
    assert await carrier.carry(20) == 1
    assert await engine.dead_letters.take_over() == 1
    assert len(await engine.dead_letters.list(only_open=True, before=None, limit=9)) == 1


async def test_what_workers_never_claim_is_sent_again_then_fails(side: BusSide, pool: AsyncPool, peer: Peer) -> None:
    """The broker gives a message up after ten deliveries; nothing hangs and nothing is taken for broken at once."""
    engine = Engine(pool)
    job = await engine.create("echo_test")
    side.start_relay()
    receiver, carrier = side.receiver(), side.carrier()
    for dispatch_no in (1, 2, 3):
        for _ in range(10):
            (delivery,) = await receiver.receive(1, 20)
            assert delivery.message is not None
            assert delivery.message.dispatch_no == dispatch_no
            await receiver.abandon(delivery)
        assert await carrier.carry(20) == 1
        assert await engine.dead_letters.take_over() == 1
        await engine.advance(job)
    ended = await engine.job(job)
    assert ended.error is not None
    assert ended.error["code"] == "MESSAGE_UNDELIVERED"


class ShortLived:
    """A credential whose tokens live for seconds."""

    def __init__(self, key: SigningKey, seconds: float) -> None:
        self._key = key
        self._seconds = seconds
        self.given = 0

    async def get_token(self, *scopes: str, **_options: Any) -> AccessToken:
        """Return a new token."""
        assert scopes == ("https://servicebus.azure.net//.default",)
        self.given += 1
        expires_at = int(time.time() + self._seconds)
        claims = {"aud": "https://servicebus.azure.net", "exp": expires_at, "oid": "us", "tid": "t", "nbf": None}
        return AccessToken(self._key.token(**claims), expires_at)

    async def close(self) -> None:
        """Hold nothing."""

    async def __aenter__(self) -> "ShortLived":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


async def test_tokens_that_end_while_messages_flow_lose_none(database: Database, pool: AsyncPool) -> None:
    """Case token-expiry: links are authorised anew before their token ends, or come back after it."""
    key = SigningKey("k1")
    rights = {"us": {"": frozenset(Claim)}}
    directory = Directory({"keys": [key.jwk()]}, ISSUER, rights=rights)
    credential = ShortLived(key, 4)
    async with running_peer(replace(peer_settings(), directory=directory)) as peer:
        address = f"127.0.0.1:{peer.ports['amqp']}"
        bus = ServiceBus(ServiceBusClient(address, credential, use_tls=False, retry_total=0, try_timeout=10))
        side = BusSide(database, pool, peer, bus)
        side.start_relay()
        receiver, ended = side.receiver(), time.monotonic() + 12
        sent, got = 0, set[str]()
        while time.monotonic() < ended or len(got) < sent:
            if time.monotonic() < ended:
                async with transaction(pool) as conn:
                    await PostgresTaskQueue().enqueue(conn, [message(f"n{sent}")])
                sent += 1
            deliveries = await receiver.receive(10, 0.5)
            with contextlib.suppress(QueueUnavailable):  # its link has just ended: they come once more
                await receiver.complete(deliveries)
            got.update(one.message_id for one in deliveries)
            assert time.monotonic() < ended + 30
        await side.close()
    assert credential.given >= 3
