"""The outside world as geodag sees it. Adapters implement these; composition roots choose."""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from core.wire import TaskMessage


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message in a receiver's hands."""

    message: TaskMessage | None
    """None when the body could not be read as a `TaskMessage`; dead-letter it."""
    message_id: str
    delivery_count: int
    """0 for the first delivery."""
    receipt: Any
    """Adapter's own handle; opaque."""
    unreadable: str | None = None
    """Why the body could not be read; never its content."""


class TaskQueue(Protocol):
    """Sending side. `conn` is the caller's open transaction: what it rolls back was never sent."""

    async def enqueue(self, conn: Any, messages: Sequence[TaskMessage]) -> None:
        """Write messages so that they leave if and only if the transaction commits."""

    async def discard(self, conn: Any, task_ids: Iterable[str]) -> None:
        """Drop messages of these tasks that nobody has received yet; best effort, the claim decides."""


class Taken(Protocol):
    """Messages that were asked for, in the order in which they leave."""

    async def deliveries(self) -> Sequence[Delivery]:
        """Wait for them."""


class Names(Protocol):
    """Names that were asked for."""

    async def names(self) -> Collection[str]:
        """Wait for them."""


class SharedQueue(TaskQueue, Protocol):
    """A queue in the caller's own database: what a transaction takes out and what it does with it commit together."""

    async def take(self, conn: Any, queue: str, max_messages: int) -> Taken:
        """Lock the first messages that nobody holds, waiting for nobody; they stay until they are removed."""

    async def backlog(self, conn: Any, queues: Sequence[str]) -> "Names":
        """Ask which of these queues have messages that nobody holds."""

    async def remove(self, conn: Any, message_ids: Sequence[str]) -> None:
        """Remove messages that were taken."""


class TaskReceiver(Protocol):
    """Receiving side of one queue in one worker."""

    @property
    def hears(self) -> bool:
        """Return whether messages come as soon as they are there."""

    async def receive(self, max_messages: int, wait_seconds: float) -> Sequence[Delivery]:
        """Return up to `max_messages`, waiting at most `wait_seconds` for the first; empty on time-out."""

    async def complete(self, deliveries: Sequence[Delivery]) -> None:
        """Remove them; removing one whose lock was lost is not an error."""

    async def abandon(self, delivery: Delivery, delay_seconds: float = 0.0) -> None:
        """Give one back, visible again after the delay; its delivery count grows."""

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        """Extend the locks of messages that wait for an answer."""

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Set one aside with the reason."""

    async def close(self) -> None:
        """Give back what was received but not settled, then disconnect."""


@dataclass(frozen=True, slots=True)
class BlobRef:
    """A blob by container and name."""

    container: str
    name: str

    @classmethod
    def parse(cls, path: str) -> "BlobRef":
        """Split `container/name` on the first slash."""
        container, _, name = path.partition("/")
        return cls(container, name)

    def __str__(self) -> str:
        return f"{self.container}/{self.name}"


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """What is known of a blob without reading it."""

    ref: BlobRef
    size_bytes: int
    etag: str


@dataclass(frozen=True, slots=True)
class BlobFolder:
    """What blobs with a common prefix have in common."""

    prefix: str
    """Ends with a slash."""
    modified_at: datetime
    """When something was last written directly below it, as the storage's clock says."""


@dataclass(frozen=True, slots=True)
class BlobEntry:
    """A blob as a listing tells of it."""

    name: str
    size_bytes: int
    modified_at: datetime
    """As the storage's clock says."""


@dataclass(frozen=True, slots=True)
class GdalSource:
    """How GDAL opens a blob for reading."""

    path: str
    """Holds no secret."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For the `rasterio.Env` around the opening, never for the environment of a process: they may hold a signature."""


class BlobRepository(Protocol):
    """Blobs in zones (containers) bronze, silver and external.

    Raises `core.errors.DataError` FILE_NOT_FOUND for a missing blob and `StorageUnavailable` when it may come back.
    """

    async def stat(self, ref: BlobRef) -> BlobInfo:
        """Return size and ETag."""

    async def stage(self, ref: BlobRef, scratch: Path) -> Path:
        """Return a local path a subprocess can read; downloads into `scratch` where the blob is not local.

        Blobs of one folder come to lie in one folder, under their own names.
        """

    async def upload(self, source: Path, ref: BlobRef) -> BlobInfo:
        """Store a local file under a new name, atomically: readers see all of it or nothing."""

    async def write_stream(self, ref: BlobRef, chunks: AsyncIterator[bytes], max_bytes: int) -> BlobInfo:
        """Store a stream under a new name; refuses to overwrite and to exceed `max_bytes`, leaving nothing."""

    async def create(self, ref: BlobRef, data: bytes) -> BlobInfo:
        """Store bytes under a new name, atomically; raises `Conflict` BLOB_EXISTS when the name is taken."""

    async def read(self, ref: BlobRef, max_bytes: int) -> bytes:
        """Return a blob's bytes, at most the first `max_bytes` of them."""

    def stream(self, ref: BlobRef, start: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """Yield a blob's bytes, all or a range, in order, a part at a time; a missing blob shows with the first."""

    async def folders(self, container: str, prefix: str) -> Sequence["BlobFolder"]:
        """Return the folders directly under a prefix that ends at a folder; empty when there is none."""

    def entries(self, container: str) -> AsyncIterator[BlobEntry]:
        """Yield every blob of a zone, folder by folder; what comes or goes meanwhile may be told."""

    async def delete_prefix(self, container: str, prefix: str) -> int:
        """Delete everything under a prefix and return how many blobs went."""

    async def copy(self, source: BlobRef, target: BlobRef) -> BlobInfo:
        """Copy a blob to a new name, also from one zone to another; raises `Conflict` BLOB_EXISTS as `create` does."""

    async def gdal_source(self, ref: BlobRef) -> GdalSource:
        """Return how GDAL reads a blob in place; good for minutes at least, so ask again for each piece of work."""

    def local_path(self, ref: BlobRef) -> Path | None:
        """Return the file of a blob that lies on this machine, else None."""

    def locate(self, path: str) -> BlobRef:
        """Return the blob that a path in a node's params names; raises `ParameterInvalid` for every other path."""

    async def probe(self) -> None:
        """Raise `StorageUnavailable` unless the storage answers."""

    async def close(self) -> None:
        """Disconnect."""


class ExportState(StrEnum):
    """How a run that copies a file outside is doing."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ExportRun:
    """One run."""

    run_id: str
    state: ExportState
    message: str = ""
    """Why it failed."""


class ExternalExport(Protocol):
    """Copies files to the external zone and takes them back; raises `core.errors.TransientError` when it cannot now."""

    async def start(self, source: BlobRef, target: BlobRef, reference: str) -> str:
        """Begin a run that copies a file to a new name, and return its id; `reference` is its task."""

    async def look(self, run_id: str) -> ExportRun:
        """Return how a run is doing."""

    async def size_bytes(self, target: BlobRef) -> int:
        """Return the size of a copy; raises `DataError` FILE_NOT_FOUND when there is none."""

    async def withdraw(self, folder: BlobRef) -> int:
        """Delete a folder of copies and return how many blobs went; nothing there is fine."""


class Sealer(Protocol):
    """Seals secrets for the database and opens them; `context` binds a value to its place."""

    def seal(self, plain: bytes, context: str) -> bytes:
        """Return the sealed value."""

    def open(self, sealed: bytes, context: str) -> bytes:
        """Return the plain value; raises a `GeodagError` when it was sealed under another key or elsewhere."""
