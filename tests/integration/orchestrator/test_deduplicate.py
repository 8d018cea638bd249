"""Deduplicated jobs over HTTP."""

from pathlib import Path
from typing import Any

from tests.integration.orchestrator.conftest import StartOrchestrator
from tests.support.doors import Door

ONCE = """
workflow_id: once
version: 1
deduplicate: inputs
inputs: {a: {type: integer, default: 1}}
nodes:
  start: {type: start, next: work}
  work: {handler: echo, params: {v: "{{ inputs.a }}"}, next: end}
  end: {type: end}
"""


async def create(door: Door, query: str = "") -> tuple[int, Any]:
    body = {"workflow_id": "once"}
    return await door.call("POST", f"/api/v1/jobs{query}", body=body, caller="operator", service="gateway")


async def test_the_answer_says_that_the_job_was_there_and_a_cancelled_one_runs_again_on_wish(
    start: StartOrchestrator, tmp_path: Path
) -> None:
    folder = tmp_path / "workflows"
    folder.mkdir()
    (folder / "once.yaml").write_text(ONCE)
    async with start(workflows_dir=folder) as door:
        status, first = await create(door)
        assert (status, first["existing"], first["status"]) == (202, False, "RUNNING")
        job_id = first["job_id"]
        assert await create(door, "?rerun=true") == (200, {"job_id": job_id, "status": "RUNNING", "existing": True})
        await door.call("POST", f"/api/v1/jobs/{job_id}/cancel", caller="operator", service="gateway")
        assert (await create(door))[1] == {"job_id": job_id, "status": "CANCELLED", "existing": True}
        assert (await create(door, "?rerun=true"))[1] == {"job_id": job_id, "status": "RUNNING", "existing": True}
        assert (await door.job(job_id))["run_no"] == 2


async def test_a_batch_says_of_each_job_whether_it_was_there(start: StartOrchestrator, tmp_path: Path) -> None:
    folder = tmp_path / "workflows"
    folder.mkdir()
    (folder / "once.yaml").write_text(ONCE)
    async with start(workflows_dir=folder) as door:
        job_id = (await create(door))[1]["job_id"]
        given: list[Any] = [{}, {"a": 1}, {"a": 2}, {"a": 2}, {"a": "x"}]
        wanted = [{"workflow_id": "once", "inputs": inputs} for inputs in given]
        for created, there in ((1, [True, True, False, True]), (0, [True] * 4)):
            status, answer = await door.call(
                "POST", "/api/v1/jobs/batch", body={"jobs": wanted}, caller="operator", service="gateway"
            )
            jobs = answer["jobs"]
            assert (status, answer["created"], answer["refused"]) == (202, created, 1)
            assert [job["existing"] for job in jobs[:4]] == there
            assert [job["job_id"] == job_id for job in jobs[:4]] == [True, True, False, False]
            assert jobs[2]["job_id"] == jobs[3]["job_id"]
            assert jobs[4]["error"]["field"] == "jobs.4.inputs.a"


async def test_a_rerun_of_what_does_not_deduplicate_is_refused_and_starts_nothing(door: Door) -> None:
    body = {"workflow_id": "echo_test"}
    path = "/api/v1/jobs?rerun=true"
    status, problem = await door.call("POST", path, body=body, caller="operator", service="gateway")
    assert (status, problem["field"]) == (422, "rerun")
    assert (await door.get("/api/v1/jobs"))["jobs"] == []
