"""Workers that wait by HTTP for the tasks that an instance makes."""

import asyncio

from tests.support.doors import WORKER, Door
from tests.support.waiting import await_until

WISH = {"worker": WORKER, "free": {"slots": 1}, "claim_id": "c", "wait_seconds": 30}


async def waiting(door: Door, count: int) -> None:
    async def as_many() -> bool:
        return len(door.context.offers) == count

    await await_until(as_many, f"{count} workers wait")


async def test_a_worker_that_waits_is_answered_with_a_task(door: Door) -> None:
    call = asyncio.create_task(door.call("POST", "/api/v1/callbacks/exchange", body=WISH, service="worker"))
    await waiting(door, 1)
    job_id = await door.create("echo_test")
    status, answer = await call
    (grant,) = answer["grants"]
    assert (status, grant["message"]["job_id"], grant["answer"]["outcome"]) == (200, job_id, "granted")
    result = {"task_id": grant["message"]["task_id"], "token": grant["message"]["token"], "status": "completed"}
    body = {**WISH, "results": [{**result, "output": {"echoed_params": {}}}]}
    status, answer = await door.call("POST", "/api/v1/callbacks/exchange", body=body, service="worker")
    assert (status, answer["answers"][0]["disposition"], answer["grants"]) == (200, "applied", [])
    assert (await door.job(job_id, wait=20))["status"] == "COMPLETED"


async def test_the_time_of_a_wait_is_kept_and_who_goes_waits_no_longer(door: Door) -> None:
    body = {**WISH, "wait_seconds": 0.05}
    assert await door.call("POST", "/api/v1/callbacks/exchange", body=body, service="worker") == (
        200,
        {"answers": [], "grants": []},
    )
    await waiting(door, 0)
    call = asyncio.create_task(door.call("POST", "/api/v1/callbacks/exchange", body=WISH, service="worker"))
    await waiting(door, 1)
    call.cancel()
    await waiting(door, 0)
