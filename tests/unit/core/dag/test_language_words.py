"""Words of the language that no other test would miss; docs/workflow-language.md links every word to its test."""

import pytest

from core.dag.definition import Workflow
from core.dag.loader import load_workflow
from core.dag.retry import RetryPolicy
from tests.unit.core.dag.harness import chain, workflow_of

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
