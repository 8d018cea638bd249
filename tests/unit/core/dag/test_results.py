from typing import Any

import pytest

from core.models.engine import TaskResultRow
from core.statuses import AttemptState, JobStatus, NodeStatus
from tests.unit.core.dag.harness import START, World, one_task, retrying


def row_of(world: World, **fields: Any) -> TaskResultRow:
    base = {"task_id": "job1_a_0", "job_id": "job1", "node_id": "a", "attempt": 0, "reported_at": START}
    return TaskResultRow.model_validate({**base, "status": "completed", "output": {}, **fields})


def disposition_of(world: World, row: TaskResultRow) -> tuple[str, str | None]:
    world.put(row)
    (disposition,) = world.advance().dispositions
    return disposition.disposition, disposition.reason


def test_a_result_of_an_older_attempt_is_superseded() -> None:
    world = retrying()
    world.fail("a", "transient")
    world.tick(10)
    assert world.node("a").task_id == "job1_a_1"
    before = world.state.nodes
    assert disposition_of(world, row_of(world)) == ("superseded", "the current attempt is 1")
    assert world.state.nodes == before


def test_a_result_that_comes_while_the_node_waits_for_its_retry_is_superseded() -> None:
    world = retrying()
    world.claim("a")
    world.tick(21)
    assert world.node("a").losses_used == 1
    world = retrying()
    world.fail("a", "transient")
    assert disposition_of(world, row_of(world)) == ("superseded", "the node is WAITING")


def test_a_result_of_an_expired_attempt_is_superseded() -> None:
    world = one_task()
    world.claim("a")
    world.set_attempt("a", state=AttemptState.EXPIRED)
    assert disposition_of(world, row_of(world)) == ("superseded", "the attempt is expired")
    assert world.node("a").task_id == "job1_a_1"


def test_a_result_of_a_finished_job_is_superseded_and_changes_nothing() -> None:
    world = one_task()
    world.complete("a")
    before = (world.job, world.state.nodes)
    world.put(row_of(world, status="failed"))
    decision = world.advance()
    assert decision.dispositions[0].disposition == "superseded"
    assert (decision.job, decision.nodes, decision.events) == (None, (), ())
    assert (world.job.model_copy(update={"version": before[0].version}), world.state.nodes) == before


@pytest.mark.parametrize("field", [{"node_id": "ghost"}, {"node_id": "end"}, {"job_id": "other"}])
def test_a_result_that_belongs_nowhere_is_poison_and_blocks_nobody(field: dict[str, str]) -> None:
    world = one_task()
    world.put(row_of(world, task_id="odd", **field))
    world.claim("a")
    world.report("a")
    assert [item.disposition for item in world.decisions[-1].dispositions] == ["poison", "applied"]
    assert world.job.status is JobStatus.COMPLETED


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"output": None}, "not a JSON object"),
        ({"output": {"x": float("nan")}}, "output.x is nan"),
        ({"output": {"x": ["a\x00"]}}, r"output.x\[0\] contains"),
        ({"status": "exploded"}, "status 'exploded'"),
        ({"status": "failed", "error": None}, "cannot be read"),
        ({"status": "failed", "error": {"code": "X"}}, "cannot be read"),
        ({"status": "failed", "error": {"code": "X", "message": "m", "extra": 1}}, "cannot be read"),
    ],
)
def test_a_malformed_result_of_the_current_attempt_is_poison_and_fails_its_node(
    fields: dict[str, Any], words: str
) -> None:
    world = retrying(max_retries=9)
    world.claim("a")
    world.set_attempt("a", state=AttemptState.REPORTED)
    disposition, reason = disposition_of(world, row_of(world, **fields))
    assert disposition == "poison"
    assert world.node("a").status is NodeStatus.FAILED
    assert world.job.error is not None
    assert world.job.error["code"] == "RESULT_INVALID"
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(reason)
