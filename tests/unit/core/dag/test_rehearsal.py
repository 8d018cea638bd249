"""Workflows in supposed time: what an author sees of a run that never was."""

from typing import Any

import pytest
from hypothesis import given

from core.dag.definition import Workflow
from core.dag.nodes import GateNode
from core.dag.rehearsal import Rehearsed, rehearse
from core.dag.scenario import GatePlay, Play, Scenario, read_scenario
from core.errors import CallerError, WorkflowError
from core.ids import canonical_json
from core.statuses import JobStatus
from tests.unit.core.dag.fan_outs import workflow_with
from tests.unit.core.dag.harness import chain, task, workflow_of
from tests.unit.core.dag.laws import LAWS
from tests.unit.core.dag.worlds import workflows

TRANSIENT = {"error": {"code": "BUSY", "classification": "transient"}}


def rehearsed(workflow: Workflow, **scenario: Any) -> Rehearsed:
    """Rehearse with a scenario as an author writes it."""
    return rehearse(workflow, read_scenario(canonical_json(scenario), "scenario.json"))


def at(result: Rehearsed, event: str) -> list[tuple[float, str | None]]:
    """Return when, and at which nodes, something happened."""
    return [(moment.seconds, moment.node_id) for moment in result.timeline if moment.event == event]


def test_what_is_not_supposed_completes_after_a_second() -> None:
    result = rehearsed(workflow_of(chain("a", "b")))
    assert (result.job.status, result.seconds, result.ended) == (JobStatus.COMPLETED, 2, True)
    assert at(result, "node_started") == [(0, "a"), (1, "b")]
    assert result.nodes["b"].output == {}


def test_outputs_decide_where_a_conditional_goes_and_may_come_from_params() -> None:
    nodes: dict[str, Any] = {
        "start": {"type": "start", "next": ["a"]},
        "a": task(params={"size": "{{ inputs.size }}"}, next=["if"]),
        "if": {
            "type": "conditional",
            "condition": "{{ nodes.a.output.size }} > 10",
            "on_true": ["large"],
            "on_false": ["small"],
        },
        "large": task(),
        "small": task(),
    }
    workflow = workflow_of(nodes, inputs={"size": {"type": "integer"}}, outputs={"size": "{{ nodes.a.output.size }}"})
    tasks = {"a": {"seconds": 5, "output": {"size": "{{ params.size * 2 }}"}}}
    result = rehearsed(workflow, inputs={"size": 6}, tasks=tasks)
    assert result.job.outputs == {"size": 12}
    assert (result.nodes["large"].status, result.nodes["small"].status) == ("COMPLETED", "SKIPPED")
    assert result.seconds == 6


def test_failures_are_retried_after_their_backoff_and_the_last_play_counts_for_all_that_follow() -> None:
    retry = {"max_retries": 2, "backoff": "fixed", "initial_delay_seconds": 30, "jitter": 0}
    workflow = workflow_of(chain("a", retry=retry))
    result = rehearsed(workflow, tasks={"a": [{"seconds": 2, **TRANSIENT}, {"seconds": 3}]})
    assert (result.job.status, result.seconds) == (JobStatus.COMPLETED, 35)
    result = rehearsed(workflow, tasks={"echo": [TRANSIENT]})
    assert result.job.status is JobStatus.FAILED
    assert at(result, "node_started") == [(0, "a"), (31, "a"), (62, "a")]
    assert result.job.error is not None
    assert result.job.error["code"] == "BUSY"


def test_a_lost_worker_is_noticed_when_its_lease_ends() -> None:
    workflow = workflow_of(chain("a", heartbeat_timeout_seconds=7))
    result = rehearsed(workflow, tasks={"a": [{"seconds": 10, "lost": True}, {"seconds": 1}]})
    assert at(result, "attempt_expired") == [(17, "a")]
    assert (result.job.status, result.seconds) == (JobStatus.COMPLETED, 18)


def test_a_task_that_runs_too_long_is_timed_out_and_its_late_result_changes_nothing() -> None:
    workflow = workflow_of(chain("a", timeout_seconds=5, retry={"max_retries": 0}))
    result = rehearsed(workflow, tasks={"a": {"seconds": 50}})
    assert (result.job.status, result.seconds) == (JobStatus.FAILED, 5)


def test_workers_take_what_is_urgent_and_old_first_and_no_more_than_they_can() -> None:
    nodes = {"start": {"type": "start", "next": ["a", "b", "c"]}, "a": task(), "b": task(), "c": task()}
    result = rehearsed(workflow_of(nodes), workers={"functionapp-tasks": 2}, tasks={"echo": {"seconds": 10}})
    assert at(result, "node_started") == [(0, "a"), (0, "b"), (10, "c")]
    result = rehearsed(workflow_of(nodes), queue_seconds=4)
    assert at(result, "node_started") == [(4, "a"), (4, "b"), (4, "c")]


def test_a_gate_is_decided_when_the_scenario_says_so_and_waits_for_ever_when_it_does_not() -> None:
    nodes = {"start": {"type": "start", "next": ["hold"]}, "hold": {"type": "gate", "next": ["a"]}, "a": task()}
    gate = {"decision": "approved", "after_seconds": 3600, "actor": "ann", "reason": "fine", "data": {"scale": 2}}
    result = rehearsed(workflow_of(nodes), gates={"hold": gate})
    assert (result.job.status, result.seconds) == (JobStatus.COMPLETED, 3601)
    assert result.nodes["hold"].output == {
        "decision": "approved",
        "actor": "ann",
        "reason": "fine",
        "data": {"scale": 2},
    }
    result = rehearsed(workflow_of(nodes), gates={"hold": {"decision": "rejected", "reason": "no"}})
    assert result.job.status is JobStatus.FAILED
    result = rehearsed(workflow_of(nodes))
    assert not result.ended
    assert (result.nodes["hold"].waiting_for or {})["kind"] == "gate"


def test_a_gate_that_expires_before_its_decision_fails() -> None:
    nodes = {"start": {"type": "start", "next": ["hold"]}, "hold": {"type": "gate", "expires_after_seconds": 60}}
    result = rehearsed(workflow_of(nodes), gates={"hold": {"after_seconds": 61}})
    assert (result.job.status, result.seconds) == (JobStatus.FAILED, 60)
    assert (result.job.error or {})["code"] == "GATE_EXPIRED"


def test_items_of_a_fan_out_have_plays_of_their_own() -> None:
    workflow = workflow_with({"max_concurrency": 2, "tolerate": {"count": 1}})
    items = {"many": {"1": {"error": {"code": "BAD"}}, "2": {"seconds": 5, "output": {"x": "{{ index }}"}}}}
    tasks = {"many": {"output": {"v": "{{ params.v }}"}}}
    result = rehearsed(workflow, inputs={"items": ["a", "b", "c", "d"]}, tasks=tasks, items=items)
    assert result.job.status is JobStatus.COMPLETED
    joined = result.nodes["join"].output or {}
    assert joined["results"] == [{"v": "a"}, {"x": 2}, {"v": "d"}]
    assert [failure["index"] for failure in joined["failures"]] == [1]
    assert result.seconds == 6


@pytest.mark.parametrize(
    ("count", "index", "problem"), [(4, "99", "4 items: 0 to 3"), (1, "1", "one item: 0"), (0, "0", "no items")]
)
def test_items_that_a_fan_out_does_not_have_are_refused(count: int, index: str, problem: str) -> None:
    workflow = workflow_with({})
    items: dict[str, Any] = {"many": {index: {"output": {"x": 1}}}}
    with pytest.raises(WorkflowError, match=f"items.many has '{index}', but many has {problem}$"):
        rehearsed(workflow, inputs={"items": list(range(count))}, items=items)
    assert rehearsed(workflow, inputs={"items": list(range(int(index) + 1))}, items=items).ended


READS = {"type": "conditional", "condition": "{{ nodes.a.output.size }} > 1", "on_true": ["b"], "on_false": ["b"]}


@pytest.mark.parametrize(
    ("reader", "scenario", "hinted"),
    [
        (READS, {}, True),
        (task(params={"x": "is {{ nodes.a.output.size.x }}"}, best_effort=True), {"tasks": {"a": {}}}, True),
        (task(params={"x": "{{ nodes.a.output.size }}"}), {"tasks": {"a": {"output": {"width": 2}}}}, False),
        (task(params={"x": "{{ nodes.a.output.size }}"}), {"tasks": {"echo": {"output": {}}}}, False),
        (task(params={"x": "{{ nodes.a.output.size }}"}), {"tasks": {"a": {"output": {"size": 2}}}}, False),
        (task(params={"x": "{{ nodes.a.output.size }}"}, depends_on={"all_done": ["a"]}),
         {"tasks": {"a": {"error": {}}}}, False),
    ],
)  # fmt: skip
def test_whoever_gave_a_node_no_output_is_told_to_when_it_is_missed(
    reader: dict[str, Any], scenario: dict[str, Any], hinted: bool
) -> None:
    nodes = {"start": {"type": "start", "next": ["a"]}, "a": task(next=["r"]), "r": reader, "b": task()}
    nodes["r"] = {"next": ["b"], **reader} if reader is not READS else reader
    hints = rehearsed(workflow_of(nodes), **scenario).hints
    assert [hint.rpartition(": tasks")[2] for hint in hints] == [": {a: {output: {size: …}}}"] * hinted


def test_what_waits_is_told_as_the_live_system_does() -> None:
    nodes = {"start": {"type": "start", "next": ["a", "b"]}, "a": task(next=["c"]), "b": task(), "c": task()}
    result = rehearsed(workflow_of(nodes), workers={"functionapp-tasks": 1}, give_up_after_seconds=0.5)
    kinds = {key: reason and reason["kind"] for key, reason in result.waiting.items()}
    assert kinds == {"start": None, "a": None, "b": "queue", "c": "dependency"}
    assert set(rehearsed(workflow_of(nodes)).waiting.values()) == {None}


def test_batches_run_their_items_one_after_the_other() -> None:
    workflow = workflow_with({"batch_size": 3})
    items = {"many": {"1": [TRANSIENT, {"seconds": 7, "output": {"again": True}}]}}
    result = rehearsed(workflow, inputs={"items": [10, 11, 12, 13]}, items=items)
    assert (result.nodes["join"].output or {})["results"] == [{}, {"again": True}, {}, {}]
    assert result.seconds == 3 + 10 + 7
    result = rehearsed(workflow, inputs={"items": [10]}, items={"many": {"0": [{"lost": True}, {"seconds": 2}]}})
    assert (result.job.status, result.seconds) == (JobStatus.COMPLETED, 23)


def test_a_large_fan_in_is_gathered() -> None:
    workflow = workflow_with({})
    result = rehearsed(workflow, inputs={"items": list(range(40))}, tasks={"many": {"output": {"text": "x" * 5000}}})
    assert result.job.status is JobStatus.COMPLETED
    assert len((result.nodes["join"].output or {})["results"]) == 40


def test_large_values_are_made_on_the_way() -> None:
    nodes = chain("a", "b")
    nodes["b"]["params"] = {"text": "{{ nodes.a.output.text }}{{ nodes.a.output.text }}"}
    tasks = {"a": {"output": {"text": "x" * 50_000}}, "b": {"output": {"size": "{{ params.text | length }}"}}}
    result = rehearsed(workflow_of(nodes), tasks=tasks)
    assert result.nodes["b"].output == {"size": 100_000}


def test_commands_are_given_at_their_time() -> None:
    workflow = workflow_of(chain("a", "b"))
    commands = [{"kind": "pause", "after_seconds": 0.5}, {"kind": "resume", "after_seconds": 60}]
    result = rehearsed(workflow, commands=commands)
    assert at(result, "node_started") == [(0, "a"), (60, "b")]
    result = rehearsed(workflow, commands=[{"kind": "cancel", "after_seconds": 1.5}])
    assert (result.job.status, result.seconds) == (JobStatus.CANCELLED, 1.5)


def test_a_rehearsal_gives_up_in_time() -> None:
    result = rehearsed(workflow_of(chain("a")), tasks={"a": {"seconds": 500}}, give_up_after_seconds=100)
    assert not result.ended
    assert result.nodes["a"].status == "RUNNING"


def test_the_same_scenario_goes_the_same_way() -> None:
    workflow = workflow_with({"max_concurrency": 3, "task": {"retry": {"max_retries": 3}}})
    scenario = Scenario(inputs={"items": list(range(20))}, tasks={"many": (Play(lost=True), Play())})
    assert rehearse(workflow, scenario) == rehearse(workflow, scenario)


def test_inputs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(CallerError, match="is not an input"):
        rehearsed(workflow_of(chain("a")), inputs={"x": 1})


@pytest.mark.parametrize(
    ("scenario", "problem"),
    [
        ({"tasks": {"b": {}}}, "tasks names 'b', which is not a node with a task, nor a handler of one; known are a"),
        ({"tasks": {"start": {}}}, "tasks names 'start'"),
        ({"items": {"a": {"0": {}}}}, "items names 'a', which is not a fan_out; known are none"),
        ({"gates": {"a": {}}}, "gates names 'a', which is not a gate; known are none"),
        ({"workers": {"heavy": 1}}, "workers names 'heavy', which is not a queue"),
        ({"commands": [{"kind": "cancel"}, {"kind": "stop"}]}, "commands.1: there is no command 'stop'; known"),
        ({"commands": [{"kind": "skip", "args": {"node_id": "b"}}]}, "commands.0 names 'b', which is not a node"),
        ({"commands": [{"kind": "skip"}]}, "commands.0: node_id"),
        ({"commands": [{"kind": "priority", "args": {"priority": 11}}]}, "commands.0: priority must be 0 to 10"),
    ],
)  # fmt: skip
def test_a_scenario_names_only_what_is_there(scenario: dict[str, Any], problem: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        rehearsed(workflow_of(chain("a")), **scenario)
    assert f"scenario: {problem}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("taks: {}", "s.yaml:1: taks is not a word of a scenario; known are inputs, priority, tasks,"),
        ("taks: {}", "; did you mean tasks?"),
        (
            "tasks:\n  a: {secnds: 3}",
            "s.yaml:2: tasks.a.0.secnds is not a word of a scenario; known are seconds, output,",
        ),
        ("items:\n  a: {'0': {los: true}}", "known are seconds, output, error, lost; did you mean lost?"),
        ("tasks: {a: {error: {cod: X}}}", "known are code, message, classification; did you mean code?"),
        (
            "gates: {a: {decisin: approved}}",
            "known are decision, after_seconds, actor, reason, data; did you mean decision?",
        ),
        (
            "commands:\n- kind: skip\n  node_id: a",
            "s.yaml:3: commands.0.node_id is not a word of a scenario; known are kind,",
        ),
        ("commands: [{kind: skip, node_id: a}]", "; what an order is about, as its node_id, stands in its args"),
        ("tasks: {a: {seconds: -1}}", "tasks.a.0.seconds: expected at least 0.0, got -1"),
        ("gates: {a: {decision: yes}}", "gates.a.decision: expected 'approved' or 'rejected', got \"yes\""),
        ("[]", "the scenario: expected an object, got []"),
    ],
)
def test_a_scenario_that_cannot_be_read_is_told_with_the_known_words(text: str, problem: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        read_scenario(text, "s.yaml")
    assert problem in str(caught.value)


def test_every_mistake_of_a_scenario_is_told_at_its_line() -> None:
    with pytest.raises(WorkflowError) as caught:
        read_scenario("taks: {}\ngates: {a: {decide: x}}\n", "s.yaml")
    assert [line.partition(" is ")[0] for line in str(caught.value).splitlines()] == [
        "s.yaml:1: taks",
        "s.yaml:2: gates.a.decide",
    ]


def test_an_index_is_a_number_and_everything_wrong_is_told() -> None:
    with pytest.raises(WorkflowError) as caught:
        rehearsed(workflow_with({}), items={"many": {"x": {}, "0": {}}}, commands=[{"kind": "stop"}])
    first, second = str(caught.value).splitlines()
    assert "items.many has 'x', which is not an index" in first
    assert "commands.0: there is no command" in second


def test_a_refused_command_is_told_when_it_is_given() -> None:
    commands = [{"kind": "cancel", "args": {}, "after_seconds": 1.5}, {"kind": "retry", "after_seconds": 0.5}]
    assert at(rehearsed(workflow_of(chain("a", "b")), commands=commands), "command_refused") == [(0.5, None)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "tasks:\n  a: {output: {}, lost: true}\n",
            "s.yaml:2: tasks.a.0: an attempt has an output, an error",
        ),
        ("tasks:\n  a: []\n", "s.yaml:2: tasks.a: "),
        ("task: {}\n", "s.yaml:1: task is not a word of a scenario"),
        ("inputs: {}\ninputs: {}\n", "s.yaml:2: the key 'inputs' is there twice"),
        ("- a\n", "s.yaml:1: "),
    ],
)
def test_a_scenario_with_a_mistake_names_its_line(text: str, problem: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        read_scenario(text, "s.yaml")
    assert problem in str(caught.value)


def test_an_output_that_cannot_be_made_is_the_failure_of_its_attempt() -> None:
    result = rehearsed(workflow_of(chain("a")), tasks={"a": {"output": {"x": "{{ params.nope }}"}}})
    assert result.job.status is JobStatus.FAILED
    assert "params.nope is not there" in (result.job.error or {})["message"]


@LAWS
@given(workflows())
def test_every_workflow_comes_to_its_end_or_waits_for_a_gate(workflow: Workflow) -> None:
    result = rehearse(workflow, Scenario())
    open_gates = [node for node in result.nodes.values() if (node.waiting_for or {}).get("kind") == "gate"]
    assert result.ended or open_gates
    decided = Scenario(gates={key: GatePlay() for key, node in workflow.nodes.items() if isinstance(node, GateNode)})
    assert rehearse(workflow, decided).job.status is JobStatus.COMPLETED


def test_slots_are_granted_so_that_workflows_with_them_end() -> None:
    nodes = {
        "start": {"type": "start", "next": ["many", "once"]},
        "many": {
            "type": "fan_out",
            "source": "{{ inputs.items }}",
            "task": {"handler": "echo", "concurrency": {"key": "disk", "limit": 2}},
            "next": ["join"],
        },
        "once": task(concurrency={"key": "tool", "limit": 1}),
        "join": {"type": "fan_in", "next": ["end"]},
        "end": {"type": "end", "depends_on": {"all_of": ["once"]}},
    }
    inputs = {"items": {"type": "array", "default": [1, 2, 3, 4, 5]}}
    workflow = workflow_of(nodes, inputs=inputs, concurrency={"key": "job", "limit": 1})
    result = rehearsed(workflow, tasks={"many": {"seconds": 10}})
    assert (result.job.status, result.seconds) == (JobStatus.COMPLETED, 30)
    starts = [(seconds, node_id) for seconds, node_id in at(result, "node_started") if "__" in str(node_id)]
    assert starts == [(0, "many__0"), (0, "many__1"), (10, "many__2"), (10, "many__3"), (20, "many__4")]


def test_a_slot_is_free_again_when_its_attempt_is_lost_or_waits_for_its_retry() -> None:
    one_at_a_time = {"concurrency": {"key": "tool", "limit": 1}}
    retry = {"max_retries": 1, "backoff": "fixed", "initial_delay_seconds": 60, "jitter": 0}
    nodes: dict[str, Any] = {
        "start": {"type": "start", "next": ["a", "b"]},
        "a": task(**one_at_a_time, retry=retry, next=["end"]),
        "b": task(**one_at_a_time, next=["end"]),
        "end": {"type": "end"},
    }
    result = rehearsed(
        workflow_of(nodes), tasks={"a": [{"seconds": 5, **TRANSIENT}, {"seconds": 1}], "b": {"seconds": 7}}
    )
    assert (result.job.status, result.seconds) == (JobStatus.COMPLETED, 66)
    assert at(result, "node_started") == [(0, "a"), (5, "b"), (65, "a")]
    result = rehearsed(
        workflow_of(nodes), tasks={"a": [{"seconds": 5, "lost": True}, {"seconds": 1}], "b": {"seconds": 7}}
    )
    assert result.job.status is JobStatus.COMPLETED


def test_commands_are_given_to_a_job_that_has_ended_too() -> None:
    workflow = workflow_of(chain("a", "b"))
    tasks = {"a": {"seconds": 2.0}, "b": {"seconds": 2.0}}
    late = [{"kind": "skip", "args": {"node_id": "a"}, "after_seconds": 30}]
    refused = rehearsed(workflow, tasks=tasks, commands=late)
    assert (refused.job.status, refused.seconds) == ("COMPLETED", 4.0)
    assert [(one.seconds, one.data["code"]) for one in refused.timeline if one.event == "command_refused"] == [
        (30.0, "JOB_FINAL")
    ]
    cancel = {"kind": "cancel", "after_seconds": 1}
    again = rehearsed(workflow, tasks=tasks, commands=[cancel, {"kind": "retry", "after_seconds": 10}])
    assert (again.job.status, again.job.run_no, again.seconds) == ("COMPLETED", 2, 14.0)


def test_an_order_says_by_whom_why_and_with_what() -> None:
    again = {"kind": "rerun", "args": {"node_id": "a", "params": {"x": 2}}, "actor": "ann", "reason": "again"}
    result = rehearsed(workflow_of(chain("a", params={"x": 1})), commands=[{**again, "after_seconds": 60}])
    assert result.nodes["a"].input_params == {"x": 2}
    (event,) = [one for one in result.timeline if one.event == "job_rerun"]
    assert (event.data["actor"], event.data["reason"]) == ("ann", "again")


GATED: dict[str, Any] = {
    "start": {"type": "start"},
    "hold": {"type": "gate", "depends_on": {"all_of": ["start"]}},
    "a": task("hold"),
}


def test_a_last_order_after_the_end_of_a_job_with_a_decided_gate_is_obeyed_and_the_gate_decided_again() -> None:
    gates = {"hold": {"after_seconds": 3}}
    again = rehearsed(workflow_of(GATED), gates=gates, commands=[{"kind": "rerun", "after_seconds": 10}])
    assert (again.job.status, again.job.run_no, again.seconds) == ("COMPLETED", 2, 14.0)
    assert at(again, "job_rerun") == [(10, None)]
    assert at(again, "gate_opened") == [(0, "hold"), (10, "hold")]
    refused = rehearsed(workflow_of(GATED), gates=gates, commands=[{"kind": "cancel", "after_seconds": 10}])
    assert (refused.job.status, at(refused, "command_refused")) == ("COMPLETED", [(10, None)])


def test_the_decision_on_a_gate_that_starts_anew_meanwhile_is_made_once() -> None:
    rerun = {"kind": "rerun", "after_seconds": 2}
    result = rehearsed(workflow_of(GATED), gates={"hold": {"after_seconds": 3}}, commands=[rerun])
    assert at(result, "gate_opened") == [(0, "hold"), (2, "hold")]
    assert (result.job.status, result.seconds, at(result, "command_refused")) == ("COMPLETED", 6, [])
