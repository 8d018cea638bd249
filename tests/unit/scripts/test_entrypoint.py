"""The images' entry point: which process, which files, and that Python takes the shell's place."""

import subprocess
from pathlib import Path

import pytest

ENTRYPOINT = Path(__file__).resolve().parents[3] / "infra/images/entrypoint.sh"


def start(folder: Path, **environment: str) -> tuple[int, subprocess.Popen[str], str, str]:
    """Run the entry point with a Python that tells its process id, its arguments and its environment."""
    python = folder / "python3"
    python.write_text('#!/bin/sh\necho "$$ $*"\nenv\n')
    python.chmod(0o755)
    env = {"PATH": f"{folder}:/usr/bin:/bin", "GEODAG_FILES_DIR": str(folder), **environment}
    process = subprocess.Popen([ENTRYPOINT], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate(timeout=30)
    return process.returncode, process, out, err


@pytest.mark.parametrize(
    ("mode", "module"),
    [
        ("orchestrator", "orchestrator.main"),
        ("migrate", "orchestrator.migration"),
        ("worker", "worker.main"),
        ("serving", "serving.main"),
    ],
)
def test_run_mode_picks_the_process_that_takes_the_shells_place(tmp_path: Path, mode: str, module: str) -> None:
    code, process, out, _ = start(tmp_path, RUN_MODE=mode)
    assert (code, out.splitlines()[0]) == (0, f"{process.pid} -m {module}")


@pytest.mark.parametrize("mode", [{}, {"RUN_MODE": "Worker"}])
def test_another_run_mode_stops_the_start_and_names_the_choices(tmp_path: Path, mode: dict[str, str]) -> None:
    code, _, out, err = start(tmp_path, **mode)
    assert (code, out) == (78, "")
    assert "orchestrator, migrate, worker or serving" in err


def test_files_come_out_of_variables_that_the_process_does_not_see(tmp_path: Path) -> None:
    code, _, out, _ = start(tmp_path, RUN_MODE="serving", GEODAG_FILE_KEYS='{"keys": []}', GEODAG_FILE_PLATFORMS="{}")
    assert code == 0
    assert (tmp_path / "keys.json").read_text() == '{"keys": []}\n'
    assert (tmp_path / "platforms.json").read_text() == "{}\n"
    assert "GEODAG_FILE" not in out.replace("GEODAG_FILES_DIR", "")
