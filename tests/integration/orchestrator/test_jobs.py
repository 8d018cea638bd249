"""Jobs over HTTP: create, look, wait, read what is large."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from core import paging
from core.payloads import encode, task_prefix
from orchestrator.routes.values import HELD_BYTES
from tests.integration.orchestrator.conftest import StartOrchestrator
from tests.support.doors import WORKER, Door
from tests.support.engine import Engine
from tests.support.storage import Storage


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


async def test_the_progress_of_a_task_is_seen_while_it_runs(door: Door) -> None:
    engine = Engine(door.context.pool)
    job_id = await door.create("echo_test")
    message = await engine.message(job_id)
    assert await running(door, job_id) is None
    await door.claim(message)
    progress = {"current": 1.0, "total": 4.0, "message": "block 1"}
    beat = {"task_id": message.task_id, "token": message.token, "progress": progress, "peak_rss_bytes": 1000}
    await door.callback("heartbeats", {"worker": WORKER, "free": {"slots": 1}, "beats": [beat]})
    seen = await running(door, job_id)
    assert (seen["worker_id"], seen["progress"], seen["peak_rss_bytes"]) == ("worker-1", progress, 1000)
    await door.complete(message)
    assert await running(door, job_id) is None


async def test_a_node_tells_the_number_of_its_newest_attempt_as_its_task_id_does(door: Door) -> None:
    engine = Engine(door.context.pool)
    job_id = await door.create("echo_test")

    async def told() -> dict[str, Any]:
        nodes = (await door.get(f"/api/v1/jobs/{job_id}/nodes"))["nodes"]
        return {node["node_id"]: (node["attempt"], node["task_id"]) for node in nodes}

    none = {"start": (None, None), "end": (None, None)}
    assert await told() == {**none, "echo_handler": (0, f"{job_id}_echo_handler_0")}
    await engine.order(job_id, "cancel")
    assert (await told())["echo_handler"] == (0, f"{job_id}_echo_handler_0")
    await engine.order(job_id, "rerun")
    assert (await told())["echo_handler"] == (1, f"{job_id}_echo_handler_1")
    await engine.pause("all")
    await engine.order(job_id, "rerun")
    assert (await told())["echo_handler"] == (None, None)


async def running(door: Door, job_id: str) -> Any:
    nodes = (await door.get(f"/api/v1/jobs/{job_id}/nodes"))["nodes"]
    return next(node["running"] for node in nodes if node["node_id"] == "echo_handler")


LARGE = """
workflow_id: large
version: 1
inputs:
  data: {type: array, default: []}
  nothing: {type: string}
outputs:
  rows: "{{ nodes.first.output.echoed_params }}"
nodes:
  start: {type: start, next: first}
  first: {handler: echo, params: {data: "{{ inputs.data }}"}, next: end}
  end: {type: end}
"""
ROWS = ["y" * 200] * 4_000


@pytest.fixture
async def large_door(start: StartOrchestrator, tmp_path: Path) -> AsyncIterator[Door]:
    folder = tmp_path / "workflows"
    folder.mkdir()
    (folder / "large.yaml").write_text(LARGE)
    async with start(workflows_dir=folder) as door:
        yield door


async def first_node(door: Door, job_id: str) -> dict[str, Any]:
    nodes = (await door.get(f"/api/v1/jobs/{job_id}/nodes"))["nodes"]
    return next(node for node in nodes if node["node_id"] == "first")


async def test_large_values_are_shown_by_reference_and_streamed_to_operators(large_door: Door) -> None:
    door, engine = large_door, Engine(large_door.context.pool)
    job_id = await door.create("large", {"data": ROWS})
    await door.context.desk.settled()
    job, node = await door.job(job_id), await first_node(door, job_id)
    assert (job["inputs"], set(job["input_refs"]), node["input_params"]) == ({"nothing": None}, {"data"}, None)
    assert node["input_ref"]["size_bytes"] > 800_000
    assert await door.get(f"/api/v1/jobs/{job_id}/inputs/data") == ROWS
    assert await door.get(f"/api/v1/jobs/{job_id}/inputs/nothing") is None
    assert await door.get(f"/api/v1/jobs/{job_id}/nodes/first/input") == {"data": ROWS}

    message = await engine.message(job_id)
    await door.claim(message)
    ref = await door.context.desk.store.put(
        task_prefix(job_id, message.task_id), encode({"echoed_params": ROWS}, "output")
    )
    assert (await door.complete(message, output_ref=ref.model_dump()))["disposition"] == "applied"
    job = await door.job(job_id, wait=20)
    assert (job["status"], job["outputs"]) == ("COMPLETED", None)
    assert (await first_node(door, job_id))["output_ref"] == ref.model_dump()
    assert await door.get(f"/api/v1/jobs/{job_id}/nodes/first/output") == {"echoed_params": ROWS}
    assert await door.get(f"/api/v1/jobs/{job_id}/outputs") == {"rows": ROWS}


async def test_what_is_lost_or_damaged_is_told_by_its_code(large_door: Door, storage: Storage) -> None:
    job_id = await large_door.create("large", {"data": ROWS})
    await large_door.context.desk.settled()
    path = f"silver/{(await first_node(large_door, job_id))['input_ref']['blob']}"
    stored = storage.read(path)
    assert stored is not None
    for damage in (stored.replace(b"]", b" "), stored[:-1], b""):
        storage.put(path, damage)
        status, problem = await large_door.call("GET", f"/api/v1/jobs/{job_id}/nodes/first/input", caller="operator")
        assert (status, problem["code"]) == (410, "PAYLOAD_CORRUPT")
    storage.remove(path)
    status, problem = await large_door.call("GET", f"/api/v1/jobs/{job_id}/nodes/first/input", caller="operator")
    assert (status, problem["code"]) == (410, "PAYLOAD_MISSING")


async def test_what_is_too_large_to_be_held_and_damaged_never_comes_whole(
    large_door: Door, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    door, engine = large_door, Engine(large_door.context.pool)
    job_id = await door.create("large")
    message = await engine.message(job_id)
    await door.claim(message)
    data = encode({"rows": "y" * (HELD_BYTES + 1000)}, "output")
    ref = await door.context.desk.store.put(task_prefix(job_id, message.task_id), data)
    await door.complete(message, output_ref=ref.model_dump())
    storage.put(f"silver/{ref.blob}", data[:-1] + b" ")
    with pytest.raises(aiohttp.ClientPayloadError):
        await door.call("GET", f"/api/v1/jobs/{job_id}/nodes/first/output", caller="operator")
    told = [(record.msg, getattr(record, "code", None)) for record in caplog.records]
    assert ("answer broke off", "PAYLOAD_CORRUPT") in told


@pytest.mark.parametrize(
    "path",
    ["{job}/nodes/first/output", "{job}/nodes/none/output", "{job}/outputs", "{job}/inputs/none", "none/outputs"],
)
async def test_a_value_that_is_not_there_is_404(large_door: Door, path: str) -> None:
    job_id = await large_door.create("large")
    status, problem = await large_door.call("GET", f"/api/v1/jobs/{path.format(job=job_id)}", caller="operator")
    assert (status, problem["code"]) == (404, "NOT_FOUND")
    assert await large_door.get(f"/api/v1/jobs/{job_id}/inputs/data") == []


async def test_a_job_says_how_far_it_is_and_each_node_what_it_waits_for(door: Door) -> None:
    job_id = await door.create("echo_test")
    job = await door.job(job_id)
    assert (job["progress"]["nodes_done"], job["progress"]["nodes_total"]) == (1, 3)
    nodes = {node["node_id"]: node for node in (await door.get(f"/api/v1/jobs/{job_id}/nodes"))["nodes"]}
    assert nodes["end"]["waiting_for"] == {"kind": "dependency", "detail": {"open": ["echo_handler"]}}
    assert nodes["echo_handler"]["waiting_for"]["kind"] == "worker"
    engine = Engine(door.context.pool)
    message = await engine.message(job_id)
    await door.claim(message)
    await door.complete(message)
    assert (await door.job(job_id))["progress"] is None
    assert (await door.call("GET", "/api/v1/jobs/nope/nodes", caller="operator"))[0] == 404


async def test_a_job_and_its_nodes_say_in_one_shape_what_holds_them(door: Door, engine: Engine) -> None:
    await engine.pause("all")
    job_id = await door.create("echo_test")
    held = {"kind": "paused", "detail": {"switches": ["all"]}}
    nodes = {node["node_id"]: node for node in (await door.get(f"/api/v1/jobs/{job_id}/nodes"))["nodes"]}
    (listed,) = (await door.get("/api/v1/jobs"))["jobs"]
    assert (
        (await door.job(job_id))["waiting_for"] == listed["waiting_for"] == nodes["echo_handler"]["waiting_for"] == held
    )


async def test_a_node_names_the_job_that_works_for_it_also_after_its_end(door: Door, engine: Engine) -> None:
    job_id = await door.create("sub_workflow_test")
    node = await door.get(f"/api/v1/jobs/{job_id}/nodes/greet")
    assert (node["waiting_for"]["kind"], node["waiting_for"]["detail"]["job_id"]) == ("child", node["child_job_id"])
    assert (await door.get(f"/api/v1/jobs/{job_id}/nodes/start"))["child_job_id"] is None
    await engine.order(job_id, "cancel")
    node = await door.get(f"/api/v1/jobs/{job_id}/nodes/greet")
    assert (node["status"], node["waiting_for"]) == ("CANCELLED", None)
    assert (await door.job(node["child_job_id"]))["workflow_id"] == "greeting_twice"


FANNED = """
workflow_id: fanned
version: 1
nodes:
  start: {type: start, next: each}
  each: {type: fan_out, source: "{{ [1, 2, 3] }}", task: {handler: echo, params: {v: "{{ item }}"}}, next: end}
  end: {type: end}
"""


async def test_the_children_of_a_fan_out_are_counted_listed_and_looked_at(
    start: StartOrchestrator, tmp_path: Path
) -> None:
    folder = tmp_path / "workflows"
    folder.mkdir()
    (folder / "fanned.yaml").write_text(FANNED)
    async with start(workflows_dir=folder) as door:
        job_id = await door.create("fanned")
        path = f"/api/v1/jobs/{job_id}/nodes"
        each = (await door.get(f"{path}/each"))["fan_out"]
        assert (each["items"], each["tasks_made"], each["running"], each["waiting"]) == (3, 3, 0, {"worker": 3})
        assert await door.get(f"{path}/each") in (await door.get(path))["nodes"]
        child = await door.get(f"{path}/each__1")
        assert (child["status"], child["fan_out_index"], child["waiting_for"]["kind"]) == ("DISPATCHED", 1, "worker")
        assert child["fan_out"] is None
        page = await door.get(f"{path}/each/children?limit=2&status=DISPATCHED")
        assert [one["node_id"] for one in page["nodes"]] == ["each__0", "each__1"]
        page = await door.get(f"{path}/each/children?limit=2&after={page['next_after']}")
        assert ([one["node_id"] for one in page["nodes"]], page["next_after"]) == (["each__2"], None)
        for what, code in (
            ("each__9", 404),
            ("each/children?after=x", 400),
            ("each/children?limit=999", 422),
            ("start/children", 422),
        ):
            assert (await door.call("GET", f"{path}/{what}", caller="operator"))[0] in {code, 422}


async def test_what_asks_for_the_output_of_a_batch_is_told_where_those_of_its_items_are(
    start: StartOrchestrator, tmp_path: Path
) -> None:
    folder = tmp_path / "workflows"
    folder.mkdir()
    (folder / "fanned.yaml").write_text(FANNED.replace("task:", "batch_size: 2, task:"))
    async with start(workflows_dir=folder) as door:
        job_id = await door.create("fanned")
        path = f"/api/v1/jobs/{job_id}/nodes/each__0"
        status, problem = await door.call("GET", f"{path}/output", caller="operator")
        assert (status, problem["code"]) == (404, "NOT_FOUND")
        assert f"in the outcomes of GET {path}" in problem["detail"]
        assert (await door.get(path))["outcomes"] == []


async def test_jobs_are_listed_by_workflow_and_status(door: Door, engine: Engine) -> None:
    echo, hello = await door.create("echo_test"), await door.create("hello_world")
    await engine.order(echo, "cancel")

    async def listed(query: str) -> list[str]:
        return [job["job_id"] for job in (await door.get(f"/api/v1/jobs?{query}"))["jobs"]]

    assert await listed("") == [hello, echo]
    assert await listed("workflow_id=echo_test") == [echo]
    assert await listed("workflow_id=echo_test&status=CANCELLED") == [echo]
    assert await listed("workflow_id=echo_test&status=RUNNING") == []
    status, problem = await door.call("GET", "/api/v1/jobs?workflow_id=nope", caller="operator")
    assert (status, problem["field"], problem["value"]) == (404, "workflow_id", "nope")
    await engine.query("UPDATE dagapp.dag_workflows SET workflow_id = 'gone' WHERE workflow_id = 'chain_10'")
    assert await listed("workflow_id=gone") == []  # no file has it any more, and jobs of it may be left
    for query in ("workflow_id=", "workflow_id=a%00b"):
        assert (await door.call("GET", f"/api/v1/jobs?{query}", caller="operator"))[0] == 422


@pytest.mark.parametrize(
    "query", ["", "&status=RUNNING", "&workflow_id=echo_test", "&workflow_id=echo_test&status=RUNNING"]
)
async def test_lists_of_jobs_go_on_behind_their_last_one_also_among_those_of_one_moment(door: Door, query: str) -> None:
    jobs = {"jobs": [{"workflow_id": "echo_test", "inputs": {}}] * 5}
    made = [
        await door.call("POST", "/api/v1/jobs/batch", body=jobs, caller="operator", service="gateway") for _ in "ab"
    ]
    wanted = {job["job_id"] for _, answer in made for job in answer["jobs"]}
    found, after = [], ""
    while True:
        page = await door.get(f"/api/v1/jobs?limit=3{query}{after}")
        found += page["jobs"]
        if page["next_after"] is None:
            break
        after = f"&after={page['next_after']}"
    assert sorted(job["job_id"] for job in found) == sorted(wanted)
    assert [job["created_at"] for job in found] == sorted((job["created_at"] for job in found), reverse=True)


@pytest.mark.parametrize("after", ["x", paging.make_cursor("children", (1,)), paging.make_cursor("jobs", ("x", "y"))])
async def test_a_list_of_jobs_takes_only_its_own_cursors(door: Door, after: str) -> None:
    status, answer = await door.call("GET", f"/api/v1/jobs?after={after}", caller="operator")
    assert (status, answer["field"]) == (422, "after")
