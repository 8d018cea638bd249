"""Serving as a process: it starts from its environment, says what is wrong with it, and drains."""

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.stack.cluster import free_port
from repositories import roles
from tests.support.business import key_file
from tests.support.databases import Database
from tests.support.storage import Storage
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]


@pytest.fixture
def environment(database: Database, storage: Storage, tmp_path: Path) -> dict[str, str]:
    """Return the environment of a serving process."""
    storage.put("silver/one", b"a zone")
    keys = tmp_path / "keys.json"
    keys.write_text(key_file().model_dump_json())
    return {
        "PATH": os.environ["PATH"],
        **storage.environment(database, roles.SERVING),
        "SERVING_PORT": str(free_port()),
        "API_KEYS_FILE": str(keys),
        "PUBLIC_SERVING_URL": "http://127.0.0.1",
    }


@contextmanager
def running(environment: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Run serving until the end of the block."""
    process = subprocess.Popen([sys.executable, "-m", "serving.main"], cwd=ROOT, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def answers(environment: dict[str, str], path: str) -> int | None:
    """Return the status of a request, None while nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", int(environment["SERVING_PORT"]), timeout=15)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except ConnectionError:
        return None
    finally:
        connection.close()


def test_it_serves_and_ends_within_five_seconds_of_sigterm(environment: dict[str, str]) -> None:
    with running(environment) as process:
        wait_until(lambda: answers(environment, "/readyz") == 200, "serving is ready", timeout_seconds=60)
        assert answers(environment, f"/stac/{'0' * 32}") == 404
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=6) in (0, -signal.SIGTERM)


def test_without_its_database_it_lives_is_not_ready_and_says_503(environment: dict[str, str]) -> None:
    environment["POSTGRES_PORT"] = str(free_port())
    with running(environment):
        wait_until(lambda: answers(environment, "/livez") == 200, "serving lives", timeout_seconds=60)
        assert answers(environment, "/readyz") == 503


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            {"BLOB_COLOUR": "blue", "SERVING_COLOUR": "red", "SERVING_PORT": "many"},
            ["BLOB_COLOUR", "SERVING_COLOUR", "SERVING_PORT"],
        ),
        pytest.param(
            {"BLOB_ROOT": "", "BLOB_URL": "https://b"},
            ["exactly one of BLOB_ROOT, AZURE_STORAGE_ACCOUNT_NAME"],
            marks=pytest.mark.embedded,  # an account beside the folder that the embedded storage has
        ),
        ({"API_KEYS_FILE": "/nowhere/keys.json"}, ["/nowhere/keys.json"]),
    ],
)
def test_a_wrong_environment_stops_the_start_and_is_named(
    environment: dict[str, str], change: dict[str, str], named: list[str]
) -> None:
    command = [sys.executable, "-m", "serving.main"]
    ended = subprocess.run(command, cwd=ROOT, env=environment | change, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert [name for name in named if name not in ended.stderr] == []
