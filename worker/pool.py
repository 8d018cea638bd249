"""A fixed number of warm subprocesses, each running one task at a time.

Why not `pebble` or `concurrent.futures`: both hand the worker's environment and open credentials to the process, keep
its working folder, block a thread per wait, and cannot tell a task's peak memory; see the ADR on subprocesses.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from worker.child_process import ChildDied, ChildProcess, ChildSettings, Listener
from worker.frames import Done, Failed, Run

_RESPAWN_SECONDS = 1.0
_MAX_RESPAWN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """How many subprocesses there are and how they are treated."""

    size: int
    child: ChildSettings
    max_tasks_per_child: int = 50
    min_seconds_per_child: float = 20.0
    """A process of many quick tasks serves as long: to start one costs more than a thousand items of a batch."""
    terminate_seconds: float = 10.0
    """How long a process may take to die of SIGTERM when its task is revoked."""


class TimedOut(Exception):
    """The task ran into its time limit and its process was killed."""


class ProcessPool:
    """Hands out subprocesses; a dead, used-up or suspect one is replaced."""

    def __init__(
        self, settings: PoolSettings, logger: logging.Logger, on_ready: Callable[[], None] = lambda: None
    ) -> None:
        self._settings = settings
        self._on_ready = on_ready
        self._logger = logger
        self._idle: asyncio.Queue[ChildProcess] = asyncio.Queue()
        self._children: set[ChildProcess] = set()
        self._respawns: set[asyncio.Task[None]] = set()
        self._closing = False

    async def start(self) -> None:
        """Start all subprocesses; they warm up on their own."""
        for _ in range(self._settings.size):
            self._respawn()

    def hurry(self) -> None:
        """From now on kill without grace and start nothing new."""
        self._closing = True

    async def close(self) -> None:
        """Kill every subprocess."""
        self.hurry()
        for task in self._respawns:
            task.cancel()
        await asyncio.gather(*self._respawns, return_exceptions=True)
        await asyncio.gather(*(child.destroy() for child in tuple(self._children)))
        self._children.clear()

    def __len__(self) -> int:
        return len(self._children)

    async def run(self, run: Run, listener: Listener, *, timeout_seconds: float, stop: asyncio.Event) -> Done | Failed:
        """Run one task; `stop` asks the handler to end, cancelling this call makes the process end.

        Raises:
            TimedOut: after `timeout_seconds`; the process is killed at once, whatever native code it is in.
            ChildDied: the process died.
            BrokenFrame: the process sent nonsense.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        child, keep, grace = await self._take(timeout_seconds), False, 0.0
        asking = asyncio.create_task(_ask_to_stop(child, stop))
        try:
            async with asyncio.timeout_at(deadline):
                reply = await child.run(run, listener)
            keep = self._reusable(child, reply)
            return reply
        except TimeoutError as exc:
            raise TimedOut from exc
        except asyncio.CancelledError:
            grace = 0.0 if self._closing else self._settings.terminate_seconds
            raise
        finally:
            asking.cancel()
            if keep:
                self._idle.put_nowait(child)
            else:
                await self._replace(child, grace)

    async def _take(self, timeout_seconds: float) -> ChildProcess:
        try:
            async with asyncio.timeout(timeout_seconds):
                while not (child := await self._idle.get()).alive:
                    await self._replace(child, 0.0)
                return child
        except TimeoutError as exc:
            raise TimedOut from exc

    def _reusable(self, child: ChildProcess, reply: Done | Failed) -> bool:
        """A process that failed may be in any state; one that stopped when told to, or succeeded, is reused."""
        sound = isinstance(reply, Done) or reply.error is None or reply.error.user_fixable
        return sound and not self._is_used_up(child) and not self._closing

    def _is_used_up(self, child: ChildProcess) -> bool:
        many = child.tasks_run >= self._settings.max_tasks_per_child
        return many and child.age_seconds >= self._settings.min_seconds_per_child

    async def _replace(self, child: ChildProcess, grace_seconds: float) -> None:
        self._children.discard(child)
        try:
            await child.destroy(grace_seconds)
        finally:
            self._respawn()

    def _respawn(self) -> None:
        if not self._closing:
            task = asyncio.create_task(self._spawn())
            self._respawns.add(task)
            task.add_done_callback(self._respawns.discard)

    async def _spawn(self) -> None:
        """Start one subprocess, again and again until it works."""
        delay = _RESPAWN_SECONDS
        while True:
            try:
                child = await ChildProcess.spawn(self._settings.child, self._logger)
                break
            except (ChildDied, OSError, TimeoutError):
                self._logger.exception("subprocess did not start", extra={"retry_seconds": delay})
            await asyncio.sleep(delay)
            delay = min(delay * 2, _MAX_RESPAWN_SECONDS)
        self._children.add(child)
        self._idle.put_nowait(child)
        self._on_ready()


async def _ask_to_stop(child: ChildProcess, stop: asyncio.Event) -> None:
    await stop.wait()
    await child.cancel()
