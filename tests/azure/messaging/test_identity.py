"""The way into a real namespace: TLS, and tokens of the process's managed identity, fresh for as long as it lasts."""

import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cli.stack.certificates import self_signed
from core.errors import TransientError
from messaging.servicebus import Outgoing, QueueUnavailable, ServiceBus
from messaging.settings import QueueSettings
from repositories.managed_identity import SERVICE_BUS
from tests.peers.identity.server import ISSUER, IdentityPeer
from tests.peers.servicebus.auth import ALL, Directory
from tests.peers.servicebus.peer import Peer, running_peer
from tests.support.queues import QUEUE
from tests.support.service_bus import peer_settings

NAMESPACE = "geodag.servicebus.windows.net"


@dataclass
class Namespace:
    """A peer behind TLS that believes one identity, and the settings that lead there."""

    peer: Peer
    identity: IdentityPeer
    certificate: Path

    def settings(self, **changes: object) -> QueueSettings:
        """Return the settings of a process."""
        values = {
            "postgres_host": "127.0.0.1",
            "postgres_db": "d",
            "postgres_user": "u",
            "use_managed_identity": True,
            "identity_endpoint": self.identity.endpoint,
            "identity_header": self.identity.header,
            "service_bus_fqdn": NAMESPACE,
            "service_bus_custom_endpoint": f"sb://localhost:{self.peer.ports['amqps']}",
            "service_bus_ca_file": self.certificate,
        }
        return QueueSettings.model_validate(values | changes)


@pytest.fixture
async def namespace(identity: IdentityPeer, tmp_path: Path) -> AsyncIterator[Namespace]:
    """Yield the namespace; the identity may do everything there."""
    certificate, key = self_signed(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    directory = Directory({"keys": [identity.key.jwk()]}, ISSUER, rights={identity.oid: {"": ALL}})
    async with running_peer(replace(peer_settings(), tls=tls, directory=directory)) as peer:
        yield Namespace(peer, identity, certificate)


async def passes(bus: ServiceBus, name: str) -> bool:
    """Return whether a message goes there and back; like a relay, try again when the link has to be made anew."""
    reader = bus.reader(QUEUE)
    try:
        await bus.send(QUEUE, [Outgoing(name, b"{}")])
    except QueueUnavailable:
        await bus.send(QUEUE, [Outgoing(name, b"{}")])
    (found,) = await reader.receive(1, 20)
    await reader.complete([found])
    await reader.close()
    return found.message_id == name


async def test_messages_pass_by_the_identity_alone(namespace: Namespace) -> None:
    bus = ServiceBus.of(namespace.settings())
    try:
        assert await passes(bus, "m1")
    finally:
        await bus.close()
    asked = {query["resource"] for query in namespace.identity.queries}
    assert asked == {SERVICE_BUS}


async def test_tokens_that_end_and_an_endpoint_that_is_away_meanwhile_stop_nothing(namespace: Namespace) -> None:
    namespace.identity.life_seconds = 6
    bus = ServiceBus.of(namespace.settings())
    try:
        assert await passes(bus, "m0")
        namespace.identity.broken = (503, {})
        assert await passes(bus, "m1"), "its token is still good"
        namespace.identity.broken = None
        ends = time.monotonic() + 9
        count = 2
        while time.monotonic() < ends:
            assert await passes(bus, f"m{count}")
            count += 1
    finally:
        await bus.close()
    assert len(namespace.identity.issued) >= 2


async def test_a_broker_whose_clock_is_minutes_ahead_takes_tokens_and_one_that_is_hours_ahead_takes_none(
    namespace: Namespace,
) -> None:
    bus = ServiceBus.of(namespace.settings())
    try:
        namespace.peer.advance(240)
        assert await passes(bus, "m1")
        namespace.peer.advance(7200)
        with pytest.raises(TransientError) as told:
            await bus.send(QUEUE, [Outgoing("m2", b"{}")])
        assert namespace.identity.issued[-1] not in f"{told.value} {told.value.detail}"
        namespace.identity.life_seconds = 3 * 7200
        await bus.close()
        bus = ServiceBus.of(namespace.settings())
        assert await passes(bus, "m3")
    finally:
        await bus.close()


@pytest.mark.parametrize("why", ["no rights", "no endpoint", "strange certificate"])
async def test_who_has_no_way_in_is_told_so_and_nothing_else_is_tried(
    namespace: Namespace, tmp_path: Path, why: str
) -> None:
    settings = namespace.settings()
    if why == "no rights":
        namespace.identity.oid = "somebody else"
    elif why == "no endpoint":
        namespace.identity.broken = (500, {})
    else:
        (tmp_path / "other").mkdir()
        settings = namespace.settings(service_bus_ca_file=self_signed(tmp_path / "other")[0])
    bus = ServiceBus.of(settings)
    try:
        with pytest.raises(TransientError):
            await bus.send(QUEUE, [Outgoing("m", b"{}")])
    finally:
        await bus.close()
    assert not namespace.peer.broker.find(QUEUE).messages
