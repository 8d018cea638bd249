"""Who gets in, asked with the real SDK over TLS: tokens and keys that are right, and all that are not.

Azurite accepts forged bearer tokens, so what geodag says about refused tokens is tested here.
"""

import base64
import hmac
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import Any
from urllib.parse import quote_plus

import pytest
from azure.core.credentials import AccessToken, AzureSasCredential
from azure.core.exceptions import ClientAuthenticationError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import ServiceBusAuthorizationError, ServiceBusConnectionError, ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from cli.stack.certificates import self_signed
from tests.peers.servicebus.auth import ALL, Claim, Directory, SharedKey
from tests.peers.servicebus.faults import Action, Fault, Step
from tests.peers.servicebus.model import QueueSettings
from tests.peers.servicebus.peer import PeerSettings, ThreadedPeer, threaded_peer
from tests.support.tokens import ISSUER, SigningKey

KEY, FORGER = SigningKey("one"), SigningKey("one")
AUDIENCE = "https://servicebus.azure.net"
RULES = (SharedKey("owner", "b3duZXI="), SharedKey("sender", "c2VuZGVy", frozenset({Claim.SEND})))
RIGHTS = {"worker": {"work": frozenset({Claim.LISTEN})}, "lead": {"": ALL}}


@dataclass
class Credential:
    """Hands out one token, as a credential of azure-identity does."""

    token: str
    expires_on: int = field(default_factory=lambda: int(time.time()) + 600)

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        """Return it; the SDK asks for one scope."""
        assert scopes == ("https://servicebus.azure.net//.default",)
        return AccessToken(self.token, self.expires_on)


@dataclass
class AsyncCredential:
    """The same for the asynchronous client."""

    inner: Credential

    async def get_token(self, *scopes: str, **more: Any) -> AccessToken:
        """Return it."""
        return self.inner.get_token(*scopes, **more)

    async def close(self) -> None:
        """Do nothing."""

    async def __aenter__(self) -> "AsyncCredential":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


@dataclass
class Place:
    """A peer with TLS, and the certificate that vouches for it."""

    peer: ThreadedPeer
    certificate: Path

    def client(self, credential: Any, kind: Any = ServiceBusClient) -> Any:
        """Return a client as production makes one, led to the peer."""
        return kind(
            "geodag.servicebus.windows.net",
            credential,
            custom_endpoint_address=f"sb://localhost:{self.peer.peer.ports['amqps']}",
            transport_type=TransportType.Amqp,
            connection_verify=str(self.certificate),
            retry_total=0,
        )

    def plain(self, rule: SharedKey) -> ServiceBusClient:
        """Return a client with a rule's key and without TLS."""
        string = self.peer.connection_string.replace("=owner;", f"={rule.name};").replace(RULES[0].key, rule.key)
        return ServiceBusClient.from_connection_string(string, retry_total=0)

    def admin(self, rule: SharedKey = RULES[0]) -> ServiceBusAdministrationClient:
        """Return an administration client."""
        endpoint = f"Endpoint=sb://localhost:{self.peer.peer.ports['admin']}"
        string = f"{endpoint};SharedAccessKeyName={rule.name};SharedAccessKey={rule.key}"
        return ServiceBusAdministrationClient.from_connection_string(
            string, connection_verify=str(self.certificate), retry_total=0
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Yield a peer that knows two rules and a directory."""
    certificate, key = self_signed(tmp_path_factory.mktemp("tls"))
    tls = SSLContext(PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    queues = (QueueSettings("work"), QueueSettings("other"))
    directory = Directory({"keys": [KEY.jwk()]}, ISSUER, rights=RIGHTS)
    with threaded_peer(PeerSettings(queues=queues, keys=RULES, directory=directory, tls=tls)) as peer:
        yield Place(peer, certificate)


def _token(key: SigningKey = KEY, **claims: Any) -> Credential:
    return Credential(key.token(**({"aud": AUDIENCE, "oid": "lead", "roles": None} | claims)))


def _send(client: ServiceBusClient, queue: str = "work") -> None:
    with client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("x"))


async def test_a_credential_sends_and_receives_over_tls(place: Place) -> None:
    _send(place.client(_token()), "other")
    async with (
        place.client(AsyncCredential(_token()), AsyncClient) as client,
        client.get_queue_receiver("other") as receiver,
    ):
        message = await anext(receiver)
        await receiver.complete_message(message)
        assert b"".join(message.body) == b"x"


def test_without_the_certificate_there_is_no_connection(place: Place) -> None:
    client = ServiceBusClient(
        "geodag.servicebus.windows.net",
        _token(),
        custom_endpoint_address=f"sb://localhost:{place.peer.peer.ports['amqps']}",
        transport_type=TransportType.Amqp,
        retry_total=0,
    )
    with pytest.raises(ServiceBusConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
        _send(client)


def _why(client: ServiceBusClient, queue: str = "work") -> str:
    """Return why a client may not send: the SDK keeps the reason in the error behind its own."""
    with pytest.raises(ServiceBusConnectionError) as refused:
        _send(client, queue)
    return str(refused.value.inner_exception)


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": int(time.time()) - 1}, "has expired"),
        ({"nbf": int(time.time()) + 86_400}, "not valid yet"),
        ({"aud": "https://storage.azure.com"}, "another audience"),
        ({"iss": "https://login.example/elsewhere/v2.0"}, "another issuer"),
        ({"oid": "stranger"}, "no right"),
        ({"key": FORGER}, "signature is wrong"),
    ],
    ids=["expired", "not-yet", "audience", "issuer", "bearer", "signature"],
)
def test_a_token_that_is_not_right_gets_no_link(place: Place, claims: dict[str, Any], reason: str) -> None:
    told = _why(place.client(_token(**claims)))
    assert reason in told
    assert "401" in told
    assert not place.peer.peer.broker.find("work").messages


def test_a_bearer_gets_the_links_of_its_rights_alone(place: Place) -> None:
    with place.client(_token(oid="worker")) as client, client.get_queue_receiver("work") as receiver:
        assert receiver.peek_messages(1) == []
    with pytest.raises(ServiceBusAuthorizationError, match="Send"):
        _send(place.client(_token(oid="worker")))
    assert "no right" in _why(place.client(_token(oid="worker")), "other")


def test_a_rule_gets_the_links_of_its_rights_alone(place: Place) -> None:
    with (
        pytest.raises(ServiceBusAuthorizationError, match="Listen"),
        place.plain(RULES[1]) as client,
        client.get_queue_receiver("work") as receiver,
    ):
        receiver.receive_messages(1, max_wait_time=1)


def _signature(queue: str, seconds: float = 600, key: str = RULES[0].key) -> AzureSasCredential:
    """Return a signature (SAS) of the owner's rule for one queue, as a partner may be given one."""
    scope, ends = quote_plus(f"sb://geodag.servicebus.windows.net/{queue}"), int(time.time() + seconds)
    digest = base64.b64encode(hmac.digest(key.encode(), f"{scope}\n{ends}".encode(), "sha256")).decode()
    return AzureSasCredential(f"SharedAccessSignature sr={scope}&sig={quote_plus(digest)}&se={ends}&skn=owner")


def test_a_signature_opens_the_queue_it_names_while_it_lasts_and_no_other(place: Place) -> None:
    _send(place.client(_signature("other")), "other")
    assert "another path" in _why(place.client(_signature("other")))
    assert "expired" in _why(place.client(_signature("work", seconds=-1)))
    assert "signature is wrong" in _why(place.client(_signature("work", key="Z3Vlc3NlZA==")))
    assert not place.peer.peer.broker.find("work").messages


def test_an_expired_token_ends_its_links(place: Place) -> None:
    with place.client(_token()) as client, client.get_queue_sender("other") as sender:
        sender.send_messages(ServiceBusMessage("before"))
        place.peer.call(lambda running: running.advance(601))
        try:
            with pytest.raises(ServiceBusError):
                sender.send_messages(ServiceBusMessage("after"))
        finally:
            place.peer.call(lambda running: running.advance(-601))


def test_a_busy_namespace_is_told_and_tried_again(place: Place) -> None:
    place.peer.call(lambda running: running.faults.add(Fault(Step.PUT_TOKEN, Action.BUSY)))
    with pytest.raises(ServiceBusError):
        _send(place.plain(RULES[0]), "other")
    _send(place.plain(RULES[0]), "other")


def test_queues_are_administered(place: Place) -> None:
    with place.admin() as admin:
        made = admin.create_queue(
            "made",
            lock_duration=timedelta(seconds=7),
            max_delivery_count=4,
            default_message_time_to_live=timedelta(minutes=3),
            dead_lettering_on_message_expiration=True,
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window=timedelta(seconds=45),
        )
        assert (made.lock_duration, made.max_delivery_count) == (timedelta(seconds=7), 4)
        settings = place.peer.peer.broker.find("made").settings
        assert settings == QueueSettings("made", 7, 4, 180, dead_letter_expired=True, duplicate_window_seconds=45)
        with pytest.raises(ResourceExistsError):
            admin.create_queue("made")
        made.max_delivery_count = 6
        admin.update_queue(made)
        assert admin.get_queue("made").max_delivery_count == 6
        _send(place.plain(RULES[0]), "made")
        with place.plain(RULES[0]) as client, client.get_queue_sender("made") as sender:
            sender.send_messages([ServiceBusMessage(str(number)) for number in range(3)])
        counts = admin.get_queue_runtime_properties("made")
        assert (counts.active_message_count, counts.dead_letter_message_count, counts.total_message_count) == (4, 0, 4)
        assert {queue.name for queue in admin.list_queues()} == {"work", "other", "made"}
        admin.delete_queue("made")
        with pytest.raises(ResourceNotFoundError):
            admin.get_queue("made")


@pytest.mark.parametrize("rule", [SharedKey("owner", "Z3Vlc3NlZA=="), RULES[1]], ids=["wrong-key", "no-manage"])
def test_administration_takes_the_right_key_and_manage(place: Place, rule: SharedKey) -> None:
    with place.admin(rule) as admin, pytest.raises(ClientAuthenticationError):
        admin.get_queue("work")
