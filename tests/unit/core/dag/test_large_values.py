"""Large values in the evaluator: what they hold up, who makes them, and that the answer fits or is not used."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from core.dag.commands import direct_command
from core.dag.evaluator import advance
from core.dag.rendering import LINE_ITEMS, LargeValue, Rendered, Rendering, Shape, perform
from core.dag.run import Run
from core.dag.scope import scope_of
from core.dag.state import Decision
from core.dag.templates import compile_value
from core.dag.values import Ask, Needed, value_of
from core.ids import digest
from core.payloads import PayloadLost, PayloadRef, decode, encode, missing, ref_to, task_prefix, value_prefix
from core.statuses import JobStatus, NodeStatus
from tests.unit.core.dag.harness import START, World, chain, workflow_of

BIG = {"rows": ["x" * 1000] * 100, "count": 100}


class BlobWorld(World):
    """A world whose large values lie in a dictionary."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        self.blobs: dict[str, bytes] = {}
        super().__init__(*args, **fields)

    def keep(self, data: bytes) -> PayloadRef:
        ref = ref_to(value_prefix(self.job.job_id), data)
        self.blobs[ref.blob] = data
        return ref

    def load(self, ref: PayloadRef) -> Any:
        if ref.blob not in self.blobs:
            raise missing(ref)
        return decode(ref, self.blobs[ref.blob])

    def complete_large(self, node_id: str, output: Any) -> Decision:
        data = encode(output, "output")
        ref = ref_to(task_prefix("job1", f"job1_{node_id}_0"), data)
        self.blobs[ref.blob] = data
        self.claim(node_id)
        decision = self.report(node_id, output=None, output_ref=ref.model_dump())
        assert decision is not None
        return decision

    def answer(self) -> Decision:
        """Make what the last decision needs, and evaluate again."""
        made = {one.key: perform(one, self.load, self.keep) for one in self.decisions[-1].needs}
        assert made
        self.state = replace(self.state, rendered=made)
        return self.advance()


def two_tasks(params: Mapping[str, Any], **fields: Any) -> BlobWorld:
    nodes = chain("a", "b")
    nodes["b"]["params"] = dict(params)
    return BlobWorld(workflow_of(nodes, **fields))


def test_what_is_small_behind_a_reference_is_read_for_the_node_that_wants_it() -> None:
    world = two_tasks({"n": "{{ nodes.a.output.count }}", "text": "{{ nodes.a.output.rows | length }} rows"})
    decision = world.complete_large("a", BIG)
    assert world.node("a").output is None
    assert world.node("b").status is NodeStatus.READY
    assert world.node("b").waiting_for == {
        "kind": "payload",
        "detail": {"value": "nodes.b.params", "reads": [world.node("a").output_ref["blob"]]},  # type: ignore[index]
    }
    assert world.job.status is JobStatus.RUNNING
    assert [need.path for need in decision.needs] == ["nodes.b.params"]
    (dispatch,) = world.answer().dispatches
    assert dispatch.params == {"n": 100, "text": "100 rows"}
    assert (dispatch.params_ref, world.node("b").waiting_for) == (None, None)


def test_an_unanswered_need_changes_nothing_more_and_is_asked_again() -> None:
    world = two_tasks({"n": "{{ nodes.a.output.count }}"})
    first = world.complete_large("a", BIG)
    again = advance(world.workflow, world.state, world.now)
    assert again.needs == first.needs
    assert (again.job, again.nodes, again.events) == (None, (), ())
    assert world.job.wake_at is not None
    assert world.tick(5).needs == first.needs


def test_only_the_status_of_a_node_needs_no_blob() -> None:
    world = two_tasks({"s": "{{ nodes.a.output.count is defined }}"})
    world.complete_large("a", BIG)
    (dispatch,) = world.answer().dispatches
    assert dispatch.params == {"s": True}
    plain = two_tasks({"s": "{{ nodes.a.status }}"})
    (dispatch,) = plain.complete_large("a", BIG).dispatches
    assert dispatch.params == {"s": "COMPLETED"}


def test_large_params_become_a_reference_with_the_digest_of_their_value() -> None:
    world = two_tasks({"all": "{{ nodes.a.output }}"})
    world.complete_large("a", BIG)
    (dispatch,) = world.answer().dispatches
    assert dispatch.params_ref is not None
    assert dispatch.params == {}
    assert world.load(dispatch.params_ref) == {"all": BIG}
    assert world.attempt("b").params_digest == dispatch.params_digest == digest({"all": BIG})
    node = world.node("b")
    assert (node.input_params, node.input_ref) == (None, dispatch.params_ref.model_dump())


def test_small_values_that_make_large_params_are_stored_before_they_are_dispatched() -> None:
    inputs = {"x": {"default": "x" * 40_000}}
    nodes = chain("a", params={"one": "{{ inputs.x }}", "two": ["{{ inputs.x }}", "{{ job.job_id }}"]})
    world = BlobWorld(workflow_of(nodes, inputs=inputs))
    (need,) = world.decisions[-1].needs
    assert need.large == ()
    (dispatch,) = world.answer().dispatches
    assert dispatch.params_ref is not None
    assert world.load(dispatch.params_ref) == {"one": "x" * 40_000, "two": ["x" * 40_000, "job1"]}


def test_an_override_lies_over_the_params_and_is_never_rendered() -> None:
    world = two_tasks({"n": "{{ nodes.a.output.values }}", "kept": "{{ nodes.a.output.count }}"})
    world.set_node("b", params_override={"n": "{{ inputs.x }}"})
    world.complete_large("a", BIG)
    (dispatch,) = world.answer().dispatches
    assert dispatch.params == {"n": "{{ inputs.x }}", "kept": BIG["count"]}


def test_a_large_override_of_a_fan_out_is_put_over_the_params_of_each_item() -> None:
    nodes = {
        "start": {"type": "start", "next": ["many"]},
        "many": {
            "type": "fan_out",
            "source": "{{ [1, 2] }}",
            "task": {"handler": "echo", "params": {"v": "{{ item.nope }}", "n": "{{ index }}"}},
        },
        "end": {"type": "end", "depends_on": {"all_of": ["many"]}},
    }
    world = BlobWorld(workflow_of(nodes))
    assert world.job.status is JobStatus.FAILED
    args = {"node_id": "many", "params": {"v": BIG}}
    world.state = replace(world.state, commands=(direct_command("job1", world.now, "rerun", args, actor="me"),))
    world.advance()
    refs = [one.params_ref for _ in range(2) for one in world.answer().dispatches]
    assert [world.load(ref) for ref in refs if ref] == [{"v": BIG, "n": 0}, {"v": BIG, "n": 1}]


def test_a_large_value_that_an_override_stands_for_is_not_read() -> None:
    world = two_tasks({"n": "{{ nodes.a.output.count }}", "kept": 1})
    world.set_node("b", params_override={"n": 5})
    world.complete_large("a", BIG)
    (dispatch,) = world.decisions[-1].dispatches
    assert dispatch.params == {"n": 5, "kept": 1}


def test_an_answer_to_other_values_is_not_used() -> None:
    world = two_tasks({"n": "{{ nodes.a.output.count }}"})
    world.complete_large("a", BIG)
    made = {one.key: perform(one, world.load, world.keep) for one in world.decisions[-1].needs}
    world.set_node("b", params_override={"m": 1})
    world.state = replace(world.state, rendered=made)
    decision = world.advance()
    assert not decision.dispatches
    assert [need.key in made for need in decision.needs] == [False]


@pytest.mark.parametrize(("code", "change"), [("PAYLOAD_MISSING", None), ("PAYLOAD_CORRUPT", b"{}")])
def test_a_lost_value_fails_the_node_that_reads_it(code: str, change: bytes | None) -> None:
    world = two_tasks({"n": "{{ nodes.a.output.count }}"})
    world.complete_large("a", BIG)
    (blob,) = world.blobs
    if change is None:
        del world.blobs[blob]
    else:
        world.blobs[blob] = change
    world.answer()
    assert world.node("b").status is NodeStatus.FAILED
    assert world.job.error is not None
    assert (world.job.error["code"], world.job.error["field"]) == (code, blob)
    assert world.job.error["node_id"] == "b"


def test_a_template_error_behind_a_reference_names_the_path() -> None:
    world = two_tasks({"n": "{{ nodes.a.output.nothing.below }}"})
    world.complete_large("a", BIG)
    world.answer()
    assert world.job.error is not None
    assert world.job.error["code"] == "TEMPLATE_ERROR"
    assert "nodes.a.output.nothing.below is not there" in world.job.error["message"]


def test_params_that_do_not_fit_the_handler_fail_also_behind_a_reference() -> None:
    nodes = chain("a", "b")
    nodes["b"] |= {"handler": "sleep", "params": {"seconds": "{{ nodes.a.output.rows }}"}}
    world = BlobWorld(workflow_of(nodes))
    world.complete_large("a", BIG)
    world.answer()
    assert world.job.error is not None
    assert (world.job.error["code"], world.job.error["field"]) == ("PARAMETER_INVALID", "params.seconds")


def test_large_outputs_end_the_job_once_they_are_stored() -> None:
    world = two_tasks({}, outputs={"all": "{{ nodes.a.output }}", "n": "{{ nodes.a.output.count }}"})
    world.complete_large("a", BIG)
    world.complete("b")
    assert world.job.status is JobStatus.RUNNING
    assert set(world.statuses().values()) == {"COMPLETED"}
    decision = world.answer()
    assert world.job.status is JobStatus.COMPLETED
    assert world.job.outputs is None
    assert world.load(PayloadRef.model_validate(world.job.outputs_ref)) == {"all": BIG, "n": 100}
    assert decision.outputs == {"all": BIG, "n": 100}


def test_small_outputs_of_large_values_stay_in_the_row() -> None:
    world = two_tasks({}, outputs={"n": "{{ nodes.a.output.count }}"})
    world.complete_large("a", BIG)
    world.complete("b")
    decision = world.answer()
    assert (world.job.outputs, world.job.outputs_ref) == ({"n": 100}, None)
    assert decision.outputs == {"n": 100}


def test_lost_outputs_fail_the_job() -> None:
    world = two_tasks({}, outputs={"n": "{{ nodes.a.output.count }}"})
    world.complete_large("a", BIG)
    world.complete("b")
    world.blobs.clear()
    world.answer()
    assert world.job.error is not None
    assert world.job.error["code"] == "PAYLOAD_MISSING"
    assert "the declared outputs have no value" in world.job.error["message"]


def test_the_deadline_ends_a_job_that_waits_for_a_value() -> None:
    world = two_tasks({"n": "{{ nodes.a.output.count }}"}, deadline_seconds=60)
    world.set_job(deadline_at=START.replace(minute=1))
    world.complete_large("a", BIG)
    world.tick(60)
    assert world.job.error is not None
    assert world.job.error["code"] == "JOB_DEADLINE"


def test_a_paused_job_asks_for_nothing() -> None:
    world = two_tasks({"n": "{{ nodes.a.output.count }}"})
    world.set_job(paused_at=START)
    assert world.complete_large("a", BIG).needs == ()


def large_input() -> BlobWorld:
    workflow = workflow_of(
        chain("a", params={"n": "{{ inputs.tiles | length }}", "b": "{{ inputs.b }}"}),
        inputs={"tiles": {"default": []}, "b": {"default": 2}},
    )
    data = encode(list(range(20_000)), "inputs.tiles")
    ref = ref_to(value_prefix("job1"), data)
    world = BlobWorld(workflow, input_refs={"tiles": ref.model_dump()})
    world.blobs[ref.blob] = data
    return world


def test_a_large_input_is_read_where_a_template_looks_at_it() -> None:
    world = large_input()
    (need,) = world.decisions[-1].needs
    assert need.large[0].at == ("inputs", "tiles")
    assert need.scope == {"inputs": {"tiles": [], "b": 2}}
    (dispatch,) = world.answer().dispatches
    assert dispatch.params == {"n": 20_000, "b": 2}


def ask(world: World, template: Any, **fields: Any) -> Rendered:
    """Return the value of a template, asked as the evaluator does."""

    run = Run(world.workflow, world.state, world.now, {})
    return value_of(run, Ask("value", template, compile_value(template), **fields))


def test_a_list_becomes_lines_of_500_items() -> None:
    world = two_tasks({})
    rows = [{"i": number, "x": "x" * 50} for number in range(1201)]
    world.complete_large("a", {"rows": rows})
    with pytest.raises(Needed) as caught:
        ask(world, "{{ nodes.a.output.rows }}", shape=Shape.LINES)
    answer = perform(caught.value.rendering, world.load, world.keep)
    assert answer.ref is not None
    lines = [json.loads(line) for line in world.blobs[answer.ref.blob].split(b"\n")]
    assert [len(line) for line in lines] == [LINE_ITEMS, LINE_ITEMS, 201]
    assert ([item for line in lines for item in line], answer.length) == (rows, 1201)
    assert answer.digest == digest(rows)


def test_a_mapping_is_split_into_what_stays_and_what_is_large() -> None:
    world = two_tasks({})
    world.complete_large("a", BIG)
    with pytest.raises(Needed) as caught:
        ask(world, {"rows": "{{ nodes.a.output.rows }}", "n": "{{ nodes.a.output.count }}"}, shape=Shape.SPLIT)
    answer = perform(caught.value.rendering, world.load, world.keep)
    assert answer.value == {"n": 100}
    assert {name: world.load(ref) for name, ref in answer.refs.items()} == {"rows": BIG["rows"]}


@pytest.mark.parametrize("shape", [Shape.LINES, Shape.SPLIT])
def test_what_has_another_type_than_its_shape_is_refused(shape: Shape) -> None:
    world = two_tasks({})
    wanted = Rendering(job_id="job1", path="nodes.f.source", template="x" * 70_000, scope={}, shape=shape)
    answer = perform(wanted, world.load, world.keep)
    assert answer.error is not None
    assert (answer.error.code, answer.error.field) == ("TEMPLATE_ERROR", "nodes.f.source")


def test_items_and_indices_can_be_looked_up_beside_large_values() -> None:
    world = two_tasks({})
    world.complete_large("a", BIG)
    template = "{{ item.k }}-{{ index }}-{{ nodes.a.output.count }}"
    with pytest.raises(Needed) as caught:
        ask(world, template, extra={"item": {"k": "v"}, "index": 7})
    assert perform(caught.value.rendering, world.load, world.keep).value == "v-7-100"
    assert ask(world, "{{ item.k }}-{{ index }}", extra={"item": {"k": "v"}, "index": 7}).value == "v-7"


def test_performing_changes_nothing_of_the_request() -> None:
    data = encode(BIG, "x")
    ref = ref_to(value_prefix("job1"), data)
    wanted = Rendering(
        job_id="job1",
        path="value",
        template="{{ nodes.a.output.count + inputs.x }}",
        scope={"nodes": {"a": {"status": "COMPLETED"}}, "inputs": {"x": 1}},
        large=(LargeValue(at=("nodes", "a", "output"), ref=ref),),
    )
    key = wanted.key
    assert perform(wanted, lambda one: decode(one, data), lambda kept: ref).value == 101
    assert wanted.key == key


def test_an_output_in_a_blob_is_never_taken_for_an_empty_one() -> None:
    world = two_tasks({})
    world.complete_large("a", BIG)

    output = scope_of(Run(world.workflow, world.state, world.now, {}))["nodes"]["a"]["output"]
    for look in (lambda: output["count"], lambda: "count" in output, lambda: list(output), lambda: len(output)):
        with pytest.raises(RuntimeError, match="without having been read"):
            look()


def test_what_the_loader_of_a_value_raises_is_the_answer() -> None:
    def lose(ref: PayloadRef) -> Any:
        raise PayloadLost("gone")

    ref = ref_to("payloads/job1/x/", b"{}")
    wanted = Rendering(
        job_id="job1",
        path="p",
        template="{{ inputs.x }}",
        scope={"inputs": {}},
        large=(LargeValue(at=("inputs", "x"), ref=ref),),
    )
    answer = perform(wanted, lose, lambda data: ref)
    assert answer.error is not None
    assert answer.error.code == "PAYLOAD_CORRUPT"
