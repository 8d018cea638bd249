"""Large values through the services: by reference in rows and messages, made outside of every transaction."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from core.errors import ParameterInvalid, StorageUnavailable
from core.ids import digest
from core.models.engine import Job
from core.payloads import LIMIT_BYTES, PayloadRef, decode, encode, task_prefix
from core.ports import BlobRef, BlobRepository
from core.wire import TaskMessage, TaskResult, TaskStatus
from repositories.blobs_folder import FolderBlobRepository
from repositories.database import AsyncPool
from repositories.payloads import PayloadStore
from services import payload_desk
from services.payload_desk import MakerDied
from services.payload_upkeep import PayloadUpkeep
from services.work import pipelined
from tests.support.engine import Engine, HandWorker, workflows_of
from tests.support.storage import Storage
from tests.support.waiting import await_until

WORKFLOW = """
workflow_id: large
version: 1
inputs:
  data: {type: object, default: {}}
outputs:
  count: "{{ nodes.second.output.echoed_params.count }}"
nodes:
  start: {type: start, next: first}
  first: {handler: echo, params: {data: "{{ inputs.data }}"}, next: second}
  second:
    handler: echo
    params:
      count: "{{ nodes.first.output.echoed_params.rows | length }}"
      rows: "{{ nodes.first.output.echoed_params.rows }}"
    next: end
  end: {type: end}
"""
CHOOSING = """
workflow_id: choosing
version: 1
nodes:
  start: {type: start, next: first}
  first: {handler: echo, next: choose}
  choose:
    type: conditional
    condition: >-
      {{ nodes.first.output.echoed_params.n }} > 1000 and {{ nodes.first.output.echoed_params.rows | length }} > 1000
    on_true: many
    on_false: few
  many: {handler: echo, when: "{{ nodes.first.output.echoed_params.n }} == 3000", next: end}
  few: {handler: echo, next: end}
  end: {type: end, depends_on: {any_of: [many, few]}}
"""
ROWS = ["ä" * 100] * 3000
LARGE_OUTPUTS = WORKFLOW.replace("workflow_id: large", "workflow_id: large_outputs").replace(
    '"{{ nodes.second.output.echoed_params.count }}"', '"{{ nodes.first.output.echoed_params.rows }}"'
)


@pytest.fixture
async def engine(pool: AsyncPool, blobs: BlobRepository) -> AsyncIterator[Engine]:
    engine = Engine(pool, workflows_of(WORKFLOW, LARGE_OUTPUTS, CHOOSING), blobs=blobs)
    yield engine
    await engine.desk.close()


async def create(engine: Engine, inputs: dict[str, Any], workflow_id: str = "large") -> Job:
    order = await engine.jobs.order(workflow_id=workflow_id, inputs=inputs)
    async with pipelined(engine.pool) as conn:
        (job,) = await engine.jobs.create_many(conn, [order])
    await engine.desk.settled()
    return job


async def params_of(engine: Engine, message: TaskMessage) -> Any:
    assert message.params_ref is not None
    return decode(message.params_ref, await engine.store.get(message.params_ref))


async def report_large(engine: Engine, worker: HandWorker, message: TaskMessage, output: Any) -> PayloadRef:
    """Claim, store the output as a worker does, and report it."""
    await worker.claim(message)
    ref = await engine.store.put(task_prefix(message.job_id, message.task_id), encode(output, "output"))
    result = TaskResult(task_id=message.task_id, token=message.token, status=TaskStatus.COMPLETED, output_ref=ref)
    (answer,) = await worker.report(result)
    assert answer.disposition == "applied"
    return ref


async def node(engine: Engine, job_id: str, node_id: str) -> dict[str, Any]:
    (row,) = await engine.query(
        "SELECT * FROM dagapp.dag_node_states WHERE job_id = %s AND node_id = %s", job_id, node_id
    )
    return row


async def test_params_of_300_kilobytes_travel_by_reference_and_rows_stay_small(engine: Engine) -> None:
    data = {"x": "y" * 300_000}
    job = await create(engine, {"data": data})
    message = await engine.message(job.job_id)
    assert await params_of(engine, message) == {"data": data}
    assert (await engine.attempt(message.task_id))["params_digest"] == digest({"data": data})
    for table in ("dagapp.dag_jobs", "dagapp.dag_node_states", "dagapp.dag_attempts", "dagqueue.messages"):
        (row,) = await engine.query(f"SELECT max(length(t::text)) AS size FROM {table} AS t")  # type: ignore[arg-type]
        assert row["size"] < 10_000, table


async def test_inputs_are_checked_before_anything_is_stored(engine: Engine, storage: Storage) -> None:
    with pytest.raises(ParameterInvalid) as caught:
        await engine.jobs.order(workflow_id="large", inputs={"data": ["x" * 100_000]})
    assert caught.value.detail.field == "inputs.data"
    assert not storage.paths()


async def test_small_inputs_stay_in_the_row(engine: Engine, storage: Storage) -> None:
    job = await create(engine, {"data": {"x": 1}})
    assert (job.input_params, job.input_refs) == ({"data": {"x": 1}}, None)
    assert (await engine.message(job.job_id)).params == {"data": {"x": 1}}
    assert not storage.paths()


async def test_a_large_output_is_read_for_the_node_that_wants_it(engine: Engine, worker: HandWorker) -> None:
    job = await create(engine, {})
    ref = await report_large(engine, worker, await engine.message(job.job_id), {"echoed_params": {"rows": ROWS}})
    await engine.desk.settled()
    message = await engine.message(job.job_id)
    assert message.node_id == "second"
    assert await params_of(engine, message) == {"count": 3000, "rows": ROWS}
    first = await node(engine, job.job_id, "first")
    assert (first["status"], first["output"], first["output_ref"]) == ("COMPLETED", None, ref.model_dump())
    await worker.run(message, {"echoed_params": {"count": 3000}})
    ended = await engine.job(job.job_id)
    assert (ended.status, ended.outputs) == ("COMPLETED", {"count": 3000})


async def test_large_outputs_of_a_job_lie_behind_a_reference_and_its_end_sees_them(
    engine: Engine, worker: HandWorker
) -> None:
    job = await create(engine, {}, "large_outputs")
    await report_large(engine, worker, await engine.message(job.job_id), {"echoed_params": {"rows": ROWS}})
    await engine.desk.settled()
    await worker.run(await engine.message(job.job_id), {})
    await engine.desk.settled()
    ended = await engine.job(job.job_id)
    assert (ended.status, ended.outputs) == ("COMPLETED", None)
    assert ended.outputs_ref is not None
    ref = PayloadRef.model_validate(ended.outputs_ref)
    assert decode(ref, await engine.store.get(ref)) == {"count": ROWS}
    assert [one.outputs for one in engine.ended] == [{"count": ROWS}]


async def test_values_that_take_long_hold_up_no_small_ones(
    engine: Engine, worker: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, released = asyncio.Event(), asyncio.Event()

    async def take_long(order: Any) -> Any:
        asked.set()
        await released.wait()
        raise MakerDied("enough")

    monkeypatch.setattr(payload_desk, "_ask_process", take_long)
    large = await engine.store.put("payloads/j/values/", encode(["x" * 100] * 20_000, "x"))
    engine.desk.want("j", [rendering(large, f"{{{{ inputs.x }}}}{number}") for number in range(5)])
    await asked.wait()
    stored = await engine.jobs.order(workflow_id="large", inputs={"data": {"x": "y" * 100_000}})
    async with pipelined(engine.pool) as conn:
        (job,) = await engine.jobs.create_many(conn, [stored])
    await await_until(lambda: _has_message(engine, job.job_id), "its first task is sent")
    await engine.desk.close()


async def _has_message(engine: Engine, job_id: str) -> bool:
    return bool(await engine.messages(job_id))


async def test_a_node_that_needs_one_value_after_the_other_gets_them(engine: Engine, worker: HandWorker) -> None:
    job = await create(engine, {}, "choosing")
    await report_large(engine, worker, await engine.message(job.job_id), {"echoed_params": {"rows": ROWS, "n": 3000}})
    await engine.desk.settled()
    assert (await engine.message(job.job_id)).node_id == "many"
    assert (await engine.statuses(job.job_id))["few"] == "SKIPPED"


async def test_answers_are_forgotten_when_there_are_too_many_and_failures_at_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload_desk, "REMEMBERED_BYTES", 5000)
    monkeypatch.setattr(payload_desk, "DELIVERY_PAUSES", (0.0,))
    ref = await engine.store.put("payloads/j/values/", encode("x" * 3000, "x"))
    wanted = [rendering(ref, template) for template in ("{{ inputs.x }}1", "{{ inputs.x }}2", "{{ inputs.x.y }}")]
    for one in wanted:
        engine.desk.want("j", [one])
        await engine.desk.settled()
    assert list(engine.desk.answers) == [wanted[1].key]


async def test_a_message_that_is_sent_again_has_the_same_reference(engine: Engine) -> None:
    job = await create(engine, {"data": {"x": "y" * 100_000}})
    first = await engine.message(job.job_id)
    await engine.query("UPDATE dagapp.dag_attempts SET redispatch_at = dagapp.clock() - interval '1 second'")
    await engine.advance(job.job_id)
    again = await engine.message(job.job_id)
    assert (again.dispatch_no, again.params_ref, again.params) == (2, first.params_ref, {})


@pytest.mark.parametrize("large", [False, True], ids=["read in a thread", "read in a process"])
@pytest.mark.parametrize(("code", "damage"), [("PAYLOAD_MISSING", None), ("PAYLOAD_CORRUPT", b"{}")])
async def test_a_lost_output_fails_the_node_that_reads_it(
    engine: Engine, worker: HandWorker, storage: Storage, code: str, damage: bytes | None, large: bool
) -> None:
    job = await create(engine, {})
    message = await engine.message(job.job_id)
    await worker.claim(message)
    data = encode({"echoed_params": {"rows": ROWS * (5 if large else 1)}}, "output")
    ref = await engine.store.put(task_prefix(job.job_id, message.task_id), data)
    if damage is None:
        storage.remove(f"silver/{ref.blob}")
    else:
        storage.put(f"silver/{ref.blob}", damage)
    result = TaskResult(task_id=message.task_id, token=message.token, status=TaskStatus.COMPLETED, output_ref=ref)
    await worker.report(result)
    await engine.desk.settled()
    ended = await engine.job(job.job_id)
    assert ended.error is not None
    assert (ended.status, ended.error["code"], ended.error["node_id"]) == ("FAILED", code, "second")
    assert ended.error["field"] == ref.blob


async def test_a_reference_to_a_value_of_another_task_is_a_failed_result(engine: Engine, worker: HandWorker) -> None:
    job = await create(engine, {})
    message = await engine.message(job.job_id)
    await worker.claim(message)
    theirs = await engine.store.put(task_prefix(job.job_id, f"{job.job_id}_other_0"), encode({"secret": 1}, "x"))
    result = TaskResult(task_id=message.task_id, token=message.token, status=TaskStatus.COMPLETED, output_ref=theirs)
    await worker.report(result)
    ended = await engine.job(job.job_id)
    assert ended.error is not None
    assert (ended.error["code"], ended.error["field"]) == ("OUTPUT_INVALID", "output_ref")


async def test_a_large_output_in_the_row_is_a_failed_result(engine: Engine, worker: HandWorker) -> None:
    job = await create(engine, {})
    message = await engine.message(job.job_id)
    await worker.run(message, {"x": "y" * LIMIT_BYTES})
    ended = await engine.job(job.job_id)
    assert ended.error is not None
    assert (ended.error["code"], ended.error["field"]) == ("OUTPUT_INVALID", "output")


async def _is(value: bool) -> bool:
    return value


class Flaky(FolderBlobRepository):
    """A storage that is away for the first reads and writes."""

    def __init__(self, root: Path, failures: int) -> None:
        super().__init__(root)
        self.failures = failures

    def _maybe_fail(self) -> None:
        if self.failures > 0:
            self.failures -= 1
            raise StorageUnavailable("the storage is away")

    async def create(self, ref: BlobRef, data: bytes) -> Any:
        self._maybe_fail()
        return await super().create(ref, data)

    async def read(self, ref: BlobRef, max_bytes: int) -> bytes:
        self._maybe_fail()
        return await super().read(ref, max_bytes)


async def test_an_outage_of_the_storage_delays_and_fails_nothing(
    engine: Engine, worker: HandWorker, blob_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload_desk, "STORAGE_PAUSES", (0.0, 0.0))
    job = await create(engine, {})
    engine.desk.store = PayloadStore(Flaky(blob_root, failures=7))
    await report_large(engine, worker, await engine.message(job.job_id), {"echoed_params": {"rows": ROWS}})
    await engine.desk.settled()
    waiting = await node(engine, job.job_id, "second")
    assert (waiting["status"], waiting["waiting_for"]["kind"]) == ("READY", "payload")
    assert (await engine.job(job.job_id)).wake_at is not None
    while (await node(engine, job.job_id, "second"))["status"] == "READY":
        await engine.advance(job.job_id)
        await engine.desk.settled()
    assert (await engine.message(job.job_id)).node_id == "second"


class Stuck(FolderBlobRepository):
    """A storage whose reads take until `released` is set."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked = asyncio.Event()
        self.released = asyncio.Event()

    async def read(self, ref: BlobRef, max_bytes: int) -> bytes:
        self.asked.set()
        await self.released.wait()
        return await super().read(ref, max_bytes)


async def test_no_transaction_waits_for_the_storage(engine: Engine, worker: HandWorker, blob_root: Path) -> None:
    job = await create(engine, {})
    message = await engine.message(job.job_id)
    engine.desk.store = PayloadStore(stuck := Stuck(blob_root))
    await report_large(engine, worker, message, {"echoed_params": {"rows": ROWS}})
    await stuck.asked.wait()
    (row,) = await engine.query(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in trans%%'"
    )
    assert row["count"] == 0
    assert (await node(engine, job.job_id, "first"))["status"] == "COMPLETED"
    stuck.released.set()
    await engine.desk.settled()
    assert (await engine.message(job.job_id)).node_id == "second"


async def test_a_value_is_delivered_although_somebody_held_the_job(engine: Engine, worker: HandWorker) -> None:
    job = await create(engine, {})
    await report_large(engine, worker, await engine.message(job.job_id), {"echoed_params": {"rows": ROWS}})
    async with engine.pool.connection() as holder:
        await holder.execute("SELECT FROM dagapp.dag_jobs FOR UPDATE")
        await await_until(lambda: _is(bool(engine.desk.answers)), "the value is made")
        await holder.rollback()
    await engine.desk.settled()
    assert (await engine.message(job.job_id)).node_id == "second"


async def test_a_maker_that_always_dies_fails_the_node_and_says_so(
    engine: Engine, worker: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(order: Any) -> Any:
        raise MakerDied("exit status -9")

    monkeypatch.setattr(payload_desk, "_ask_process", die)
    monkeypatch.setattr(payload_desk, "STORAGE_PAUSES", (0.0,) * 5)
    job = await create(engine, {})
    await report_large(engine, worker, await engine.message(job.job_id), {"echoed_params": {"rows": ROWS * 5}})
    await engine.desk.settled()
    ended = await engine.job(job.job_id)
    assert ended.error is not None
    assert (ended.error["code"], ended.error["node_id"]) == ("INTERNAL", "second")
    assert "nodes.second.params cannot be made from" in ended.error["message"]


@pytest.mark.parametrize("answer", ["import sys; sys.exit(3)", "print('{}x')"])
async def test_a_process_without_a_readable_answer_died(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str
) -> None:
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec {os.sys.executable} -c "{answer}"\n')  # type: ignore[attr-defined]
    script.chmod(0o755)
    monkeypatch.setattr(payload_desk.sys, "executable", str(script))
    ref = await engine.store.put("payloads/j/values/", encode(["x" * 100] * 20_000, "x"))
    with pytest.raises(MakerDied):
        await engine.desk.make(rendering(ref))


async def test_a_process_that_does_not_end_is_killed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    script.chmod(0o755)
    monkeypatch.setattr(payload_desk.sys, "executable", str(script))
    monkeypatch.setattr(payload_desk, "SECONDS", 0.2)
    ref = await engine.store.put("payloads/j/values/", encode(["x" * 100] * 20_000, "x"))
    with pytest.raises(MakerDied):
        await engine.desk.make(rendering(ref))
    assert not [child for child in psutil.Process().children() if child.name() == "sleep"]


def rendering(ref: PayloadRef, template: Any = "{{ inputs.x | length }}", **fields: Any) -> payload_desk.Rendering:
    return payload_desk.Rendering.model_validate(
        {
            "job_id": "j",
            "path": "value",
            "template": template,
            "scope": {"inputs": {}},
            "large": [{"at": ["inputs", "x"], "ref": ref.model_dump()}],
            **fields,
        }
    )


async def test_the_desk_takes_no_more_than_it_can_remember(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_desk, "MAX_WAITING", 2)
    ref = await engine.store.put("payloads/j/values/", encode("x", "x"))
    engine.desk.want("j", [rendering(ref, f"{{{{ inputs.x }}}}{number}") for number in range(5)])
    assert len(engine.desk._tasks) == 2
    await engine.desk.close()


def _rss() -> int:
    return psutil.Process().memory_info().rss


@pytest.mark.embedded
async def test_megabytes_and_many_items_do_not_grow_this_process(engine: Engine) -> None:
    """Numbers, the worst case: parsed, each takes several times its text.

    A far storage has parts on their way, which come on top: tests/acceptance/test_large_values.py bounds those.
    """
    output = {"numbers": [number + 0.5 for number in range(800_000)]}
    data = encode(output, "output")
    output.clear()
    assert len(data) > 6_000_000
    large = await engine.store.put("payloads/j/values/", data)
    items = await engine.store.put("payloads/j/values/", encode([{"i": n, "x": "y" * 30} for n in range(50_000)], "x"))
    del data
    await engine.desk.make(rendering(items))
    before = _rss()
    whole = await engine.desk.make(rendering(large, {"all": "{{ inputs.x }}"}))
    lines = await engine.desk.make(rendering(items, "{{ inputs.x }}", shape="lines"))
    grown = _rss() - before
    assert whole.ref is not None
    assert whole.ref.size_bytes > 6_000_000
    assert lines.ref is not None
    counts = [len(json.loads(line)) async for line in engine.store.lines(lines.ref)]
    assert (counts, lines.length) == ([500] * 100, 50_000)
    assert grown < 5_000_000, grown


async def test_values_of_jobs_that_are_gone_or_never_came_are_removed_after_a_day(
    engine: Engine, blob_root: Path
) -> None:
    kept = (await create(engine, {"data": {"x": "y" * 100_000}})).job_id
    for job_id in ("young", "old"):
        await engine.store.put(f"payloads/{job_id}/values/", encode("x", "x"))
    for job_id in (kept, "old"):
        os.utime(blob_root / "silver/payloads" / job_id, (0, 0))
    assert await PayloadUpkeep(engine.pool, engine.store).remove_orphans() == 1
    assert set(await engine.store.jobs()) == {kept, "young"}
