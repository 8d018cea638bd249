"""The gateway as a process of its own."""

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from repositories import roles
from tests.support.databases import Database
from tests.support.waiting import wait_until


def start(environment: Mapping[str, str], folder: Path) -> subprocess.Popen[str]:
    """Start `python -m function.local_host` in another folder than the repository's."""
    return subprocess.Popen(
        [sys.executable, "-m", "function.local_host"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[3])} | dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def good(database: Database, keys_file: Path, port: int) -> dict[str, str]:
    """Return a complete environment."""
    return database.environment(roles.GATEWAY) | {
        "GATEWAY_PORT": str(port),
        "ORCHESTRATOR_URL": "http://127.0.0.1:9",
        "GATEWAY_SERVICE_KEY": "key-gateway",
        "API_KEYS_FILE": str(keys_file),
        "PUBLIC_GATEWAY_URL": "http://gateway.test",
        "PUBLIC_SERVING_URL": "http://serving.test",
    }


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    """Return whether the gateway is ready."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.URLError:
        return False


def test_the_gateway_serves_until_sigterm(database: Database, keys_file: Path, tmp_path: Path) -> None:
    port = free_port()
    process = start(good(database, keys_file, port), tmp_path)
    try:
        wait_until(lambda: process.poll() is not None or answers(port), "the gateway is ready", 30)
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=10)
        assert process.returncode in {0, -signal.SIGTERM}
        assert "key-gateway" not in log
    finally:
        process.kill()


def test_a_missing_setting_stops_the_start_by_name(database: Database, keys_file: Path, tmp_path: Path) -> None:
    environment = good(database, keys_file, 1)
    del environment["ORCHESTRATOR_URL"]
    process = start(environment | {"GATEWAY_COLOUR": "red"}, tmp_path)
    _, log = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "ORCHESTRATOR_URL" in log
    assert "GATEWAY_COLOUR: unknown variable" in log


def test_a_missing_key_file_stops_the_start_by_name(database: Database, keys_file: Path, tmp_path: Path) -> None:
    environment = good(database, keys_file, 1) | {"API_KEYS_FILE": str(tmp_path / "none.json")}
    process = start(environment, tmp_path)
    _, log = process.communicate(timeout=30)
    assert (process.returncode, "none.json" in log) == (1, True)
