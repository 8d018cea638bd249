"""What a worker and its subprocess say to each other: a 4-byte big-endian length, then JSON.

The parent reads frames of a process that may have been taken over by a hostile file, so it checks their size and
shape; the subprocess trusts its parent.
"""

import asyncio
import json
import socket
import struct
import threading
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.errors import ErrorDetail, Finding

MAX_FRAME_BYTES = 64 << 20
_LENGTH = struct.Struct(">I")
Json = dict[str, Any]


class BrokenFrame(Exception):
    """The other side sent something that is no frame."""


class Frame(BaseModel):
    """Base of all frames."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Setup(Frame):
    """Parent to child, once: what holds for all its tasks."""

    kind: Literal["setup"] = "setup"
    import_paths: tuple[str, ...] = Field(default=(), description="Put before `sys.path`.")
    warm: tuple[str, ...] = Field(default=(), description="`module:function` to import while there is nothing to do.")
    file_bytes: int = Field(default=0, description="RLIMIT_FSIZE; 0 means none.")


class Run(Frame):
    """Parent to child: do this task."""

    kind: Literal["run"] = "run"
    task_id: str
    job_id: str
    node_id: str
    attempt: int
    target: str = Field(description="`module:function` of the handler.")
    params_type: str = Field(description="`module:Class` of its params.")
    params: Json
    scratch: str = Field(description="Absolute path of the task's own folder; holds an empty folder `out`.")
    memory_bytes: int = Field(description="0 means no limit.")
    checkpoint: Json | None = None


class Cancel(Frame):
    """Parent to child: the handler should stop."""

    kind: Literal["cancel"] = "cancel"


class Ready(Frame):
    """Child to parent, once: set up and waiting."""

    kind: Literal["ready"] = "ready"


class Progress(Frame):
    """Child to parent."""

    kind: Literal["progress"] = "progress"
    current: float
    total: float | None = None
    message: str | None = Field(default=None, max_length=1000)


class Saved(Frame):
    """Child to parent: a checkpoint."""

    kind: Literal["saved"] = "saved"
    phase: str = Field(max_length=200)
    state: Json


class Note(Frame):
    """Child to parent: a line for the journal."""

    kind: Literal["note"] = "note"
    line: str


class Log(Frame):
    """Child to parent: a log record."""

    kind: Literal["log"] = "log"
    level: int
    logger: str
    event: str
    extra: Json = {}


class Done(Frame):
    """Child to parent: the handler returned."""

    kind: Literal["done"] = "done"
    output: Json
    files: dict[str, str] = {}
    findings: tuple[Finding, ...] = ()
    metrics: Json = {}
    peak_rss_bytes: int | None = None


class Failed(Frame):
    """Child to parent: the handler raised; no error means that it stopped because it was told to."""

    kind: Literal["failed"] = "failed"
    error: ErrorDetail | None
    peak_rss_bytes: int | None = None


Upward = Ready | Progress | Saved | Note | Log | Done | Failed
Downward = Setup | Run | Cancel
_UPWARD: dict[str, type[Upward]] = {
    "ready": Ready,
    "progress": Progress,
    "saved": Saved,
    "note": Note,
    "log": Log,
    "done": Done,
    "failed": Failed,
}
_DOWNWARD: dict[str, type[Downward]] = {"setup": Setup, "run": Run, "cancel": Cancel}


def encode(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    body = frame.model_dump_json(by_alias=True).encode()
    return _LENGTH.pack(len(body)) + body


async def read_upward(reader: asyncio.StreamReader) -> Upward | None:
    """Return the next frame of a child, or None when it has closed its end.

    Raises:
        BrokenFrame: too long, not JSON, or of no known shape.
    """
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > MAX_FRAME_BYTES:
            raise BrokenFrame(f"a frame of {length} bytes")
        body = await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return None
    return _parse(body)


def _parse(body: bytes) -> Upward:
    try:
        fields = json.loads(body)
        return _UPWARD[fields["kind"]].model_validate(fields)
    except (ValueError, TypeError, KeyError, RecursionError, ValidationError) as exc:
        raise BrokenFrame(type(exc).__name__) from exc


class ChildSocket:
    """The child's end; sending is safe from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._reader = self._socket.makefile("rb")
        self._lock = threading.Lock()

    def send(self, frame: Frame) -> None:
        """Send one frame, waiting while the parent is busy."""
        data = encode(frame)
        with self._lock:
            self._socket.sendall(data)

    def receive(self) -> Downward | None:
        """Return the next frame, or None when the parent is gone."""
        head = self._reader.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return None
        fields = json.loads(self._reader.read(_LENGTH.unpack(head)[0]))
        return _DOWNWARD[fields["kind"]].model_validate(fields)
