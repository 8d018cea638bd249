"""Where the tests of a run keep their blobs: folders, or with GEODAG_BLOBS=azurite a real server behind TLS.

A repository enters Azurite with an identity; a process, whose settings have a password for PostgreSQL, by the account's
key. One server a process of pytest; each test finds it empty.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from azure.storage.blob import BlobServiceClient
from pydantic import SecretStr

from cli.stack.azurite import Azurite
from core.ports import BlobRepository
from repositories.blob_names import CONTAINERS
from repositories.blobs_azure import AzureBlobRepository, connect
from repositories.blobs_folder import FolderBlobRepository
from repositories.managed_identity import ManagedIdentity
from tests.peers.identity.server import IdentityPeer
from tests.support.azurite_server import emptied


class Storage(Protocol):
    """The blobs of one test."""

    def settings(self) -> Mapping[str, str]:
        """Return the settings of a process, as the environment names them."""

    def repository(self) -> BlobRepository:
        """Return a repository; it is closed after the test."""

    def put(self, path: str, content: bytes) -> None:
        """Put a blob, `container/name`, where others drop theirs."""


@dataclass(frozen=True, slots=True)
class Folders:
    """In a folder of the test."""

    root: Path

    def settings(self) -> Mapping[str, str]:
        """Return the settings of a process."""
        return {"BLOB_ROOT": str(self.root)}

    def repository(self) -> BlobRepository:
        """Return a repository."""
        return FolderBlobRepository(self.root)

    def put(self, path: str, content: bytes) -> None:
        """Put a blob."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


@dataclass(slots=True)
class Account:
    """In an account of Azurite."""

    azurite: Azurite
    identity: IdentityPeer
    _opened: list[AzureBlobRepository] = field(default_factory=list)

    def settings(self) -> Mapping[str, str]:
        """Return the settings of a process that has the account's key."""
        ca = {} if self.azurite.certificate is None else {"BLOB_CA_FILE": str(self.azurite.certificate)}
        return {"BLOB_CONNECTION_STRING": self.azurite.connection_string, **ca}

    def repository(self) -> BlobRepository:
        """Return a repository that enters with the identity."""
        provider = ManagedIdentity(self.identity.endpoint, SecretStr(self.identity.header))
        urls = dict.fromkeys(CONTAINERS, self.azurite.url)
        self._opened.append(connect((urls, provider), signature_seconds=60, ca_file=self.azurite.certificate))
        return self._opened[-1]

    def put(self, path: str, content: bytes) -> None:
        """Put a blob, in the place of what is there."""
        container, _, name = path.partition("/")
        verify = True if self.azurite.certificate is None else str(self.azurite.certificate)
        with BlobServiceClient.from_connection_string(
            self.azurite.connection_string, connection_verify=verify
        ) as service:
            service.get_blob_client(container, name).upload_blob(content, overwrite=True)

    async def close(self) -> None:
        """Disconnect every repository."""
        await asyncio.gather(*(one.close() for one in self._opened))


@asynccontextmanager
async def account_of(azurite: Azurite, identity: IdentityPeer) -> AsyncIterator[Account]:
    """Yield an account with empty containers; afterwards they hold nothing."""
    async with emptied(azurite):
        account = Account(azurite, identity)
        try:
            yield account
        finally:
            await account.close()
