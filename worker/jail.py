"""What a subprocess may use: limits it puts on itself before it imports any handler, and how memory is measured."""

import ctypes
import os
import resource
import signal
from collections.abc import Mapping
from pathlib import Path

from handlers.raster.drivers import UNUSED_DRIVERS

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_RESET_PEAK = "5"
_KILL_ME_FIRST = "1000"
_BYTES_PER_KB = 1024


def child_environment(gdal_cache_megabytes: int) -> dict[str, str]:
    """Return the whole environment of a subprocess: nothing is inherited, nothing in it is a secret.

    GDAL reads no folder beside a file, writes no `.aux.xml` beside it, keeps a bounded cache, and does not register
    drivers whose files may name other files; native libraries
    start no thread pools of their own (a raster worker runs one task per core).
    """
    return {
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "MALLOC_ARENA_MAX": "2",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "GDAL_CACHEMAX": str(gdal_cache_megabytes),
        "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
        "GDAL_PAM_ENABLED": "NO",
        "GDAL_SKIP": UNUSED_DRIVERS,
        "PROJ_NETWORK": "OFF",
        "VSI_CACHE": "FALSE",
    }


def lock_up(parent_pid: int) -> None:
    """Die with the parent, dump no core, gain no rights, and be the first that a full machine kills.

    Raises:
        SystemExit: the parent died before the kernel knew that we follow it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() != parent_pid:
        raise SystemExit("the worker is gone")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o077)
    Path("/proc/self/oom_score_adj").write_text(_KILL_ME_FIRST)


def limit_files(size_bytes: int) -> None:
    """Let no file grow beyond a size; 0 means no limit."""
    if size_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))


def limit_memory(size_bytes: int) -> None:
    """Limit the private writable memory of this process (heap, anonymous maps, stacks); 0 lifts the limit.

    RLIMIT_DATA and not RLIMIT_AS: since Linux 4.7 it counts private anonymous mappings as well, but neither the code
    of libraries, nor files mapped for reading, nor address space that thread arenas only reserve. A limit near the
    real use is therefore possible. Shared memory escapes it; the parent's watch counts that.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (size_bytes or hard, hard))


def reset_peak() -> None:
    """Start measuring the peak of the next task."""
    Path("/proc/self/clear_refs").write_text(_RESET_PEAK)


def peak_bytes() -> int | None:
    """Return this process's highest resident size since the last reset."""
    return memory_of("self").get("VmHWM")


def unshared_bytes(memory: Mapping[str, int]) -> int:
    """Return the memory a process has for itself, without mapped files."""
    return memory.get("RssAnon", 0) + memory.get("RssShmem", 0)


def memory_of(pid: int | str) -> Mapping[str, int]:
    """Return the memory lines of `/proc/<pid>/status` in bytes; empty when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    rows = (line.split() for line in text.splitlines() if line.endswith("kB"))
    return {row[0].rstrip(":"): int(row[1]) * _BYTES_PER_KB for row in rows}
