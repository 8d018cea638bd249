"""The orchestrator as a process: it starts without a database, says what is missing, and leaves in order."""

import asyncio
import base64
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from repositories import roles
from tests.support.databases import Database
from tests.support.engine import WORKFLOWS, Engine
from tests.support.storage import Storage
from tests.support.waiting import await_until

REPOSITORY = Path(__file__).resolve().parents[3]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def environment(database: Database, keys_file: Path, storage: Storage) -> dict[str, str]:
    """Return everything that the process gets."""
    return {
        "PATH": os.environ["PATH"],
        **storage.environment(database, roles.ORCHESTRATOR),
        "ORCHESTRATOR_PORT": str(free_port()),
        "ORCHESTRATOR_HEARTBEAT_SECONDS": "0.3",
        "LOG_FORMAT": "text",
        "API_KEYS_FILE": str(keys_file),
        "WORKFLOWS_DIR": str(WORKFLOWS),
        "UPLOAD_KEY": "upload-key",
        "SECRETS_KEY": base64.b64encode(b"s" * 32).decode(),
        "PUBLIC_ORCHESTRATOR_URL": "http://orchestrator.test",
        "PUBLIC_SERVING_URL": "http://serving.test",
        "PUBLIC_GATEWAY_URL": "http://gateway.test",
    }


@asynccontextmanager
async def running(environment: Mapping[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "orchestrator.main",
        env=dict(environment), cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def status(environment: Mapping[str, str], path: str) -> int | None:
    url = f"http://127.0.0.1:{environment['ORCHESTRATOR_PORT']}{path}"
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(url) as answer:
                return answer.status
        except aiohttp.ClientError:
            return None


async def until_status(environment: Mapping[str, str], path: str, wanted: int) -> None:
    async def reached() -> bool:
        return await status(environment, path) == wanted

    await await_until(reached, f"{path} answers {wanted}", timeout_seconds=40)


async def test_sigterm_gives_the_jobs_up_and_ends_with_zero_within_five_seconds(
    environment: dict[str, str], engine: Engine
) -> None:
    async with running(environment) as process:
        await until_status(environment, "/readyz", 200)
        (owner,) = await engine.query("SELECT owner_id FROM dagapp.dag_orchestrators")
        engine.owner_id = owner["owner_id"]
        job_id = await engine.create("echo_test")
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(5):
            assert await process.wait() == 0
        assert time.monotonic() - began < 5
        output = (await process.stdout.read()).decode() if process.stdout else ""
    (row,) = await engine.query("SELECT state FROM dagapp.dag_orchestrators")
    assert (row["state"], (await engine.job(job_id)).owner_id) == ("stopped", None)
    assert "Traceback" not in output


async def test_it_starts_before_its_database_and_is_not_ready(environment: dict[str, str]) -> None:
    environment["POSTGRES_PORT"] = str(free_port())
    async with running(environment):
        await until_status(environment, "/livez", 200)
        assert await status(environment, "/readyz") == 503


@pytest.mark.parametrize(
    ("missing", "unknown"),
    [
        (["UPLOAD_KEY", "SECRETS_KEY", "POSTGRES_HOST", "ORCHESTRATOR_PORT"], ["ORCHESTRATOR_POL_INTERVAL"]),
        (["API_KEYS_FILE"], []),
    ],
)
async def test_missing_settings_and_unknown_names_stop_the_start_and_are_named(
    environment: dict[str, str], missing: list[str], unknown: list[str]
) -> None:
    given = {name: value for name, value in environment.items() if name not in missing} | dict.fromkeys(unknown, "1")
    async with running(given) as process:
        assert await process.wait() == 2
        assert process.stdout is not None
        told = (await process.stdout.read()).decode()
    assert [name for name in (*missing, *unknown) if name not in told] == []


async def test_a_stopped_process_loses_its_jobs_and_does_no_harm_when_it_wakes(
    environment: dict[str, str], engine: Engine
) -> None:
    fast = {"ORCHESTRATOR_THRESHOLD_SECONDS": "2", "ORCHESTRATOR_POLL_INTERVAL": "0.2", "LEASE_SECONDS": "2"}
    first, second = environment | fast, environment | fast | {"ORCHESTRATOR_PORT": str(free_port())}
    async with running(first) as stopped:
        await until_status(first, "/readyz", 200)
        (owner,) = await engine.query("SELECT owner_id FROM dagapp.dag_orchestrators")
        async with running(second):
            await until_status(second, "/readyz", 200)
            engine.owner_id = owner["owner_id"]
            jobs = [await engine.create("echo_test") for _ in range(5)]
            stopped.send_signal(signal.SIGSTOP)

            async def taken() -> bool:
                return all([(await engine.job(job_id)).owner_epoch == 2 for job_id in jobs])

            await await_until(taken, "taken over", timeout_seconds=2 + 2 + 1)
            stopped.send_signal(signal.SIGCONT)
            await until_status(first, "/readyz", 200)
            owners = {(await engine.job(job_id)).owner_id for job_id in jobs}
            assert owned_by_one_other(owners, owner["owner_id"])


def owned_by_one_other(owners: set[str | None], former: str) -> bool:
    return len(owners) == 1 and former not in owners and None not in owners
