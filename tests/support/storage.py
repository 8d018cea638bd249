"""Where the tests of a pass keep their blobs: folders, or a real server that is entered with an identity over TLS."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from azure.core.exceptions import ResourceNotFoundError

from core.ports import BlobRef, BlobRepository
from repositories import roles
from repositories.blob_names import CONTAINERS
from repositories.blobs_azure import AzureBlobRepository, connect
from repositories.blobs_folder import FolderBlobRepository
from tests.support.azure_side import Azure
from tests.support.databases import Database

SIGNATURE_SECONDS = 60.0


class Storage(Protocol):
    """The blobs of one test; a path is `container/name`."""

    def environment(self, database: Database, role: str) -> dict[str, str]:
        """Return how a process of a role reaches the database and the blobs, as the environment names it."""

    def repository(self) -> BlobRepository:
        """Return a repository; it is closed after the test."""

    def put(self, path: str, content: bytes) -> None:
        """Put a blob where others drop theirs, in the place of what is there."""

    def read(self, path: str) -> bytes | None:
        """Return what a blob holds, None when there is none."""

    def remove(self, path: str) -> None:
        """Take a blob away."""

    def paths(self, below: str = "") -> set[str]:
        """Return all blobs whose paths begin so."""


@dataclass(frozen=True, slots=True)
class Folders:
    """In a folder of the test."""

    root: Path

    def environment(self, database: Database, role: str) -> dict[str, str]:
        """Return how a process reaches the database and the blobs."""
        return {**database.environment(role), "BLOB_ROOT": str(self.root)}

    def repository(self) -> BlobRepository:
        """Return a repository."""
        return FolderBlobRepository(self.root)

    def put(self, path: str, content: bytes) -> None:
        """Put a blob."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def read(self, path: str) -> bytes | None:
        """Return what a blob holds."""
        found = self.root / path
        return found.read_bytes() if found.is_file() else None

    def remove(self, path: str) -> None:
        """Take a blob away."""
        (self.root / path).unlink()

    def paths(self, below: str = "") -> set[str]:
        """Return all blobs whose paths begin so."""
        found = (path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file())
        return {path for path in found if path.startswith(below)}


@dataclass(slots=True)
class Account:
    """In an account of Azurite."""

    azure: Azure
    opened: list[AzureBlobRepository] = field(default_factory=list)

    def environment(self, database: Database, role: str) -> dict[str, str]:
        """Return how a process reaches the database and the blobs."""
        return self.azure.environment(database, role)

    def repository(self) -> BlobRepository:
        """Return a repository that enters with the identity of an orchestrator."""
        urls = dict.fromkeys(CONTAINERS, self.azure.azurite.url)
        access = (urls, self.azure.identity(roles.ORCHESTRATOR))
        made = connect(access, signature_seconds=SIGNATURE_SECONDS, ca_file=self.azure.certificate)
        self.opened.append(made)
        return made

    def put(self, path: str, content: bytes) -> None:
        """Put a blob."""
        ref = BlobRef.parse(path)
        self.azure.service.get_blob_client(ref.container, ref.name).upload_blob(content, overwrite=True)

    def read(self, path: str) -> bytes | None:
        """Return what a blob holds."""
        ref = BlobRef.parse(path)
        try:
            return self.azure.service.get_blob_client(ref.container, ref.name).download_blob().readall()
        except ResourceNotFoundError:
            return None

    def remove(self, path: str) -> None:
        """Take a blob away."""
        ref = BlobRef.parse(path)
        self.azure.service.get_blob_client(ref.container, ref.name).delete_blob()

    def paths(self, below: str = "") -> set[str]:
        """Return all blobs whose paths begin so."""
        zones = {zone: self.azure.service.get_container_client(zone) for zone in CONTAINERS}
        found = (f"{zone}/{name}" for zone, client in zones.items() for name in client.list_blob_names())
        return {path for path in found if path.startswith(below)}


@contextlib.contextmanager
def storage_of(azure: Azure | None, folder: Path) -> Iterator[Storage]:
    """Yield the storage of tests that share one: the folder, or the account; an account holds nothing afterwards."""
    if azure is None:
        yield Folders(folder)
        return
    account = Account(azure)
    yield account
    for path in account.paths():
        account.remove(path)


@contextlib.asynccontextmanager
async def storage_of_test(azure: Azure | None, folder: Path) -> AsyncIterator[Storage]:
    """Yield the storage of one test, whose repositories are closed at its end."""
    with storage_of(azure, folder) as storage:
        yield storage
        if isinstance(storage, Account):
            await asyncio.gather(*(one.close() for one in storage.opened))
