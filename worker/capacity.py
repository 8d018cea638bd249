"""What the worker tells the orchestrators about its machine."""

import os
import shutil
import time
from pathlib import Path

from core.wire import Capacity
from worker.tasks import Slots

LOOK_SECONDS = 1.0
"""How long a look at the machine is good for: every call tells of it, and there may be a thousand calls a second."""


class Machine:
    """Memory, scratch space and cores, as they were seen lately."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._seen = Capacity(slots=0)
        self._looked_at = float("-inf")

    def capacity(self, slots: Slots) -> Capacity:
        """Return free slots, memory, scratch space, and cores."""
        now = time.monotonic()
        if now - self._looked_at > LOOK_SECONDS:
            self._looked_at = now
            self._seen = Capacity(
                slots=0,
                memory_bytes=_available_memory(),
                scratch_bytes=shutil.disk_usage(self._scratch).free,
                cores=len(os.sched_getaffinity(0)),
            )
        return self._seen.model_copy(update={"slots": slots.total_free})


def _available_memory() -> int:
    with open("/proc/meminfo") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0
