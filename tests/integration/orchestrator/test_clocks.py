"""Clocks of workers mean nothing: only the database's clock decides about leases (case D29)."""

import asyncio
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from core.errors import AttemptFailure
from core.identity import SERVICE_HEADER
from core.wire import ClaimRequest, HeartbeatRequest, ReleaseRequest, ResultRequest
from tests.integration.orchestrator.conftest import StartOrchestrator
from tests.support.azure_side import Azure
from tests.support.databases import Database
from tests.support.engine import Engine
from tests.support.service_bus import BusSide
from tests.support.storage import Storage

SKEWED = """
import time
true_time = time.time
time.time = lambda: true_time() + {seconds}
from worker.main import main
main()
"""
LEASE_SECONDS = 1.0


@pytest.mark.parametrize("minutes", [10, -10])
async def test_a_worker_with_a_wrong_clock_keeps_its_lease(
    start: StartOrchestrator,
    database: Database,
    storage: Storage,
    azure: Azure | None,
    queue_side: BusSide | None,
    tmp_path: Path,
    minutes: int,
) -> None:
    async with start(lease_seconds=LEASE_SECONDS) as door:
        environment = {
            "PATH": os.environ["PATH"],
            **storage.environment(database, "geodag_worker"),
            **({} if azure is None or queue_side is None else azure.at(queue_side.peer)),
            "WORKER_QUEUE": "functionapp-tasks",
            "WORKER_TYPE": "light",
            "WORKER_STATE_DIR": str(tmp_path / "state"),
            "WORKER_SCRATCH_DIR": str(tmp_path / "work"),
            "WORKER_HEALTH_PORT": "0",
            "WORKER_HEARTBEAT_SECONDS": "0.3",
            "WORKER_SERVICE_KEY": "key-worker",
            "DAG_CALLBACK_URL": f"{door.base}/api/v1/callbacks",
        }
        code = SKEWED.format(seconds=minutes * 60)
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, env=environment)
        try:
            job_id = await door.create("sleep_test", {"seconds": 4 * LEASE_SECONDS})
            job = await door.job(job_id, wait=60)
        finally:
            process.kill()
            await process.wait()
        attempts = await Engine(door.context.pool).query("SELECT state FROM dagapp.dag_attempts")
        events = await Engine(door.context.pool).events(job_id)
    assert (job["status"], job["error"]) == ("COMPLETED", None)
    assert [attempt["state"] for attempt in attempts] == ["reported"]
    assert "attempt_expired" not in events


@pytest.mark.parametrize("call", [ClaimRequest, HeartbeatRequest, ResultRequest, ReleaseRequest])
def test_no_call_of_a_worker_says_what_time_it_is(call: type[BaseModel]) -> None:
    assert list(times_in(call)) == []
    assert SERVICE_HEADER not in call.model_fields


def times_in(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Yield the fields below a model that hold a moment; the history of an error is the orchestrator's own."""
    for name, field in model.model_fields.items():
        for kind in _kinds(field.annotation):
            if kind is datetime:
                yield f"{path}.{name}"
            elif isinstance(kind, type) and issubclass(kind, BaseModel) and kind is not AttemptFailure:
                yield from times_in(kind, f"{path}.{name}")


def _kinds(annotation: Any) -> Iterator[Any]:
    yield annotation
    for inner in get_args(annotation):
        yield from _kinds(inner)
