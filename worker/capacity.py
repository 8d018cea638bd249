"""What the worker tells the orchestrators about its machine."""

import os
import shutil
import time
from pathlib import Path

from core.wire import Capacity

LOOK_SECONDS = 1.0
"""How long a look at the machine is good for: every call tells of it, and there may be a thousand calls a second."""


class Machine:
    """Memory, scratch space and cores, as they were seen lately."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._seen = (0, 0, 0)
        self._looked_at = float("-inf")

    def capacity(self, slots: int) -> Capacity:
        """Return this number of slots with memory, scratch space, and cores."""
        now = time.monotonic()
        if now - self._looked_at > LOOK_SECONDS:
            self._looked_at = now
            self._seen = _available_memory(), shutil.disk_usage(self._scratch).free, len(os.sched_getaffinity(0))
        memory, scratch, cores = self._seen
        return Capacity(slots=slots, memory_bytes=memory, scratch_bytes=scratch, cores=cores)


def _available_memory() -> int:
    with open("/proc/meminfo") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0
