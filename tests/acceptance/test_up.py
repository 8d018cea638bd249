"""`geodag up`, as somebody at a terminal uses it: idempotent, and mending itself whatever is killed."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.stack.files import read_json
from cli.stack.layout import REPOSITORY, Home, Shape
from cli.stack.processes import ProcessId
from cli.stack.stack import read_state
from tests.acceptance.platform import Json, http
from tests.acceptance.rasters import geotiff, terrain
from tests.support.adapters import BLOBS, IDENTITY, QUEUE
from tests.support.waiting import wait_until

SHAPE = Shape(queue=QUEUE, blobs=BLOBS, identity=IDENTITY)
PARTS = SHAPE.part_names
MORTAL = tuple(name for name in PARTS if name != "azurite")
"""Azurite writes down every few seconds what it has taken; killed, it forgets blobs, as no storage account does. In
tests/azure/test_outages.py it ends in order."""


class Terminal:
    """Runs the command in one home."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def run(self, *words: str, expect: int = 0) -> str:
        """Return what a command prints; fail when its exit code is another."""
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", *words, "--home", str(self.home)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout + (done.stderr if expect else "")

    @property
    def state(self) -> Json:
        """Return what the supervisor recorded."""
        return read_state(self.home) or {}

    def part(self, name: str) -> ProcessId | None:
        """Return which process a part is now."""
        return ProcessId.load(read_json(Home(self.home).record(name)))


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    """Yield a terminal with a running stack; whatever happens, nothing of it stays."""
    with tempfile.TemporaryDirectory(prefix="geodag-up-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        terminal = Terminal(Path(folder) / "home")
        try:
            terminal.run("up", "--detach")
            yield terminal
        finally:
            terminal.run("down")


def ready(terminal: Terminal) -> bool:
    urls = terminal.state["urls"]
    probes = (f"{urls['gateway']}/api/readyz", f"{urls['serving']}/readyz", f"{urls['orchestrator']}/readyz")
    try:
        return all(http("GET", url, timeout_seconds=2).status == 200 for url in probes)
    except OSError:
        return False


def test_a_second_up_says_that_it_runs_and_prints_the_addresses(terminal: Terminal) -> None:
    before = terminal.state
    printed = terminal.run("up")
    assert "already running" in printed
    assert all(url in printed for url in before["urls"].values())
    assert terminal.state == before


def test_every_killed_part_comes_back_and_no_job_is_lost(terminal: Terminal) -> None:
    raster = terminal.home / "a.tif"
    raster.write_bytes(geotiff(terrain()))
    submitted = json.loads(terminal.run("submit", str(raster), "--dataset", "kill", "--resource", "all", "--json"))
    before = {name: terminal.part(name) for name in MORTAL}
    for identity in before.values():
        assert identity is not None
        os.kill(identity.pid, signal.SIGKILL)

    def replaced() -> bool:
        now = {name: terminal.part(name) for name in MORTAL}
        return all(identity is not None and identity != before[name] for name, identity in now.items())

    wait_until(replaced, "every part replaced", 60)
    wait_until(lambda: ready(terminal), "every door ready", 60)

    def completed() -> bool:
        return bool(json.loads(terminal.run("status", submitted["request_id"], "--json"))["state"] == "completed")

    wait_until(completed, "the job that was under way completed", 120, every=0.5)


def test_after_the_death_of_the_supervisor_the_next_up_takes_over(terminal: Terminal) -> None:
    before = terminal.state
    left = [terminal.part(name) for name in PARTS]
    os.kill(before["supervisor"]["pid"], signal.SIGKILL)
    wait_until(lambda: not terminal.state["running"], "the supervisor dead", 10)
    terminal.run("up", "--detach")
    assert terminal.state["supervisor"] != before["supervisor"]
    assert terminal.state["urls"] == before["urls"]
    assert not [identity for identity in left if identity is not None and identity.is_alive()]
    assert ready(terminal)
    assert "raster_tiled" in terminal.run("jobs", "--json")


def test_refusals_are_readable_and_give_an_exit_code(terminal: Terminal, tmp_path: Path) -> None:
    text = tmp_path / "text.tif"
    text.write_text("this is no raster\n")
    printed = terminal.run("submit", str(text), "--dataset", "text", "--resource", "r", "--wait", expect=4)
    assert "RASTER_UNREADABLE" in printed
    printed = terminal.run("submit", str(text), "--dataset", "text", "--resource", "s", "--dry-run", expect=1)
    assert "RASTER_UNREADABLE" in printed
    printed = terminal.run("submit", str(text), "--dataset", "text", expect=1)
    assert "PARAMETER_MISSING" in printed
    assert "resource_id" in printed
    printed = terminal.run("approve", "0" * 32, "0", "--clearance", "public", expect=1)
    assert "NOT_FOUND" in printed


def test_down_ends_everything_and_up_starts_where_it_stopped(terminal: Terminal) -> None:
    left = [terminal.part(name) for name in PARTS]
    terminal.run("down")
    assert terminal.state["state"] == "stopped"
    assert not [identity for identity in left if identity is not None and identity.is_alive()]
    assert not list((terminal.home / "postgres" / "data").glob("postmaster.pid"))
    terminal.run("up", "--detach")
    assert "raster_tiled" in terminal.run("jobs", "--json")
