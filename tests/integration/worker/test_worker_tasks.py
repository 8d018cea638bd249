"""Tasks through a whole worker: real queue, real subprocesses, a real HTTP peer as orchestrator."""

import os
from pathlib import Path
from typing import Any

import psutil
import pytest
from psycopg import AsyncConnection

from core.errors import Classification
from core.ports import BlobRef, BlobRepository
from core.wire import ClaimOutcome, TaskStatus
from tests.integration.worker.conftest import Dispatcher, task
from tests.integration.worker.running import checkpoints, running
from tests.support.rows import TOKEN, seed_attempt
from tests.support.waiting import await_until

pytestmark = pytest.mark.usefixtures("environment")


def read(path: str) -> str:
    return Path(path).read_text()


async def test_inline_tasks_run_and_their_messages_are_completed(dispatch: Dispatcher) -> None:
    async with running():
        for number in range(100):
            await dispatch(f"job_echo_{number}", "echo", {"n": number, "x": [1.5, None, "ü"]})
        for number in range(100):
            result = await dispatch.result(f"job_echo_{number}")
            assert result.status is TaskStatus.COMPLETED
            assert result.output == {"echoed_params": {"n": number, "x": [1.5, None, "ü"]}}
        await dispatch.empty()
    assert len(dispatch.orchestrator.claims) <= 100


async def test_tasks_that_come_with_an_answer_run_without_a_message_or_a_claim(dispatch: Dispatcher) -> None:
    peer = dispatch.orchestrator
    peer.next = [task(f"job_next_{number}", "echo", {"n": number}) for number in range(100)]
    peer.digests["job_next_7"] = "of something else"
    async with running(worker_credit=40, worker_slots_inline=1):
        await dispatch("job_first_0", "echo")
        for number in range(100):
            result = await dispatch.result(f"job_next_{number}")
            assert result.status is (TaskStatus.FAILED if number == 7 else TaskStatus.COMPLETED)
        await dispatch.result("job_first_0")
    assert [len(call.claims) for call in peer.claims] == [1]
    assert all(0 <= call.free.slots <= 40 for call in peer.exchanges)
    assert max(call.free.slots for call in peer.exchanges) > 1


async def test_tasks_that_came_with_an_answer_keep_no_message_waiting(dispatch: Dispatcher) -> None:
    dispatch.orchestrator.next = [task(f"job_long_{number}", "sleep", {"seconds": 600}) for number in range(4)]
    async with running(worker_credit=8, worker_slots_inline=1):
        await dispatch.until(lambda: not dispatch.orchestrator.next, "they run")
        for number in range(2):
            await dispatch(f"job_short_{number}", "echo")
            await dispatch.result(f"job_short_{number}")


async def test_an_answer_brings_nothing_that_is_not_asked_for(dispatch: Dispatcher) -> None:
    """A task of a kind that needs more than a slot in the event loop is left to its lease; the next ones run."""
    peer = dispatch.orchestrator
    peer.next = [task("job_process_0", "chunk_processor", {"items": [1]})]
    async with running():
        await dispatch("job_a_0", "echo")
        await dispatch.result("job_a_0")
        assert peer.next == []
        await dispatch("job_b_0", "chunk_processor", {"items": [1]})
        await dispatch.result("job_b_0")
    assert set(peer.results) == {"job_a_0", "job_b_0"}


async def test_the_journal_has_one_start_and_one_end_of_every_execution(
    dispatch: Dispatcher, environment: dict[str, str]
) -> None:
    async with running():
        await dispatch("job_a_0", "echo")
        await dispatch("job_b_0", "chunk_processor", {"items": [1]})
        await dispatch.result("job_a_0")
        await dispatch.result("job_b_0")
    lines = read(environment["WORKER_JOURNAL_FILE"]).splitlines()
    assert sorted(lines) == ["job_a_0 finished", "job_a_0 started", "job_b_0 finished", "job_b_0 started"]


async def test_params_outside_the_contract_are_the_callers_error(dispatch: Dispatcher) -> None:
    async with running():
        await dispatch("job_a_0", "sleep", {"seconds": "1"})
        result = await dispatch.result("job_a_0")
    assert result.error is not None
    assert (result.error.code, result.error.field) == ("PARAMETER_INVALID", "seconds")


async def test_params_that_only_a_newer_orchestrator_can_have_let_through_are_left_to_newer_workers(
    dispatch: Dispatcher,
) -> None:
    options = {"crs": "EPSG:4326", "novel": 1}
    async with running():
        await dispatch("job_a_0", "chunk_processor", {"items": [], "unknown": 1})
        await dispatch("job_b_0", "raster.validate", {"source": "bronze/in/a.tif", "options": options})
        first, second = await dispatch.result("job_a_0"), await dispatch.result("job_b_0")
    for result, field in ((first, "params.unknown"), (second, "params.options.novel")):
        assert result.error is not None
        assert (result.error.code, result.error.classification) == ("UNAVAILABLE", Classification.TRANSIENT)
        assert field in result.error.message


async def test_a_refused_claim_completes_the_message_and_runs_nothing(dispatch: Dispatcher) -> None:
    refusals = [
        ClaimOutcome.LEASED,
        ClaimOutcome.SUPERSEDED,
        ClaimOutcome.CANCELLED,
        ClaimOutcome.FINISHED,
        ClaimOutcome.PAUSED,
    ]
    for number, outcome in enumerate(refusals):
        dispatch.orchestrator.outcomes[f"job_a_{number}"] = outcome
        await dispatch(f"job_a_{number}", "echo")
    async with running():
        await dispatch.empty()
    assert dispatch.orchestrator.results == {}
    assert await dispatch.dead() == {}


async def test_an_unknown_claim_is_dead_lettered_with_the_reason(dispatch: Dispatcher) -> None:
    dispatch.orchestrator.outcomes["job_a_0"] = ClaimOutcome.UNKNOWN
    await dispatch("job_a_0", "echo")
    async with running():
        await dispatch.empty()
    assert await dispatch.dead() == {"job_a_0": "test says unknown"}


async def test_a_claim_that_does_not_fit_comes_back_later(dispatch: Dispatcher) -> None:
    dispatch.orchestrator.outcomes["job_a_0"] = ClaimOutcome.NO_FIT
    await dispatch("job_a_0", "echo")
    async with running():
        await dispatch.until(lambda: dispatch.orchestrator.claims, "the claim was asked")
        assert await dispatch.waiting() == ["job_a_0"]
        dispatch.orchestrator.outcomes.clear()
        await dispatch.result("job_a_0")


async def test_a_message_that_was_changed_on_the_way_is_not_started(
    dispatch: Dispatcher, environment: dict[str, str]
) -> None:
    message = await dispatch("job_a_0", "echo", {"x": 1})
    dispatch.orchestrator.dispatched["job_a_0"] = message.model_copy(update={"params": {"x": 2}})
    async with running():
        result = await dispatch.result("job_a_0")
    assert result.error is not None
    assert result.error.classification is Classification.TRANSIENT
    assert read(environment["WORKER_JOURNAL_FILE"]) == ""


async def test_without_an_answer_the_message_is_kept_and_nothing_more_is_received(dispatch: Dispatcher) -> None:
    orchestrator = dispatch.orchestrator
    orchestrator.failing = {"claims": 503, "heartbeats": 503}
    async with running(worker_slots_inline=1) as run:
        await dispatch("job_a_0", "echo")
        await dispatch("job_b_0", "echo")
        status, body = await run.health("readyz")
        assert (status, body) == (503, {"ready": False})
        assert await dispatch.waiting() == ["job_a_0", "job_b_0"]
        orchestrator.failing = {}
        await dispatch.result("job_a_0")
        await dispatch.result("job_b_0")
        await dispatch.empty()
    claim_ids = [claim.claim_id for call in orchestrator.claims for claim in call.claims]
    assert len(claim_ids) == 2


async def test_a_subprocess_task_waits_for_its_slot_while_inline_tasks_go_on(dispatch: Dispatcher) -> None:
    async with running():
        await dispatch("job_a_0", "wait_for_cancel")
        await dispatch.until(lambda: dispatch.orchestrator.claims, "the first task is claimed")
        await dispatch("job_b_0", "chunk_processor", {"items": [1]})
        await dispatch("job_c_0", "echo")
        await dispatch.result("job_c_0")
        await await_until(lambda: only_waits(dispatch, "job_b_0"), "one waits for its slot")
        dispatch.orchestrator.revoked["job_a_0"] = "cancelled"
        await dispatch.result("job_b_0")


async def only_waits(dispatch: Dispatcher, task_id: str) -> bool:
    return await dispatch.waiting() == [task_id]


async def test_the_last_free_slot_can_be_claimed(dispatch: Dispatcher) -> None:
    async with running(worker_slots_inline=1):
        await dispatch("job_a_0", "wait_for_cancel")
        await dispatch.until(lambda: dispatch.orchestrator.claims, "the only subprocess is busy")
        for number in range(3):
            await dispatch(f"job_b_{number}", "echo")
            await dispatch.result(f"job_b_{number}")
    assert [call.free.slots for call in dispatch.orchestrator.claims] == [2, 1, 1, 1]


async def test_a_revoked_task_is_killed_reports_nothing_and_its_end_is_told_once(dispatch: Dispatcher) -> None:
    orchestrator = dispatch.orchestrator
    async with running() as run:
        await dispatch("job_a_0", "hang")
        saved = await dispatch.until(lambda: checkpoints(orchestrator), "the checkpoint went out with a beat")
        orchestrator.revoked["job_a_0"] = "job cancelled"
        await dispatch.until(lambda: not psutil.pid_exists(saved["job_a_0"]["state"]["pid"]), "the process is gone")
        await dispatch("job_b_0", "look_around", {"value": 1})
        await dispatch.result("job_b_0")
        _, health = await run.health()
        assert health["free_slots"] == {"inline": 64, "subprocess": 1}
        await dispatch.until(orchestrator.released, "the worker says that the task has stopped")
    assert "job_a_0" not in orchestrator.results
    assert [(one.task_id, one.checkpoint) for call in orchestrator.releases for one in call.releases] == [
        ("job_a_0", None)
    ]


async def test_the_end_of_a_revoked_task_is_told_again_until_it_is_heard(dispatch: Dispatcher) -> None:
    orchestrator = dispatch.orchestrator
    orchestrator.failing["releases"] = 503
    async with running() as run:
        await dispatch("job_a_0", "sleep", {"seconds": 600})
        await dispatch.until(lambda: orchestrator.claims, "claimed")
        orchestrator.revoked["job_a_0"] = "job cancelled"

        async def idle() -> bool:
            return (await run.health())[1]["running"] == []

        await await_until(idle, "the task has stopped")
        beats = len(orchestrator.beats)
        await dispatch.until(lambda: len(orchestrator.beats) > beats + 1, "it is told in vain")
        orchestrator.failing.clear()
        await dispatch.until(orchestrator.released, "it is heard")


async def test_a_revoked_inline_task_is_cancelled(dispatch: Dispatcher) -> None:
    async with running() as run:
        await dispatch("job_a_0", "sleep", {"seconds": 600})
        dispatch.orchestrator.revoked["job_a_0"] = "overtaken"

        async def idle() -> bool:
            return (await run.health())[1]["running"] == [] and bool(dispatch.orchestrator.claims)

        await dispatch.until(lambda: dispatch.orchestrator.claims, "claimed")
        await await_until(idle, "the slot is free again")
    assert dispatch.orchestrator.results == {}


@pytest.mark.parametrize("handler", ["hang", "sleep", "inline.stubborn"])
async def test_a_task_beyond_its_time_is_stopped_and_reported(dispatch: Dispatcher, handler: str) -> None:
    async with running():
        await dispatch("job_a_0", handler, {"seconds": 600} if handler == "sleep" else {}, timeout_seconds=1)
        result = await dispatch.result("job_a_0")
    assert result.error is not None
    assert (result.error.code, result.error.classification) == ("TASK_TIMEOUT", Classification.TRANSIENT)


async def test_memory_of_a_task_is_limited_and_its_peak_reported(dispatch: Dispatcher) -> None:
    async with running(worker_task_memory_bytes=300 << 20):
        await dispatch("job_a_0", "allocate", {"size_bytes": 500 << 20})
        await dispatch("job_b_0", "allocate", {"size_bytes": 100 << 20})
        too_much, fits = await dispatch.result("job_a_0"), await dispatch.result("job_b_0")
    assert too_much.error is not None
    assert too_much.error.code == "TASK_OUT_OF_MEMORY"
    assert fits.status is TaskStatus.COMPLETED
    assert fits.peak_rss_bytes is not None
    assert fits.peak_rss_bytes > 100 << 20


async def test_a_subprocess_that_is_killed_fails_transiently_naming_the_signal(dispatch: Dispatcher) -> None:
    async with running():
        await dispatch("job_a_0", "kill_itself", {"signal": "SIGSEGV"})
        result = await dispatch.result("job_a_0")
    assert result.error is not None
    assert (result.error.code, result.error.classification) == ("INTERNAL", Classification.TRANSIENT)
    assert "SIGSEGV" in result.error.message


async def test_scratch_is_removed_after_every_task_and_leftovers_at_the_start(
    dispatch: Dispatcher, environment: dict[str, str]
) -> None:
    leftover = Path(environment["WORKER_SCRATCH_DIR"]) / "old_task_1" / "out"
    leftover.mkdir(parents=True)
    async with running():
        assert not leftover.parent.exists()
        await dispatch("job_a_0", "litter")
        result = await dispatch.result("job_a_0")
        assert result.output is not None
        assert os.listdir(environment["WORKER_SCRATCH_DIR"]) == [".lock"]


async def test_a_staged_blob_goes_in_and_an_uploaded_file_comes_out_under_the_attempts_name(
    dispatch: Dispatcher, environment: dict[str, str], tmp_path: Path, blobs: BlobRepository
) -> None:
    (tmp_path / "in").write_bytes(b"abc")
    await blobs.upload(tmp_path / "in", BlobRef("bronze", "in/a"))
    params = {"source": "bronze/in/a", "file": "a.bin", "output_prefix": "silver/asset/0/r1"}
    async with running():
        await dispatch("job_a_0", "write_file", params)
        result = await dispatch.result("job_a_0")
    assert result.output == {"blob_path": "silver/asset/0/r1/job_a_0/a.bin"}
    assert [finding.code for finding in result.findings] == ["DOUBLED"]
    assert result.metrics["blocks"] == 2
    stored = await blobs.stage(BlobRef("silver", "asset/0/r1/job_a_0/a.bin"), tmp_path)
    assert read(str(stored)) == "abcabc"


async def test_a_missing_source_is_file_not_found(dispatch: Dispatcher) -> None:
    params = {"source": "bronze/missing", "file": "a.bin", "output_prefix": "silver/x"}
    async with running():
        await dispatch("job_a_0", "write_file", params)
        result = await dispatch.result("job_a_0")
    assert result.error is not None
    assert (result.error.code, result.error.user_fixable) == ("FILE_NOT_FOUND", True)


@pytest.mark.parametrize("file", ["../../x", "/etc/passwd", "missing", "a.bin/..", ".hidden"])
async def test_a_handler_cannot_have_foreign_files_uploaded(
    dispatch: Dispatcher, tmp_path: Path, environment: dict[str, str], file: str, blobs: BlobRepository
) -> None:
    (tmp_path / "in").write_bytes(b"abc")
    await blobs.upload(tmp_path / "in", BlobRef("bronze", "in"))
    async with running():
        await dispatch("job_a_0", "write_file", {"source": "bronze/in", "file": file, "output_prefix": "silver/x"})
        await dispatch("job_b_0", "link_out", {"output_prefix": "silver/x"})
        results = [await dispatch.result("job_a_0"), await dispatch.result("job_b_0")]
    assert [result.error and result.error.code for result in results] == ["INTERNAL", "INTERNAL"]
    assert await blobs.delete_prefix("silver", "x") == 0


async def test_no_file_is_written_among_the_stored_values(
    dispatch: Dispatcher, tmp_path: Path, environment: dict[str, str], blobs: BlobRepository
) -> None:
    (tmp_path / "in").write_bytes(b"abc")
    await blobs.upload(tmp_path / "in", BlobRef("bronze", "in"))
    params = {"source": "bronze/in", "file": "a.bin", "output_prefix": "silver/payloads/other/values"}
    async with running():
        await dispatch("job_a_0", "write_file", params)
        result = await dispatch.result("job_a_0")
    assert result.error is not None
    assert result.error.field == "output_prefix"
    assert await blobs.delete_prefix("silver", "payloads") == 0


async def test_an_output_that_breaks_its_contract_fails_naming_the_path(dispatch: Dispatcher) -> None:
    async with running():
        await dispatch("job_a_0", "answer", {"what": "nan"})
        result = await dispatch.result("job_a_0")
    assert result.error is not None
    assert "output.deep[0].bad is nan" in result.error.message


@pytest.mark.parametrize("what", ["nan", "inf", "nul", "huge", "set"])
async def test_an_inline_output_that_is_no_json_fails_naming_the_path(dispatch: Dispatcher, what: str) -> None:
    async with running():
        await dispatch("job_a_0", "inline.answer", {"what": what})
        result = await dispatch.result("job_a_0")
    assert result.error is not None
    assert (result.status, result.error.field) == (TaskStatus.FAILED, "output.mean")
    assert result.error.classification is Classification.PERMANENT


@pytest.mark.parametrize("what", ["nan", "-inf"])
async def test_a_number_that_only_the_contract_makes_of_an_output_is_no_null_when_json_has_no_word_for_it(
    dispatch: Dispatcher, what: str
) -> None:
    async with running():
        await dispatch("job_a_0", "inline.numbers", {"what": "0.5"})
        await dispatch("job_b_0", "inline.numbers", {"what": what})
        good, bad = await dispatch.result("job_a_0"), await dispatch.result("job_b_0")
    assert (good.status, good.output) == (TaskStatus.COMPLETED, {"ratio": 0.5})
    assert (bad.status, bad.output) == (TaskStatus.FAILED, None)


async def test_a_finding_that_is_no_json_fails_its_own_task(dispatch: Dispatcher) -> None:
    async with running():
        await dispatch("job_a_0", "inline.find")
        await dispatch("job_b_0", "echo", {"n": 1})
        found, other = await dispatch.result("job_a_0"), await dispatch.result("job_b_0")
    assert found.error is not None
    assert (found.status, found.error.field) == (TaskStatus.FAILED, "findings.from")
    assert other.status is TaskStatus.COMPLETED


async def test_a_handler_that_calls_its_deadline_an_error_of_its_own_has_timed_out(dispatch: Dispatcher) -> None:
    async with running():
        await dispatch("job_a_0", "inline.cleanup", timeout_seconds=1)
        result = await dispatch.result("job_a_0")
    assert result.error is not None
    assert (result.error.code, result.error.classification) == ("TASK_TIMEOUT", Classification.TRANSIENT)


async def test_a_handlers_transaction_commits_only_while_its_attempt_is_leased(
    dispatch: Dispatcher, conn: AsyncConnection[Any]
) -> None:
    seeded = await seed_attempt(conn, "leased", "job")
    expired = await seed_attempt(conn, "expired", "gone")
    async with running():
        await dispatch(seeded.task_id, "inline.write", token=TOKEN)
        await dispatch(expired.task_id, "inline.write", token=TOKEN)
        held, lost = await dispatch.result(seeded.task_id), await dispatch.result(expired.task_id)
    assert held.output == {"user": "geodag_worker"}
    assert lost.error is not None
    assert lost.error.code == "FENCE_LOST"


async def test_tasks_come_to_slots_that_stand_open(dispatch: Dispatcher) -> None:
    """Nothing was received or reported before; half of the credit stands open, the slots are the queue's."""
    peer = dispatch.orchestrator
    peer.next = [task(f"job_open_{number}", "echo") for number in range(20)]
    async with running(worker_credit=16):
        for number in range(20):
            await dispatch.result(f"job_open_{number}")
        await dispatch("job_first_0", "echo")
        await dispatch.result("job_first_0")
    waits = [call for call in peer.exchanges if not call.results]
    assert {call.free.slots for call in waits} <= set(range(1, 9))
    assert {call.wait_seconds for call in waits} == {20.0}
    assert [len(call.claims) for call in peer.claims] == [1]
