"""What the worker tells the orchestrators about its machine."""

import os
import shutil
from pathlib import Path

from core.wire import Capacity
from worker.tasks import Slots


def capacity_now(slots: Slots, scratch: Path) -> Capacity:
    """Return free slots, memory, scratch space, and cores."""
    return Capacity(
        slots=slots.total_free,
        memory_bytes=_available_memory(),
        scratch_bytes=shutil.disk_usage(scratch).free,
        cores=len(os.sched_getaffinity(0)),
    )


def _available_memory() -> int:
    with open("/proc/meminfo") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0
