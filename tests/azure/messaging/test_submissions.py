"""Submits through the queue: what HTTP accepts is accepted, once; everything else is set aside with its reason."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage

from core.identity import Role
from edge.identity import Identity, Tokens
from edge.jwks import JwksCache
from edge.tokens import TokenPolicy
from orchestrator import submissions
from orchestrator.submissions import Submissions
from repositories.database import AsyncPool
from tests.peers.servicebus.faults import Action, Fault, Step
from tests.peers.servicebus.messages import Envelope
from tests.peers.servicebus.peer import Peer
from tests.support.business import FOREIGNER, READER, SUBMITTER, Business, key_file, key_of, submit_body
from tests.support.service_bus import JOBS_QUEUE, BusSide
from tests.support.storage import Folders
from tests.support.tokens import AUDIENCE, ISSUER, Provider, SigningKey, provider
from tests.support.waiting import await_until

DEAD = f"{JOBS_QUEUE}/$DeadLetterQueue"


class Door:
    """The queue as a partner has it, before two competing consumers."""

    def __init__(self, peer: Peer, business: Business, provider: Provider) -> None:
        self.peer = peer
        self.business = business
        self.provider = provider
        self.clock = 1000.0
        """Of the cache of the provider's keys."""
        self.consumers: list[Submissions] = []

    async def send(self, *messages: ServiceBusMessage | AmqpAnnotatedMessage) -> None:
        """Send as a partner does."""
        async with (
            ServiceBusClient.from_connection_string(self.peer.connection_string) as client,
            client.get_queue_sender(JOBS_QUEUE) as sender,
        ):
            for one in messages:
                await sender.send_messages(one)

    async def settled(self) -> None:
        """Wait until nothing is left in the queue."""
        await await_until(self._is_empty, "everything settled", 30)

    async def _is_empty(self) -> bool:
        return not self.peer.broker.find(JOBS_QUEUE).messages

    async def set_aside(self) -> list[str]:
        """Return the reasons of what was set aside, in order."""
        await self.settled()
        found = sorted(self.peer.broker.find(DEAD).messages.values(), key=lambda one: one.sequence)
        return [str(one.envelope.application["DeadLetterReason"]) for one in found]

    async def rows(self, table: str) -> int:
        """Return how many rows a table has."""
        (row,) = await self.business.engine.query(f"SELECT count(*) AS n FROM dagapp.{table}")
        return int(row["n"])


def submit(
    credential: dict[str | bytes, Any] | None = None, message_id: str | None = "m1", **changes: Any
) -> ServiceBusMessage:
    """Return a submit as a message."""
    given = {"X-API-Key": key_of(SUBMITTER)} if credential is None else credential
    return ServiceBusMessage(
        json.dumps(submit_body(**changes)), message_id=message_id, application_properties={**given}
    )


@pytest.fixture
def key() -> SigningKey:
    return SigningKey("k1")


@pytest.fixture
async def door(side: BusSide, peer: Peer, pool: AsyncPool, tmp_path: Path, key: SigningKey) -> AsyncIterator[Door]:
    async with provider(key) as made:
        door = Door(peer, Business(pool, Folders(tmp_path / "blobs")), made)
        cache = JwksCache(made.url, clock=lambda: door.clock)
        identity = Identity(key_file(), Tokens(TokenPolicy(ISSUER, AUDIENCE, {"alice": "ddh"}), cache))
        readers = (side.bus.reader(JOBS_QUEUE), side.bus.reader(JOBS_QUEUE))
        door.consumers = [Submissions(reader, identity, door.business.submits) for reader in readers]
        running = [asyncio.create_task(one.run()) for one in door.consumers]
        yield door
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.gather(*(one.close() for one in door.consumers))


async def test_a_submit_with_a_key_or_a_token_is_stored_as_over_http(door: Door, key: SigningKey) -> None:
    token = key.token(roles=[str(Role.SUBMITTER)])
    other = {"dataset_id": "7", "resource_id": "x"}
    await door.send(submit(), submit({"Authorization": f"Bearer {token}"}, message_id="m2", platform_refs=other))
    assert await door.set_aside() == []
    requests = await door.business.engine.query(
        "SELECT submitted_by, idempotency_key FROM dagapp.platform_requests ORDER BY idempotency_key"
    )
    assert [(row["submitted_by"], row["idempotency_key"]) for row in requests] == [("sue", "m1"), ("alice", "m2")]
    assert await door.rows("dag_jobs") == 2
    actors = await door.business.engine.query("SELECT actor, action FROM dagapp.asset_audit ORDER BY actor")
    assert [row["actor"] for row in actors] == ["alice", "sue"]


async def test_a_submit_that_comes_again_is_one_request(door: Door) -> None:
    """Stored, and then the completion is lost; or sent twice by a partner who was not sure."""
    door.peer.faults.add(Fault(Step.DISPOSITION, Action.LOSE, queue=JOBS_QUEUE))
    await door.send(submit(), submit())
    await await_until(lambda: has_requests(door), "stored", 30)
    door.peer.expire_locks(JOBS_QUEUE)
    assert await door.set_aside() == []
    assert (await door.rows("platform_requests"), await door.rows("dag_jobs")) == (1, 1)


async def has_requests(door: Door) -> bool:
    left = door.peer.broker.find(JOBS_QUEUE).messages
    return await door.rows("platform_requests") == 1 and len(left) <= 1


async def test_what_can_never_be_accepted_is_set_aside_with_its_code_and_nothing_written(
    door: Door, key: SigningKey
) -> None:
    stranger = SigningKey("k1")
    refused: list[tuple[str, ServiceBusMessage]] = [
        ("UNAUTHENTICATED", submit({})),
        ("UNAUTHENTICATED", submit({"X-API-Key": "nobody's"})),
        ("UNAUTHENTICATED", submit({"Authorization": f"Bearer {key.token(exp=1)}"})),
        ("UNAUTHENTICATED", submit({"Authorization": f"Bearer {stranger.token()}"})),
        ("UNAUTHENTICATED", submit({"Authorization": f"Bearer {key.token(aud='api://other')}"})),
        ("FORBIDDEN", submit({"X-API-Key": key_of(READER)})),
        ("FORBIDDEN", submit({"X-API-Key": key_of(FOREIGNER)})),
        ("PARAMETER_INVALID", submit(surprise=1)),
        ("PARAMETER_INVALID", submit(dry_run=True)),
        ("PARAMETER_INVALID", submit(message_id="a b")),
        ("PARAMETER_INVALID", ServiceBusMessage(b"{not json", message_id="m", application_properties=KEY)),
        ("FILE_NOT_FOUND", submit(source={"container_name": "bronze", "blob_name": "ddh/none.tif"})),
    ]
    for code, message in refused:
        await door.send(message)
        assert (await door.set_aside())[-1] == code
    await door.send(AmqpAnnotatedMessage(value_body=5, application_properties=KEY))
    assert (await door.set_aside())[-1] == "PARAMETER_INVALID"
    queue = door.peer.broker.find(JOBS_QUEUE)
    nameless = next(iter(door.peer.broker.find(DEAD).messages.values())).envelope
    queue.put(Envelope(application=KEY, body=nameless.body), door.peer.clock.now())
    door.peer.broker.changed(queue)
    assert (await door.set_aside())[-1] == "PARAMETER_MISSING"
    assert len(await door.set_aside()) == len(refused) + 2
    for table in ("platform_requests", "dag_jobs", "asset_versions", "asset_audit"):
        assert await door.rows(table) == 0


KEY: dict[str | bytes, Any] = {"X-API-Key": key_of(SUBMITTER)}


async def test_a_submit_waits_for_what_is_away_and_is_stored_when_it_is_back(door: Door, key: SigningKey) -> None:
    one_delivery(door)
    door.provider.down = True
    await door.send(submit({"Authorization": f"Bearer {key.token(roles=['submitter'])}"}))
    await await_until(lambda: was_asked(door), "it was tried", 30)
    assert await door.rows("platform_requests") == 0
    door.provider.down = False
    door.clock += 3600
    assert await door.set_aside() == []
    assert await door.rows("platform_requests") == 1


def one_delivery(door: Door, lock_seconds: float = 1.5) -> None:
    """Let the broker bury whatever is given back or forgotten once."""
    queue = door.peer.broker.find(JOBS_QUEUE)
    queue.settings = replace(queue.settings, max_delivery_count=1, lock_seconds=lock_seconds)


async def was_asked(door: Door) -> bool:
    return door.provider.asked > 0


async def test_submits_beyond_their_platforms_rate_keep_their_turn_and_none_is_buried(door: Door) -> None:
    """Six at a rate of one a second, under locks of 1.5 s: those behind are kept in hand, their locks renewed."""
    one_delivery(door)
    await door.business.engine.query(
        "UPDATE dagapp.platforms SET requests_per_minute = 60, request_burst = 1 WHERE platform_id = 'ddh'"
    )
    refs = [{"dataset_id": str(number), "resource_id": "x"} for number in range(6)]
    await door.send(*(submit(message_id=f"m{number}", platform_refs=one) for number, one in enumerate(refs)))
    assert await door.set_aside() == []
    assert await door.rows("platform_requests") == len(refs)
    assert await door.rows("dag_jobs") == len(refs)


async def test_what_waits_too_long_goes_back_for_others_and_comes_again(
    door: Door, side: BusSide, key: SigningKey
) -> None:
    door.provider.down = True
    for one in door.consumers:
        one._hold_seconds = 0.0
    await door.send(submit({"Authorization": f"Bearer {key.token(roles=['submitter'])}"}))
    await await_until(lambda: came_again(door), "it came again", 30)
    door.provider.down = False
    door.clock += 3600
    assert await door.set_aside() == []
    assert await door.rows("platform_requests") == 1


async def came_again(door: Door) -> bool:
    return any(one.delivery_count > 1 for one in door.peer.broker.find(JOBS_QUEUE).messages.values())


async def test_what_fails_for_no_known_reason_is_set_aside_at_last(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object) -> str:
        raise RuntimeError("nobody expects this")

    monkeypatch.setattr(Submissions, "_submit", fails)
    monkeypatch.setattr(submissions, "MAX_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(submissions, "FAILURES", 3)
    await door.send(submit())
    assert await door.set_aside() == ["INTERNAL"]
