"""Handlers that try things; run only in subprocesses of tests."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from core.errors import DataError, Finding
from handlers.context import Outcome, ProcessContext


def look_around(ctx: ProcessContext, params: Any) -> Outcome:
    descriptors = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptors[name] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
    return Outcome(
        {
            "environ": sorted(
                entry.split("=")[0] for entry in Path("/proc/self/environ").read_text().split("\0") if entry
            ),
            "cwd": os.getcwd(),
            "tmp": os.environ["TMPDIR"],
            "core": Path("/proc/self/limits").read_text().split("Max core file size")[1].split()[0],
            "fds": descriptors,
            "session": os.getsid(0) == os.getpid(),
            "modules": sorted(name for name in sys.modules if name.split(".")[0] in ("rasterio", "psycopg", "aiohttp")),
            "pid": os.getpid(),
            "param": params.value,
        }
    )


def allocate(ctx: ProcessContext, params: Any) -> Outcome:
    block = bytearray(params.size_bytes)
    return Outcome({"size_bytes": len(block)})


def map_shared(ctx: ProcessContext, params: Any) -> Outcome:
    """Take memory that RLIMIT_DATA does not count."""
    import mmap

    area = mmap.mmap(-1, params.size_bytes)
    for offset in range(0, params.size_bytes, 4096):
        area[offset] = 1
    time.sleep(60)
    return Outcome({})


def kill_itself(ctx: ProcessContext, params: Any) -> Outcome:
    os.kill(os.getpid(), getattr(signal, params.signal))
    time.sleep(60)
    return Outcome({})


def exit_quietly(ctx: ProcessContext, params: Any) -> Outcome:
    os._exit(3)


def exit_politely(ctx: ProcessContext, params: Any) -> Outcome:
    sys.exit(3)


def hang(ctx: ProcessContext, params: Any) -> Outcome:
    """Hang in native code that holds the GIL, with a child of its own."""
    sleeper = subprocess.Popen(["/bin/sleep", "600"])
    ctx.checkpoint.save("hanging", {"pid": os.getpid(), "sleeper": sleeper.pid})
    ctypes.PyDLL(None).sleep(600)
    return Outcome({})


def ignore_sigterm(ctx: ProcessContext, params: Any) -> Outcome:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctx.checkpoint.save("ignoring", {"pid": os.getpid()})
    time.sleep(600)
    return Outcome({})


def wait_for_cancel(ctx: ProcessContext, params: Any) -> Outcome:
    ctx.checkpoint.save("waiting", {"n": 1})
    while True:
        ctx.raise_if_cancelled()
        time.sleep(0.02)


def litter(ctx: ProcessContext, params: Any) -> Outcome:
    Path("litter").write_text("in the working folder")
    locked = ctx.scratch / "locked"
    locked.mkdir()
    (locked / "file").write_text("x")
    locked.chmod(0o500)
    return Outcome({"scratch": str(ctx.scratch)})


def write_file(ctx: ProcessContext, params: Any) -> Outcome:
    (ctx.out_dir / "a.bin").write_bytes(Path(params.source).read_bytes() * 2)
    finding = Finding(code="DOUBLED", level="info", message="doubled")
    return Outcome({}, files={"blob_path": params.file}, findings=(finding,), metrics={"blocks": 2})


def link_out(ctx: ProcessContext, params: Any) -> Outcome:
    (ctx.out_dir / "a.bin").symlink_to("/etc/passwd")
    return Outcome({}, files={"blob_path": "a.bin"})


def answer(ctx: ProcessContext, params: Any) -> Outcome:
    import numpy

    values = {
        "nan": float("nan"),
        "inf": numpy.float32("-inf"),
        "nul": "a\0b",
        "set": {1},
        "key": {1: 2},
        "huge": 2**5000,
        "array": numpy.arange(3),
        "numbers": [numpy.float64(0.5), numpy.int64(2**53 + 1), numpy.bool_(True), 2**70],
    }
    return Outcome({"deep": [{"bad": values[params.what]}]})


def print_much(ctx: ProcessContext, params: Any) -> Outcome:
    os.write(1, b"x" * 1_000_000)
    os.write(2, b"y" * 1_000_000)
    return Outcome({"ok": True})


def refuse(ctx: ProcessContext, params: Any) -> Outcome:
    raise DataError("no CRS: \0", code="CRS_MISSING", field="crs", value=float("nan"), remediation="state it")


def break_down(ctx: ProcessContext, params: Any) -> Outcome:
    raise ValueError("secret of the file")


def fill_disk(ctx: ProcessContext, params: Any) -> Outcome:
    try:
        raise OSError(28, "No space left on device")
    except OSError as exc:
        raise RuntimeError("write failed") from exc


def report_much(ctx: ProcessContext, params: Any) -> Outcome:
    for block in range(10_000):
        ctx.progress(block + 1, 10_000, "m" * 5000)
    return Outcome({"ok": True})


def send_garbage(ctx: ProcessContext, params: Any) -> Outcome:
    for descriptor in range(3, 64):
        try:
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
                os.write(descriptor, b"\xff\xff\xff\xff hello")
        except FileNotFoundError:
            continue
    time.sleep(60)
    return Outcome({})
