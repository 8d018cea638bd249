"""Words of the language that no other test would miss; docs/workflow-language.md links every word to its test."""

from datetime import timedelta

import pytest

from core.dag.definition import Workflow
from core.dag.loader import load_workflow
from core.dag.nodes import Backoff, RetrySpec
from core.dag.retry import RetryPolicy
from tests.unit.core.dag.harness import START, World, chain, workflow_of

NODE = {"max_retries": 7, "jitter": 0}
DEFAULTS = {"max_retries": 9, "max_losses": 2, "initial_delay_seconds": 1}


@pytest.mark.parametrize(
    ("node", "defaults", "expected"),
    [
        (NODE, DEFAULTS, RetryPolicy(max_retries=7, max_losses=2, initial_delay_seconds=1, jitter=0)),
        (None, DEFAULTS, RetryPolicy(max_retries=9, max_losses=2, initial_delay_seconds=1)),
        (NODE, None, RetryPolicy(max_retries=7, jitter=0)),
        (None, None, RetryPolicy()),
    ],
)
def test_retries_come_from_the_node_then_the_defaults(
    node: dict[str, float] | None, defaults: dict[str, float] | None, expected: RetryPolicy
) -> None:
    nodes = chain("a", retry=node)
    nodes["each"] = {"type": "fan_out", "source": "{{ inputs.x }}", "task": {"handler": "echo", "retry": node}}
    workflow = workflow_of(nodes, defaults={"retry": defaults})
    assert workflow.retry_policies["a"] == workflow.retry_policies["each"] == expected


def test_words_for_people_are_kept() -> None:
    text = """\
workflow_id: w
version: 1
inputs: {x: {title: A title, description: An input.}}
nodes:
  start: {type: start, description: Where it begins., next: end}
  end: {type: end}
"""
    workflow = Workflow.from_json(load_workflow(text, "w.yaml").to_json())
    assert (workflow.inputs["x"].title, workflow.inputs["x"].description) == ("A title", "An input.")
    assert workflow.nodes["start"].description == "Where it begins."


SAID_OF_RETRIES = {
    "max_retries": 7,
    "max_losses": 2,
    "max_elapsed_seconds": 600,
    "backoff": "schedule",
    "initial_delay_seconds": 1,
    "max_delay_seconds": 9,
    "delays_seconds": [3, 4],
    "jitter": 0.5,
}


@pytest.mark.parametrize("where", ["node", "defaults"])
def test_every_word_of_retry_reaches_the_policy(where: str) -> None:
    assert SAID_OF_RETRIES.keys() == RetrySpec.model_fields.keys()
    of_node = {"retry": SAID_OF_RETRIES} if where == "node" else {}
    nodes = chain("a", **of_node)
    nodes["each"] = {"type": "fan_out", "source": "{{ inputs.x }}", "task": {"handler": "echo", **of_node}}
    nodes["call"] = {"type": "workflow", "workflow_id": "child", "retry": SAID_OF_RETRIES}
    workflow = workflow_of(nodes, defaults={} if of_node else {"retry": SAID_OF_RETRIES})
    expected = RetryPolicy(**{**SAID_OF_RETRIES, "backoff": Backoff.SCHEDULE, "delays_seconds": (3, 4)})
    assert {key: workflow.retry_policies[key] for key in ("a", "each", "call")} == dict.fromkeys(
        ("a", "each", "call"), expected
    )


TIMEOUTS = {"timeout_seconds": 5, "queue_timeout_seconds": 6, "heartbeat_timeout_seconds": 7}
WORK = {"handler": "sleep", "queue": "container-tasks", "params": {"seconds": 3}}


@pytest.mark.parametrize("kind", ["task", "task of a fan-out"])
@pytest.mark.parametrize("where", ["node", "defaults"])
def test_what_is_sent_has_every_word_of_its_task_then_of_the_defaults(kind: str, where: str) -> None:
    task = {**WORK, **(TIMEOUTS if where == "node" else {})}
    nodes = chain("a", **task)
    if kind != "task":
        nodes["a"] = {"type": "fan_out", "source": "{{ [1] }}", "task": task, "next": ["end"]}
    defaults = dict.fromkeys(TIMEOUTS, 99) if where == "node" else TIMEOUTS
    world = World(workflow_of(nodes, defaults=defaults))
    (sent,) = world.decisions[0].dispatches
    assert {name: getattr(sent, name) for name in (*WORK, *TIMEOUTS)} == {**WORK, **TIMEOUTS}
    assert world.attempt(sent.node_id).queue_expires_at == START + timedelta(seconds=6)
    world.wake()
    assert world.now == START + timedelta(seconds=6)
