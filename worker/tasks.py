"""The tasks a worker holds leases for, and the slots they take."""

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from core.handlers_catalog import HandlerSpec, RunMode
from core.payloads import LIMIT_BYTES
from core.wire import Beat, ItemOutcome, Json, Release, TaskMessage

ANSWERED: Final = "answered"
"""The kind of slot, beside those of `RunMode`, of small inline tasks that come with answers."""


@dataclass(slots=True, eq=False)
class RunningTask:
    """One granted task."""

    message: TaskMessage
    spec: HandlerSpec
    deadline: float
    """Loop time at which its run time is over."""
    slot: str = RunMode.INLINE
    """The kind of the slot that it takes."""
    lease_seconds: float = math.inf
    """How long its lease lasts without a heartbeat."""
    params_digest: str | None = None
    """Of what the orchestrator dispatched."""
    checkpoint: Json | None = None
    """The last one known: of the attempt before, or saved by this one."""
    credential: str | None = field(default=None, repr=False)
    """For the source of its job, when its handler fetches that."""
    progress: Json | None = None
    peak_rss_bytes: int | None = None
    unsent_checkpoint: Json | None = None
    notice: Callable[[], None] = lambda: None
    """Called when there is something to send."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the handler should end."""
    revoked: bool = False
    """The attempt is no longer ours: report nothing, release nothing."""
    job: asyncio.Task[None] | None = None
    place: str = ""
    """Folder of its files below the output prefix; the task's id, and for an item of a batch its index."""
    inline_bytes: int = LIMIT_BYTES
    """An output that is larger is stored and reported by reference."""
    outcomes: list[ItemOutcome] = field(default_factory=list)
    """Of a batch: what became of its items so far."""
    sent_outcomes: int = 0

    def __post_init__(self) -> None:
        self.place = self.place or self.message.task_id

    @property
    def task_id(self) -> str:
        """Return the task's id."""
        return self.message.task_id

    def save(self, checkpoint: Json) -> None:
        """Keep a checkpoint for the next heartbeat, which comes soon."""
        self.checkpoint = checkpoint
        self.unsent_checkpoint = checkpoint
        self.notice()

    def beat(self) -> Beat:
        """Return the sign of life."""
        return Beat(
            task_id=self.task_id,
            token=self.message.token,
            progress=self.progress,
            peak_rss_bytes=self.peak_rss_bytes,
            checkpoint=self.unsent_checkpoint,
            outcomes=self._unsent_outcomes(),
        )

    def ended(self, outcome: ItemOutcome) -> None:
        """Note what became of an item of a batch."""
        self.outcomes.append(outcome)

    def _unsent_outcomes(self) -> tuple[ItemOutcome, ...] | None:
        return tuple(self.outcomes[self.sent_outcomes :]) or None

    def sent(self, beat: Beat, checkpoint: Json | None) -> None:
        """Note that a beat with this very checkpoint was answered: it need not go out again, a newer one must."""
        if self.unsent_checkpoint is checkpoint:
            self.unsent_checkpoint = None
        self.sent_outcomes += len(beat.outcomes or ())

    def release(self) -> Release:
        """Return what gives the lease back, with the last checkpoint."""
        return Release(
            task_id=self.task_id,
            token=self.message.token,
            checkpoint=self.checkpoint,
            outcomes=self._unsent_outcomes(),
        )


class Slots:
    """How many tasks of each kind may still start.

    There are as many subprocess slots as there are subprocesses now, so that a worker that cannot start any takes no
    task it could not run. What comes with answers has slots of its own, so it keeps no message waiting.
    """

    def __init__(self, inline: int, process: Callable[[], int], answered: int = 0) -> None:
        self._limits: dict[str, Callable[[], int]] = {
            RunMode.INLINE: lambda: inline,
            RunMode.SUBPROCESS: process,
            ANSWERED: lambda: answered,
        }
        self._used = dict.fromkeys(self._limits, 0)
        self._changed = asyncio.Event()

    def free(self, mode: str) -> int:
        """Return how many slots of a kind are free."""
        return max(0, self._limits[mode]() - self._used[mode])

    @property
    def total_free(self) -> int:
        """Return how many slots are free for what comes as a message."""
        return sum(self.free(mode) for mode in RunMode)

    def take(self, mode: str, count: int = 1) -> bool:
        """Take slots when so many are free."""
        if self.free(mode) < count:
            return False
        self._used[mode] += count
        return True

    def give(self, mode: str, count: int = 1) -> None:
        """Give slots back."""
        self._used[mode] -= count
        self.notice()

    def notice(self) -> None:
        """Look again: there may be more slots than before."""
        self._changed.set()

    async def wait_free(self, mode: RunMode) -> int:
        """Wait until a slot of a kind is free and return how many are."""
        while not (free := self.free(mode)):
            self._changed.clear()
            await self._changed.wait()
        return free


class TaskTable:
    """Running tasks by id."""

    def __init__(self) -> None:
        self._tasks: dict[str, RunningTask] = {}
        self._noticed = asyncio.Event()
        self._usual_lease_seconds = math.inf

    def __iter__(self) -> Iterator[RunningTask]:
        return iter(tuple(self._tasks.values()))

    def __len__(self) -> int:
        return len(self._tasks)

    def get(self, task_id: str) -> RunningTask | None:
        """Return a running task, or None."""
        return self._tasks.get(task_id)

    def add(self, task: RunningTask) -> None:
        """Add a task that has just been granted; whoever beats looks again when its lease is a short one."""
        self._tasks[task.task_id] = task
        if task.lease_seconds < self._usual_lease_seconds:
            self.notice()

    def notice(self) -> None:
        """Let whoever beats look again: there is a task more, or something to send."""
        self._noticed.set()

    @property
    def has_unsent(self) -> bool:
        """Return whether a task saved a checkpoint that nobody was told of."""
        return any(task.unsent_checkpoint is not None for task in self)

    @property
    def shortest_lease_seconds(self) -> float:
        """Return the length of the lease that runs out first without a heartbeat; infinite without tasks."""
        return min((task.lease_seconds for task in self), default=math.inf)

    async def wait_noticed(self, seconds: float, usual_lease_seconds: float) -> None:
        """Wait until there is something to look at, at most so long; new tasks with the usual lease are nothing."""
        self._usual_lease_seconds = usual_lease_seconds
        self._noticed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._noticed.wait()

    def remove(self, task: RunningTask) -> None:
        """Forget a task that ended."""
        if self._tasks.get(task.task_id) is task:
            del self._tasks[task.task_id]
