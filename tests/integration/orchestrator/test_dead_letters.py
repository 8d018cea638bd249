"""Dead letters over HTTP, from a worker's own receiver to the end of the run."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from psycopg import AsyncConnection

from messaging.postgres import PostgresTaskReceiver
from repositories import roles
from repositories.database import listen
from tests.integration.orchestrator.conftest import StartOrchestrator
from tests.support.databases import Database
from tests.support.doors import Door
from tests.support.engine import Engine
from tests.support.waiting import await_until


@pytest.fixture
async def watching(start: StartOrchestrator, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Door]:
    """Return an orchestrator that looks for dead letters all the time."""
    monkeypatch.setattr("orchestrator.app.WATCH_SECONDS", 0.05)
    async with start() as door:
        yield door


async def bury(database: Database, task_id: str) -> None:
    """Receive an unreadable message as a worker does, and set it aside."""

    async def connect() -> AsyncConnection[Any]:
        return await listen(database.conninfo(roles.WORKER), name="test receiver")

    receiver = PostgresTaskReceiver(connect, connect, queue="functionapp-tasks", consumer_id="c1")
    (delivery,) = await receiver.receive(10, 5)
    assert (delivery.message, delivery.message_id) == (None, f"{task_id}.1")
    await receiver.dead_letter(delivery, delivery.unreadable or "")
    await receiver.close()


async def test_a_poison_message_ends_its_run_and_is_listed_for_operators(
    watching: Door, engine: Engine, database: Database
) -> None:
    job_id = await watching.create("echo_test")
    message = await engine.message(job_id)
    await engine.query("UPDATE dagqueue.messages SET body = '[]'")
    await bury(database, message.task_id)
    job = await watching.job(job_id, wait=10)
    assert (job["status"], job["error"]["code"]) == ("FAILED", "MESSAGE_UNREADABLE")
    (letter,) = (await watching.get("/api/v1/dead-letters"))["dead_letters"]
    assert (letter["task_id"], letter["classification"], letter["resolved_at"]) == (
        message.task_id, "unreadable", None,
    )  # fmt: skip
    path = f"/api/v1/dead-letters/{letter['dead_letter_id']}"
    credentials = {"caller": "operator", "service": "gateway"}
    status, body = await watching.call("POST", f"{path}/replay", body={"reason": "try"}, **credentials)
    assert (status, body["resolution"], body["resolved_by"]) == (200, "attempt_over", "operator")
    status, problem = await watching.call("POST", f"{path}/discard", **credentials)
    assert (status, problem["code"], problem["value"]) == (409, "DEAD_LETTER_RESOLVED", "attempt_over")
    assert (await watching.get("/api/v1/dead-letters"))["dead_letters"] == []
    assert len((await watching.get("/api/v1/dead-letters?settled=true"))["dead_letters"]) == 1
    status, problem = await watching.call("POST", "/api/v1/dead-letters/999/discard", **credentials)
    assert (status, problem["field"]) == (404, "dead_letter_id")


async def test_a_replayed_letter_leaves_as_the_next_dispatch(watching: Door, engine: Engine) -> None:
    job_id = await watching.create("echo_test")
    message = await engine.message(job_id)
    await engine.query("DELETE FROM dagqueue.messages")
    await engine.query(
        "INSERT INTO dagapp.dag_dead_letters"
        " (message_id, queue, task_id, job_id, body, reason, classification, dead_at)"
        " VALUES ('m', 'q', %s, %s, '{}', 'r', 'bad_token', dagapp.clock())",
        message.task_id,
        job_id,
    )
    (letter,) = (await watching.get("/api/v1/dead-letters"))["dead_letters"]
    status, body = await watching.call(
        "POST", f"/api/v1/dead-letters/{letter['dead_letter_id']}/replay", caller="operator", service="gateway"
    )
    assert (status, body["resolution"]) == (200, "replayed")

    async def sent() -> bool:
        return [one.dispatch_no for one in await engine.messages(job_id)] == [2]

    await await_until(sent, "the job sends its task again", timeout_seconds=3)
