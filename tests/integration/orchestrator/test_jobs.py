"""Jobs over HTTP: create, look, wait."""

import asyncio

from tests.support.doors import Door
from tests.support.engine import Engine


async def test_a_job_runs_through_http_and_the_waiter_is_told_at_once(door: Door) -> None:
    engine = Engine(door.context.pool)
    job_id = await door.create("echo_test", {"message": "hi"})
    waiting = asyncio.create_task(door.job(job_id, wait=20))
    message = await engine.message(job_id)
    assert (await door.claim(message))["outcome"] == "granted"
    assert (await door.complete(message))["disposition"] == "applied"
    async with asyncio.timeout(1.0):
        job = await waiting
    assert (job["status"], job["outputs"]) == ("COMPLETED", {"echoed": {"message": "hi"}})
