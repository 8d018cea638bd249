"""The parent's end of one subprocess."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from worker.frames import (
    Cancel,
    Done,
    Failed,
    Frame,
    Log,
    Note,
    Progress,
    Ready,
    Run,
    Saved,
    Setup,
    encode,
    read_upward,
)
from worker.jail import memory_of, unshared_bytes

_STDERR_TAIL_BYTES = 8192
_START_SECONDS = 60.0
_WATCH_SECONDS = 0.2
_MEMORY_WORDS = (b"bad_alloc", b"MemoryError", b"Cannot allocate memory", b"out of memory")


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """What the parent saw of a running task's memory."""

    rss_bytes: int


Listener = Callable[[Progress | Saved | Note | Log | PeakMemory], None]


class ChildDied(Exception):
    """The subprocess ended, or had to be killed, before it answered."""

    def __init__(self, returncode: int | None, *, out_of_memory: bool) -> None:
        super().__init__(f"the subprocess ended {describe_exit(returncode)}")
        self.returncode = returncode
        self.out_of_memory = out_of_memory


def describe_exit(returncode: int | None) -> str:
    """Say how a process ended, with the signal's name."""
    if returncode is None:
        return "without a status"
    if returncode < 0:
        return f"by signal {signal.Signals(-returncode).name}"
    return f"with exit code {returncode}"


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """How subprocesses are started."""

    environment: Mapping[str, str]
    setup: Setup


class ChildProcess:
    """One running subprocess; runs one task at a time."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        logger: logging.Logger,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._logger = logger
        self._stderr = bytearray()
        self._stderr_task = asyncio.create_task(self._drain_stderr())
        self._out_of_memory = False
        self._began = asyncio.get_running_loop().time()
        self.tasks_run = 0

    @classmethod
    async def spawn(cls, settings: ChildSettings, logger: logging.Logger) -> "ChildProcess":
        """Start a subprocess and wait until it is ready.

        Raises:
            ChildDied: it did not get that far.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                reader, writer = await asyncio.open_connection(sock=ours)
            except BaseException:
                ours.close()
                raise
            try:
                process = await _start(settings.environment, theirs.fileno())
            except BaseException:
                writer.close()
                raise
        child = cls(process, reader, writer, logger)
        try:
            async with asyncio.timeout(_START_SECONDS):
                await child._greet(settings.setup)
        except BaseException:
            await child.destroy()
            raise
        return child

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    @property
    def age_seconds(self) -> float:
        """Return how long ago it was started."""
        return asyncio.get_running_loop().time() - self._began

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.returncode is None

    async def run(self, run: Run, listener: Listener) -> Done | Failed:
        """Run one task and return what became of it.

        Raises:
            ChildDied: the process died, also when it was killed for its memory.
            BrokenFrame: it sent nonsense; destroy it.
        """
        self.tasks_run += 1
        watch = asyncio.create_task(self._watch_memory(run.memory_bytes, listener))
        try:
            await self._send(run)
            while True:
                match frame := await read_upward(self._reader):
                    case Done() | Failed():
                        return frame
                    case Progress() | Saved() | Note() | Log():
                        listener(frame)
                    case Ready():
                        continue
                    case None:
                        raise await self._obituary()
        finally:
            watch.cancel()

    async def cancel(self) -> None:
        """Tell the handler that it should stop."""
        await self._send(Cancel())

    async def destroy(self, grace_seconds: float = 0.0) -> None:
        """End the process and everything it started: ask by SIGTERM when there is time, then kill."""
        try:
            if grace_seconds and self.alive:
                self._signal(signal.SIGTERM)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._process.wait(), grace_seconds)
        finally:
            self._signal(signal.SIGKILL)
            self._writer.close()
            await self._process.wait()
            self._stderr_task.cancel()

    async def _greet(self, setup: Setup) -> None:
        await self._send(setup)
        while not isinstance(frame := await read_upward(self._reader), Ready):
            if frame is None:
                raise await self._obituary()

    async def _send(self, frame: Frame) -> None:
        """Send a frame; that nobody reads it any more shows when the answer is read."""
        with suppress(ConnectionError):
            self._writer.write(encode(frame))
            await self._writer.drain()

    async def _obituary(self) -> ChildDied:
        """Return why the process died; one that closed its end but lives on is killed."""
        try:
            returncode = await asyncio.wait_for(self._process.wait(), 1.0)
        except TimeoutError:
            self._signal(signal.SIGKILL)
            returncode = await self._process.wait()
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._stderr_task), 0.5)
        said_so = any(word in self._stderr for word in _MEMORY_WORDS)
        self._logger.error(
            "subprocess died",
            extra={"pid": self.pid, "returncode": returncode, "stderr": self._stderr.decode(errors="replace")},
        )
        return ChildDied(returncode, out_of_memory=self._out_of_memory or said_so)

    async def _watch_memory(self, limit_bytes: int, listener: Listener) -> None:
        """Kill the process when it takes memory that its own limit does not see; report its peak."""
        while self.alive:
            await asyncio.sleep(_WATCH_SECONDS)
            memory = memory_of(self.pid)
            if peak := memory.get("VmHWM"):
                listener(PeakMemory(peak))
            if limit_bytes and unshared_bytes(memory) > limit_bytes:
                self._out_of_memory = True
                self._signal(signal.SIGKILL)

    async def _drain_stderr(self) -> None:
        """Keep the end of what native code printed; a full pipe would stop it."""
        stream = self._process.stderr
        while stream is not None and (chunk := await stream.read(4096)):
            self._stderr += chunk
            del self._stderr[:-_STDERR_TAIL_BYTES]

    def _signal(self, number: signal.Signals) -> None:
        """Signal the whole session of the child; it may be gone already."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


async def _start(environment: Mapping[str, str], descriptor: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-m",
        "worker.child",
        str(descriptor),
        str(os.getpid()),
        env=dict(environment),
        cwd="/",
        pass_fds=(descriptor,),
        start_new_session=True,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
