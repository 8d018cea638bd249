from collections.abc import Mapping
from typing import Any

import pytest

from core.dag.definition import Workflow
from core.dag.pinning import MAX_DEPTH, Key, pin, same_but_for_pins
from tests.unit.core.dag.harness import chain, task, workflow_of


def calling(workflow_id: str, child: str, *, own_version: int = 1, **fields: Any) -> Workflow:
    nodes = {**chain("a"), "a": {"type": "workflow", "workflow_id": child, "next": ["end"], **fields}}
    return workflow_of(nodes, workflow_id=workflow_id, version=own_version)


def plain(workflow_id: str, version: int = 1, **fields: Any) -> Workflow:
    return workflow_of(chain("a"), workflow_id=workflow_id, version=version, **fields)


def shelf(*workflows: Workflow) -> Mapping[Key, Workflow]:
    return {(one.workflow_id, one.version): one for one in workflows}


def messages(*workflows: Workflow) -> dict[str, str]:
    _, troubles = pin(shelf(*workflows))
    return {workflow_id: "; ".join(message for _, message in found) for (workflow_id, _), found in troubles.items()}


def pinned_child(pinned: Mapping[Key, Workflow], workflow_id: str) -> str | None:
    (found,) = pinned[workflow_id, 1].pins
    return found


def test_a_parent_names_the_content_of_its_child_and_of_everything_below() -> None:
    before, _ = pin(shelf(calling("top", "mid"), calling("mid", "leaf"), plain("leaf")))
    after, _ = pin(shelf(calling("top", "mid"), calling("mid", "leaf"), plain("leaf", description="changed")))
    assert pinned_child(before, "mid") == before["leaf", 1].definition_hash
    assert pinned_child(before, "top") == before["mid", 1].definition_hash
    assert before["top", 1].definition_hash != after["top", 1].definition_hash
    assert same_but_for_pins(before["top", 1], after["top", 1])
    assert not same_but_for_pins(before["leaf", 1], after["leaf", 1])


def test_a_pinned_definition_reads_the_same_from_its_stored_form() -> None:
    pinned, _ = pin(shelf(calling("top", "leaf"), plain("leaf")))
    top = pinned["top", 1]
    assert Workflow.from_json(top.to_json()).definition_hash == top.definition_hash
    assert Workflow.from_json(top.to_json()).pins == top.pins


@pytest.mark.parametrize(("wanted", "expected"), [(None, 3), (2, 2)])
def test_a_node_runs_the_version_it_names_else_the_default(wanted: int | None, expected: int) -> None:
    named = {} if wanted is None else {"version": wanted}
    pinned, _ = pin(shelf(calling("top", "leaf", **named), plain("leaf", 3), plain("leaf", 2)))
    assert pinned_child(pinned, "top") == pinned["leaf", expected].definition_hash


def test_the_version_marked_current_is_run_by_default() -> None:
    pinned, _ = pin(shelf(calling("top", "leaf"), plain("leaf", 2, current=True), plain("leaf", 3)))
    assert pinned_child(pinned, "top") == pinned["leaf", 2].definition_hash


def test_children_that_are_not_there_are_named() -> None:
    found = messages(calling("a", "nobody"), calling("b", "leaf", version=9), plain("leaf"))
    assert found == {
        "a": "there is no usable workflow 'nobody'",
        "b": "there is no usable workflow 'leaf' version 9",
    }


def test_workflows_that_contain_each_other_are_named_and_leave_the_others_alone() -> None:
    ring = calling("a", "b"), calling("b", "c"), calling("c", "a")
    found = messages(*ring, plain("leaf"))
    assert found.keys() == {"a", "b", "c"}
    assert all("contain each other: " in message and message.count("->") == 3 for message in found.values())
    assert messages(calling("self", "self")).keys() == {"self"}


def test_children_may_lie_eight_deep_and_no_deeper() -> None:
    deepest = plain("w0"), *(calling(f"w{n}", f"w{n - 1}") for n in range(1, MAX_DEPTH + 1))
    pinned, troubles = pin(shelf(*deepest))
    assert not troubles
    assert ("w8", 1) in pinned
    assert messages(*deepest, calling("w9", "w8"))["w9"] == "its child workflows lie 9 deep; at most 8 are allowed"


INPUTS = {"path": {"type": "string", "required": True}, "n": {"type": "integer", "maximum": 5}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"path": "x", "n": 5}, None),
        ({"path": "{{ job.job_id }}", "n": "{{ job.priority }}"}, None),
        ({"path": "x", "n": None}, None),
        ({}, "workflow leaf needs the input 'path'"),
        ({"path": None}, "workflow leaf needs the input 'path'"),
        ({"path": "x", "m": 1}, "workflow leaf has no input 'm'; it has path, n"),
        ({"path": 7}, "inputs.path of workflow leaf must be string, got integer"),
        ({"path": "x", "n": 6}, "inputs.n of workflow leaf must be at most 5"),
    ],
)
def test_inputs_are_checked_against_the_child_as_far_as_they_are_constant(
    given: dict[str, Any], expected: str | None
) -> None:
    found = messages(calling("top", "leaf", inputs=given), plain("leaf", inputs=INPUTS))
    assert found.get("top") == expected


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        ("{{ nodes.a.output.path }}", None),
        ("{{ nodes.a.output }}", None),
        ("{{ nodes.a.status }}", None),
        ("{{ nodes.a.output.pathh | default('') }}", None),
        (
            "{{ nodes.a.output.pathh }}",
            "nodes.a.output.pathh is never there; the output of a has path; did you mean path?",
        ),
        ("to {{ nodes.a.output.url }}", "nodes.a.output.url is never there; the output of a has path"),
    ],
)
def test_what_is_read_of_a_child_has_to_be_among_its_outputs(read: str, expected: str | None) -> None:
    nodes = calling("top", "leaf").to_json()["nodes"]
    top = workflow_of(nodes, workflow_id="top", outputs={"found": read})
    said = messages(top, plain("leaf", outputs={"path": "x"})).get("top")
    assert said == (None if expected is None else f"{read}: {expected}")


BY_CHOICE: dict[str, dict[str, Any]] = {
    "a when": {"when": "{{ nodes.a.output.b is defined }}"},
    "the other half of a when": {"when": "'b' in {{ nodes.a.output }} and {{ nodes.a.output.b }} > 1"},
}
TESTED = {
    **{
        read: {"params": {"v": read.replace("X", "nodes.a.output.b")}}
        for read in (
            "{{ X if X is defined else 1 }}",
            "{{ 1 if X is undefined else X }}",
            "{{ X is defined and X > 1 }}",
            "{{ X.y if X is defined else 1 }}",
            "{{ X if 'b' in nodes.a.output else 1 }}",
            "{{ X if X | default(false) else 1 }}",
        )
    },
    **{name: {"params": {"v": "{{ nodes.a.output.b }}"}, **choice} for name, choice in BY_CHOICE.items()},
}


def reading(**reader: Any) -> Workflow:
    """Return a parent whose node b reads what its child a put out."""
    nodes = {**calling("top", "leaf").to_json()["nodes"], "b": task(next=["end"], **reader)}
    nodes["a"]["next"] = ["b"]
    return workflow_of(nodes, workflow_id="top")


@pytest.mark.parametrize("case", TESTED)
def test_a_name_that_is_tested_before_it_is_read_need_not_be_there(case: str) -> None:
    assert messages(reading(**TESTED[case]), plain("leaf", outputs={"a": 1})) == {}


@pytest.mark.parametrize(
    "read",
    [
        "{{ nodes.a.output.b if nodes.a.output.c is defined else 1 }}",
        "{{ nodes.a.output.b if nodes.a.output is defined else 1 }}",
        "{{ nodes.a.output.b if nodes.a.status == 'COMPLETED' else 1 }}",
    ],
)
def test_a_test_of_something_else_is_none(read: str) -> None:
    assert "nodes.a.output.b is never there" in messages(reading(params={"v": read}), plain("leaf"))["top"]


@pytest.mark.parametrize("text", ["{{ nodes.a }}", "{{ nodes }}", "{{ nodes.a.output.a", "{{ x.y() }}"])
@pytest.mark.parametrize("place", ["params", "when", "inputs", "key"])
def test_a_stored_text_that_today_would_not_load_is_no_trouble(text: str, place: str) -> None:
    """The loader never sees what is stored; it stays in use."""
    fields: dict[str, Any] = {
        "params": {"params": {"v": text}},
        "when": {"when": text},
        "inputs": {},
        "key": {"concurrency": {"key": text, "limit": 1}},
    }[place]
    top = reading(**fields)
    if place == "inputs":
        top = calling("top", "leaf", inputs={"path": text, "n": 1})
    pinned, troubles = pin(shelf(top, plain("leaf", inputs=INPUTS if place == "inputs" else {})))
    assert (pinned.keys(), troubles) == ({("top", 1), ("leaf", 1)}, {})


def test_a_child_without_outputs_has_nothing_to_read() -> None:
    nodes = calling("top", "leaf").to_json()["nodes"]
    nodes["b"] = {"type": "task", "handler": "echo", "params": {"n": ["{{ nodes.a.output.n }}"]}, "next": ["end"]}
    nodes["a"]["next"] = ["b"]
    _, troubles = pin(shelf(workflow_of(nodes, workflow_id="top"), plain("leaf")))
    ((path, message),) = troubles["top", 1]
    assert path == ("nodes", "b", "params", "n")
    assert message.endswith("the output of a has nothing in it")


def holding(key: str) -> dict[str, Any]:
    return {"concurrency": {"key": key, "limit": 2}}


def test_a_parent_may_not_hold_the_slot_for_which_something_below_it_waits() -> None:
    top = workflow_of(calling("top", "mid").to_json()["nodes"], workflow_id="top", **holding("global:db"))
    leaf = plain("leaf", **holding("global:db"))
    node = workflow_of(chain("a", **holding("global:db")), workflow_id="leaf")
    for asking in (leaf, node):
        said = messages(top, calling("mid", "leaf"), asking)
        assert said == {"top": "the job holds the slot 'global:db', for which a child workflow of it would wait"}
    for other in ("db", "global:other", "global:{{ job.workflow_id }}"):
        assert messages(top, calling("mid", "leaf"), plain("leaf", **holding(other))) == {}
