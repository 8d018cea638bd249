"""What stands in for Azure when integration tests run the second time; one of each a process of pytest.

Azurite and the Service Bus peer listen with TLS and are entered with tokens: one identity a kind of process, with the
rights that `infra/` grants. PostgreSQL is the one of all tests and has passwords; the endpoint gives the password of a
role where Azure gives a token for the database (tokens at PostgreSQL: tests/azure/test_database_tokens.py).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import Any

from azure.storage.blob import BlobServiceClient
from pydantic import SecretStr

from cli.stack import servicebus
from cli.stack.azurite import Azurite
from cli.stack.certificates import self_signed
from cli.stack.identity import Identities, ensure_identities
from messaging.settings import QueueSettings
from repositories import roles
from repositories.blob_names import CONTAINERS
from repositories.managed_identity import POSTGRES, ManagedIdentity
from tests.peers.identity.server import Answer, IdentityPeer, running
from tests.peers.servicebus.auth import Claim, Directory
from tests.peers.servicebus.model import QueueSettings as PeerQueue
from tests.peers.servicebus.peer import Peer, PeerSettings
from tests.support import azurite_server
from tests.support.databases import PASSWORDS, Database
from tests.support.tokens import SigningKey


class Endpoint(IdentityPeer):
    """Gives every process the tokens of its identity, and the password of its role for the database."""

    passwords: Mapping[str, str]
    """By the header of a process."""

    def answer(self, path: str, query: dict[str, str], headers: Any) -> Answer:
        """Return status and document for one request."""
        status, document = super().answer(path, query, headers)
        if status == 200 and isinstance(document, dict) and query["resource"] == POSTGRES:
            document["access_token"] = self.passwords[headers["X-IDENTITY-HEADER"]]
        return status, document


@dataclass(frozen=True, slots=True)
class Azure:
    """Storage account, identities, and how a namespace is opened."""

    azurite: Azurite
    identities: Identities
    endpoint: Endpoint
    certificate: Path
    key: Path
    service: BlobServiceClient
    """Of the account's owner, for what tests do to blobs."""

    def environment(self, database: Database, role: str) -> dict[str, str]:
        """Return the settings of a process of a role: no password, no key."""
        place = {name: value for name, value in database.environment(role).items() if name != "POSTGRES_PASSWORD"}
        return place | self._identity(role) | self.azurite.settings()

    def identity(self, role: str) -> ManagedIdentity:
        """Return the tokens of a process of a role."""
        return ManagedIdentity(self.endpoint.endpoint, SecretStr(self._identity(role)["IDENTITY_HEADER"]))

    def namespace(self, **queue: Any) -> PeerSettings:
        """Return a namespace with our queues, and no door without TLS; `queue` are settings of each."""
        tls = SSLContext(PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self.certificate, self.key)
        told = self.identities.directory()
        rights = {
            oid: {name: frozenset(map(Claim, claims)) for name, claims in by_queue.items()}
            for oid, by_queue in told["rights"].items()
        }
        directory = Directory(told["jwks"], told["issuer"], rights=rights)
        queues = tuple(PeerQueue(name, **queue) for name in servicebus.QUEUES)
        return PeerSettings(queues=queues, keys=(), directory=directory, port=None, tls=tls)

    def at(self, peer: Peer) -> dict[str, str]:
        """Return the settings of a process that finds its queues at a peer."""
        return servicebus.by_identity(peer.ports["amqps"], self.certificate)

    def queue_settings(self, database: Database, peer: Peer, role: str = roles.ORCHESTRATOR) -> QueueSettings:
        """Return the settings of a process of a role at a peer."""
        blobs = self.azurite.settings()
        values = {**self.environment(database, role), **self.at(peer)}
        return QueueSettings.model_validate({name.lower(): values[name] for name in values if name not in blobs})

    def _identity(self, role: str) -> dict[str, str]:
        kind = next(kind for kind, one in self.identities.identities.items() if one.role == role)
        port = int(self.endpoint.url.rpartition(":")[2])
        return self.identities.environment(kind, port)


@contextmanager
def azure_side(folder: Path) -> Iterator[Azure]:
    """Run the storage account, with its containers, and the identity endpoint."""
    certificate, key = self_signed(folder)
    identities = ensure_identities(folder / "identity.json")
    each = identities.identities.values()
    others = {one.header: one.oid for one in each}
    endpoint = Endpoint(key=SigningKey(identities.tenant, identities.key), tenant=identities.tenant, others=others)
    endpoint.passwords = {one.header: PASSWORDS[one.role] for one in each}
    with (
        azurite_server.running(folder / "log.txt", certificate, key, an_account_a_zone=False) as azurite,
        running(endpoint),
        BlobServiceClient.from_connection_string(
            azurite.connection_string, connection_verify=str(certificate)
        ) as service,
    ):
        for zone in CONTAINERS:
            service.create_container(zone)
        yield Azure(azurite, identities, endpoint, certificate, key, service)
