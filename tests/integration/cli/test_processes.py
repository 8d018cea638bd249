"""Parts are started, recognised and ended; foreign processes never are."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.stack.files import read_json, write_json
from cli.stack.processes import Part, PartSpec, ProcessId, end_parts, end_stale, wait_until

SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
PARENT = (
    "import subprocess, sys, time; c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
    "print(c.pid, flush=True); time.sleep(600)"
)


def spec(folder: Path, code: str) -> PartSpec:
    argv = [sys.executable, "-c", code]
    environment = {"PATH": os.environ["PATH"]}
    return PartSpec("part", argv, environment, folder / "part.log", folder / "part.json", folder)


def started(folder: Path, code: str) -> Part:
    part = Part.start(spec(folder, code))
    assert wait_until(lambda: b"\n" in (folder / "part.log").read_bytes(), 10)
    return part


@pytest.fixture
def bystander() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.DEVNULL)
    yield process
    process.kill()
    process.wait()


def test_a_part_writes_its_log_and_is_ended_by_sigterm(tmp_path: Path) -> None:
    part = started(tmp_path, SLEEPER)
    assert read_json(tmp_path / "part.json")["pid"] == part.pid
    end_parts([part], 10)
    assert part.bury() == -signal.SIGTERM
    assert not (tmp_path / "part.json").exists()


def test_a_part_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    part = started(tmp_path, STUBBORN)
    end_parts([part], 0.2)
    assert part.bury() == -signal.SIGKILL


def test_a_stopped_part_ends_by_sigterm_too(tmp_path: Path) -> None:
    part = started(tmp_path, SLEEPER)
    part.send(signal.SIGSTOP)
    end_parts([part], 10)
    assert part.bury() == -signal.SIGTERM


def test_what_a_killed_part_started_dies_with_it(tmp_path: Path) -> None:
    part = started(tmp_path, PARENT)
    child = ProcessId.of(int((tmp_path / "part.log").read_text()))
    assert child is not None
    part.send(signal.SIGKILL)
    assert wait_until(part.has_ended, 10)
    part.bury()
    assert wait_until(lambda: not child.is_alive(), 10)


def test_a_process_left_by_a_dead_supervisor_is_ended_by_its_record(
    tmp_path: Path, bystander: "subprocess.Popen[bytes]"
) -> None:
    identity = ProcessId.of(bystander.pid)
    assert identity is not None
    write_json(tmp_path / "left.json", identity.dump())
    assert end_stale(tmp_path / "left.json", 10)
    assert bystander.wait(10) == -signal.SIGTERM
    assert not (tmp_path / "left.json").exists()


def test_a_pid_that_belongs_to_somebody_else_by_now_is_left_alone(
    tmp_path: Path, bystander: "subprocess.Popen[bytes]"
) -> None:
    write_json(tmp_path / "left.json", {"pid": bystander.pid, "started": "another boot:1"})
    assert not end_stale(tmp_path / "left.json", 10)
    assert bystander.poll() is None
    assert not (tmp_path / "left.json").exists()


@pytest.mark.parametrize("content", ["", "[]", '{"pid": "x"}', "null"])
def test_an_unreadable_record_is_only_removed(tmp_path: Path, content: str) -> None:
    (tmp_path / "left.json").write_text(content)
    assert not end_stale(tmp_path / "left.json", 1)
    assert not (tmp_path / "left.json").exists()


def test_a_zombie_is_not_alive(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = ProcessId.of(process.pid)
    assert identity is not None
    assert identity.is_alive()
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.close()
    assert wait_until(lambda: not identity.is_alive(), 10)
    assert process.wait(10) == 0
