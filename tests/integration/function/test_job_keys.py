"""Idempotency keys of jobs through the gateway and by the command."""

from tests.integration.function.conftest import Platform
from tests.integration.function.test_reviews import geodag

JOBS = "/api/proxy/orchestrator/api/v1/jobs"


async def test_the_key_of_a_job_travels_through_the_gateway(platform: Platform) -> None:
    body = {"workflow_id": "echo_test"}
    replies = [await platform.call("POST", JOBS, "operator", body, Idempotency_Key="k") for _ in range(2)]
    assert [reply.status for reply in replies] == [202, 200]
    assert replies[0].body["job_id"] == replies[1].body["job_id"]
    other = await platform.call("POST", JOBS, "operator", {**body, "priority": 1}, Idempotency_Key="k")
    assert (other.status, other.body["code"]) == (409, "IDEMPOTENCY_CONFLICT")


async def test_the_same_command_again_starts_no_second_job(platform: Platform) -> None:
    words = ("job", "run", "echo_test", "--idempotency-key", "night")
    first, again = [await geodag(platform, "operator", *words) for _ in range(2)]
    assert (first["existing"], again["existing"], again["job_id"]) == (False, True, first["job_id"])
    await geodag(platform, "operator", *words, "--priority", "1", exit_code=1)
    await geodag(platform, "operator", *words[:-1], "two\nlines", exit_code=2)
    assert len(await geodag(platform, "operator", "jobs")) == 1
