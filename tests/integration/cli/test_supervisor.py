"""A supervisor starts again what ends, as often as it takes, and ends all in order."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.stack.processes import PartSpec, wait_until
from cli.stack.supervisor import Supervisor

CODE = {
    "steady": "import time; print('up', flush=True); time.sleep(600)",
    "broken": "raise SystemExit(3)",
}


class Watched:
    """A supervisor of two parts with what it reported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports: list[tuple[str, str]] = []
        self.mended = 0
        self.supervisor = Supervisor(("steady", "broken"), self.spec, self.report, self.mend)

    def spec(self, name: str) -> PartSpec:
        argv = [sys.executable, "-c", CODE[name]]
        environment = {"PATH": os.environ["PATH"]}
        return PartSpec(name, argv, environment, self.log(name), self.folder / f"{name}.json", self.folder)

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def report(self, name: str, message: str) -> None:
        self.reports.append((name, message))

    def mend(self) -> None:
        self.mended += 1
        if self.mended == 2:
            raise OSError("mending failed once")


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    watched.supervisor.start()
    yield watched
    watched.supervisor.stop((), 10)


def test_a_killed_part_is_started_again(watched: Watched) -> None:
    before = watched.supervisor.pid("steady")
    watched.supervisor.send("steady", signal.SIGKILL)
    assert wait_until(lambda: watched.supervisor.pid("steady") not in {None, before}, 10)
    assert ("steady", "ended (SIGKILL), starting again in 0.1 s") in watched.reports


def test_a_part_that_cannot_start_is_tried_again_with_growing_pauses(watched: Watched) -> None:
    assert wait_until(lambda: watched.supervisor.restarts["broken"] >= 2, 20)
    said = [message for name, message in watched.reports if name == "broken"]
    assert said[:2] == [f"ended (exit code 3), starting again in {pause} s" for pause in ("0.1", "0.5")]


def test_a_part_that_was_stopped_on_purpose_stays_stopped(watched: Watched) -> None:
    watched.supervisor.stop_part("steady")
    seen = watched.mended
    assert wait_until(lambda: watched.mended > seen + 5, 20)
    assert watched.supervisor.pid("steady") is None
    watched.supervisor.start_part("steady")
    assert watched.supervisor.pid("steady") is not None


def test_an_error_while_mending_does_not_end_the_watch(watched: Watched) -> None:
    assert wait_until(lambda: watched.mended > 4, 20)


def test_after_the_stop_nothing_runs_and_nothing_starts(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.supervisor.start()
    watched.supervisor.stop(("steady",), 10)
    watched.supervisor.start_part("steady")
    assert watched.supervisor.pid("steady") is None
    assert not list(tmp_path.glob("*.json"))
