import json
from typing import Any

import pytest

from core.dag.aggregate import Aggregate, Incomplete, aggregated
from core.dag.chores import Gathering
from core.dag.json_values import as_stored
from core.dag.nodes import Aggregation
from core.dag.rendering import Rendered
from core.errors import ErrorDetail
from core.payloads import LIMIT_BYTES, PayloadRef
from core.statuses import JobStatus, NodeStatus, SkipReason
from tests.unit.core.dag.fan_outs import workflow_with
from tests.unit.core.dag.harness import World, workflow_of

OUTPUTS: list[dict[str, Any]] = [{"a": [1, 2], "n": 1, "b": True}, {"a": [[3]], "n": 2.5}, {"n": -1, "t": "x"}]


def joined(aggregation: str, outputs: list[dict[str, Any]], failing: int = 0) -> World:
    """Return a world whose items ended with these outputs, the last first, and whose first items failed."""
    workflow = workflow_with({"tolerate": {"percent": 100}}, {"aggregation": aggregation})
    world = World(workflow, {"items": list(range(failing + len(outputs)))})
    for number in reversed(range(len(outputs))):
        world.complete(f"many__{failing + number}", output=outputs[number])
    for number in range(failing):
        world.fail(f"many__{number}")
    return world


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("collect", {"results": OUTPUTS, "count": 3}),
        ("concat", {"results": [1, 2, [3]], "count": 3}),
        ("sum", {"total": 2.5, "count": 3}),
        ("count", {"count": 3}),
        ("first", {"result": OUTPUTS[0], "count": 3}),
        ("last", {"result": OUTPUTS[2], "count": 3}),
    ],
)
def test_each_aggregation_has_its_output_in_item_order_and_says_what_became_of_the_items(
    aggregation: str, expected: dict[str, Any]
) -> None:
    world = joined(aggregation, OUTPUTS, failing=1)
    output = world.node("join").output
    failure = {"index": 0, "error": {"code": "BROKEN", "message": "it broke", "classification": "permanent"}}
    assert output == {**expected, "succeeded": 3, "failed": 1, "skipped": 0, "failures": [failure]}
    assert world.job.status is JobStatus.COMPLETED


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [("collect", {"results": []}), ("concat", {"results": []}), ("sum", {"total": 0}), ("count", {}),
     ("first", {"result": None}), ("last", {"result": None})],
)  # fmt: skip
@pytest.mark.parametrize("failing", [0, 1])
def test_without_any_output_there_is_a_value_all_the_same(
    aggregation: str, expected: dict[str, Any], failing: int
) -> None:
    output = joined(aggregation, [], failing).node("join").output
    assert {name: output[name] for name in expected} == expected
    assert (output["count"], output["failed"]) == (0, failing)


def test_integers_stay_exact() -> None:
    assert joined("sum", [{"n": 2**60}, {"n": 1}]).node("join").output["total"] == 2**60 + 1


@pytest.mark.parametrize(
    "numbers",
    [
        (10**400, 0.5),
        (0.5, 10**400),
        (int(1e308), int(1e308), 0.5),
        (10**1232,) * 99,
    ],
)
@pytest.mark.parametrize("apart", [True, False])
def test_a_sum_that_is_no_number_any_more_fails_the_node(numbers: tuple[int | float, ...], apart: bool) -> None:
    one = {str(place): number for place, number in enumerate(numbers)}
    world = joined("sum", [{"n": number} for number in numbers] if apart else [one])
    assert world.node("join").error["code"] == "NOT_JSON"
    assert "total" in world.node("join").error["message"]
    assert world.job.status is JobStatus.FAILED


@pytest.mark.parametrize("numbers", [(1.7e308, 1.7e308), (1e16, 1, -1e16), (1e16, 0.5)])
def test_sums_are_of_numbers_as_they_are_stored(numbers: tuple[int | float, ...]) -> None:
    world = joined("sum", [{"n": number} for number in numbers])
    assert repr(world.node("join").output["total"]) == repr(as_stored(sum(as_stored(one, "n") for one in numbers), "n"))


def test_the_outputs_must_be_those_of_all_items_that_succeeded() -> None:
    fan_out = joined("collect", OUTPUTS).fan_out("many")
    with pytest.raises(Incomplete, match="2 outputs of 3 items"):
        aggregated(Aggregation.COLLECT, fan_out, OUTPUTS[:2])


@pytest.mark.parametrize("aggregation", ["collect", "first", "last", "count"])
def test_outputs_may_come_as_json_where_nobody_has_to_read_them(aggregation: str) -> None:
    kind = Aggregation(aggregation)
    fan_out = joined(aggregation, OUTPUTS).fan_out("many")
    aggregate = Aggregate(kind, fan_out)
    assert aggregate.takes_json
    parts = [aggregate.head(), *(aggregate.add_json(json.dumps(output).encode()) for output in OUTPUTS)]
    assert json.loads(b"".join([*parts, aggregate.tail()])) == json.loads(aggregated(kind, fan_out, OUTPUTS))


def large_join() -> tuple[World, Gathering]:
    """Return a world whose fan_in is too large for a row, and what it asks for."""
    world = joined("collect", [{"t": "x" * (LIMIT_BYTES // 2)} for _ in range(3)])
    (chore,) = world.decisions[-1].chores
    assert isinstance(chore, Gathering)
    return world, chore


def test_a_large_aggregate_is_asked_for_until_it_is_there() -> None:
    world, chore = large_join()
    assert world.node("join").status is NodeStatus.RUNNING
    assert world.job.wake_at is not None
    assert (chore.aggregation, chore.fan_out.succeeded) == (Aggregation.COLLECT, 3)
    assert world.wake().chores == (chore,)
    ref = PayloadRef(blob="payloads/job1/x", size_bytes=70_000, sha256="0" * 64)
    world.answer(chore.key, Rendered(ref=ref))
    assert world.node("join").output_ref == ref.model_dump()
    assert world.job.status is JobStatus.COMPLETED


def test_an_aggregate_that_turns_out_small_lies_in_the_row() -> None:
    world, chore = large_join()
    world.answer(chore.key, Rendered(value={"count": 3}))
    assert world.node("join").output == {"count": 3}


def test_an_aggregate_that_cannot_be_made_fails_the_node() -> None:
    world, chore = large_join()
    world.answer(chore.key, Rendered(error=ErrorDetail(code="VALUE_TOO_LARGE", message="m")))
    assert world.job.error["code"] == "VALUE_TOO_LARGE"
    assert world.job.error["node_id"] == "join"


def test_children_that_are_not_loaded_are_asked_for_and_not_left_out() -> None:
    world = joined("collect", OUTPUTS[:2])
    world.set_node("join", status=NodeStatus.READY, output=None)
    world.set_job(status=JobStatus.RUNNING)
    world.state = world.without_children("many__0")
    (chore,) = world.advance().chores
    assert chore.key == "gather:job1:1:join"


def test_a_fan_out_that_never_began_gives_an_empty_value() -> None:
    nodes = {
        "start": {"type": "start", "next": ["many", "other"]},
        "other": {"type": "start", "next": ["join"]},
        "many": {"type": "fan_out", "source": "{{ nodes.start.output }}", "task": {"handler": "echo"}},
        "join": {"type": "fan_in", "depends_on": {"all_done": ["many"]}},
        "end": {"type": "end", "depends_on": {"all_of": ["join"]}},
    }
    world = World(workflow_of(nodes))
    assert world.node("many").status is NodeStatus.FAILED
    assert world.node("join").output == {
        "results": [], "count": 0, "succeeded": 0, "failed": 0, "skipped": 0, "failures": []
    }  # fmt: skip


def test_a_fan_in_after_a_fan_out_that_failed_is_skipped() -> None:
    workflow = workflow_with({})
    world = World(workflow, {"items": [1]})
    world.fail("many__0")
    assert world.node("join").skip_reason is SkipReason.UPSTREAM_FAILED
