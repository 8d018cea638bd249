import re
from itertools import pairwise
from pathlib import Path

import pytest

from core.dag.catalogue import BrokenFile, load_folder
from core.dag.definition import Workflow
from core.errors import NotFound

BODY = "nodes:\n  start: {type: start, next: end}\n  end: {type: end}\n"


def text(workflow_id: str = "w", version: int = 1, extra: str = "") -> str:
    return f"workflow_id: {workflow_id}\nversion: {version}\n{extra}{BODY}"


def test_one_broken_file_leaves_the_others_working() -> None:
    catalogue = load_folder({"a.yaml": text("a"), "b.yaml": "nonsense: [", "c.yaml": text("c")})
    assert catalogue.ids() == ("a", "c")
    assert [item.file for item in catalogue.broken] == ["b.yaml"]
    assert catalogue.broken[0].error.startswith("b.yaml:1: ")


NASTY = {
    "bytes": "workflow_id: w\nversion: 1\nname: \udcff\n",
    "control": "workflow_id: w\nname: \x07\n",
    "digits": f"workflow_id: w\nversion: {'9' * 5000}\n",
    "infinite": "workflow_id: w\nversion: 1e999\n",
    "nul": 'workflow_id: w\nname: "\\0"\n',
    "surrogate": 'workflow_id: w\n"\\ud800": 1\n',
    "list as key": "workflow_id: w\n? [a, b]\n: c\n",
    "brackets": f"workflow_id: w\nname: {'[' * 5000}\n",
    "bomb": "a: &a [1, 1]\n" + "".join(f"{b}: &{b} [*{a}, *{a}, *{a}]\n" for a, b in pairwise("abcdefghijklmn")),
    "itself": "workflow_id: &a [*a]\n",
    "long template": text(extra=f"outputs: {{x: '{{{{ 1{'+1' * 3000} }}}}'}}\n"),
    "deep condition": text().replace("{type: end}", f"{{type: end, when: '{'(' * 3000}true{')' * 3000}'}}"),
    "node without body": text() + "  empty:\n",
}


@pytest.mark.parametrize("name", NASTY)
def test_no_file_keeps_the_others_from_loading_and_its_line_is_told(name: str) -> None:
    catalogue = load_folder({"bad.yaml": NASTY[name], "good.yaml": text("good")})
    assert catalogue.ids() == ("good",)
    assert re.match(r"bad\.yaml:\d+: ", catalogue.broken[0].error)
    assert "Node(" not in catalogue.broken[0].error


def test_the_highest_version_is_the_default() -> None:
    catalogue = load_folder({"1": text(version=2), "2": text(version=10), "3": text(version=9)})
    assert catalogue.get("w").version == 10
    assert catalogue.get("w", 2).version == 2
    assert [workflow.version for workflow in catalogue.versions("w")] == [2, 9, 10]


def test_the_version_marked_current_is_the_default() -> None:
    catalogue = load_folder({"1": text(version=1, extra="current: true\n"), "2": text(version=2)})
    assert catalogue.get("w").version == 1


def test_two_versions_cannot_both_be_current() -> None:
    current = "current: true\n"
    catalogue = load_folder({"1": text(version=1, extra=current), "2": text(version=2, extra=current)})
    assert catalogue.get("w").version == 1
    assert "two versions marked current" in catalogue.broken[0].error


def test_the_same_version_with_other_content_is_broken() -> None:
    catalogue = load_folder({"a.yaml": text(), "b.yaml": text(extra="name: other\n"), "c.yaml": text()})
    assert [item.file for item in catalogue.broken] == ["b.yaml"]
    assert "version 1 has other content in a.yaml" in catalogue.broken[0].error
    assert catalogue.get("w").name == ""


def test_a_reverse_that_does_not_exist_is_broken() -> None:
    catalogue = load_folder({"a.yaml": text("a", extra="reversed_by: undo\n"), "b.yaml": text("b")})
    assert catalogue.ids() == ("b",)
    assert "reversed_by names 'undo'" in catalogue.broken[0].error
    paired = load_folder({"a.yaml": text("a", extra="reversed_by: undo\n"), "u.yaml": text("undo")})
    assert paired.get("a").reversed_by == "undo"
    assert not paired.broken


@pytest.mark.parametrize(("workflow_id", "version", "field"), [("x", None, "workflow_id"), ("w", 7, "version")])
def test_what_is_not_there_is_not_found(workflow_id: str, version: int | None, field: str) -> None:
    with pytest.raises(NotFound) as caught:
        load_folder({"a": text()}).get(workflow_id, version)
    assert caught.value.detail.field == field


def test_every_workflow_that_ships_loads_and_survives_its_json_form() -> None:
    folder = Path(__file__).parents[4] / "workflows"
    catalogue = load_folder({path.name: path.read_text() for path in folder.glob("*.yaml")})
    assert catalogue.broken == ()
    shipped = {"echo_test", "hello_world", "retry_test", "sleep_test", "chain_10", "raster_ingest", "raster_validate"}
    assert shipped <= set(catalogue.ids())
    for workflow in catalogue.workflows.values():
        assert Workflow.from_json(workflow.to_json()).definition_hash == workflow.definition_hash


def calling(workflow_id: str, child: str, inputs: str = "{}", extra: str = "") -> str:
    call = f"call: {{type: workflow, workflow_id: {child}, inputs: {inputs}{extra}, next: end}}"
    nodes = f"nodes:\n  start: {{type: start, next: call}}\n  {call}\n  end: {{type: end}}\n"
    return f"workflow_id: {workflow_id}\nversion: 1\n{nodes}"


def test_a_child_that_is_not_there_is_named_with_file_line_and_node() -> None:
    catalogue = load_folder({"a.yaml": calling("a", "nobody"), "b.yaml": text("b")})
    assert catalogue.ids() == ("b",)
    assert [item.error for item in catalogue.broken] == [
        "a.yaml:5: node call: there is no usable workflow 'nobody'",
    ]


def test_what_lies_in_a_broken_file_is_told_to_be_broken_and_no_other_name_is_guessed() -> None:
    catalogue = load_folder(
        {
            "call.yaml": calling("call", "n1_undo"),
            "call_2.yaml": calling("call_2", "n1_undo", extra=", version: 2"),
            "do.yaml": text("n1_do", extra="reversed_by: n1_undo\n"),
            "undo.yaml": "workflow_id: n1_undo\nversion: 2\nnodes: 5\n",
            "far.yaml": text("far", extra="reversed_by: call\n"),
        }
    )
    assert {item.file: item.error for item in catalogue.broken if item.file != "undo.yaml"} == {
        "call.yaml": "call.yaml:5: node call: there is no usable workflow 'n1_undo': its file undo.yaml is broken",
        "call_2.yaml": "call_2.yaml:5: node call: there is no usable workflow 'n1_undo' version 2: "
        "its file undo.yaml is broken",
        "do.yaml": "do.yaml:3: reversed_by names 'n1_undo', whose file undo.yaml is broken",
        "far.yaml": "far.yaml:3: reversed_by names 'call', whose file call.yaml is broken",
    }


def test_workflows_that_contain_each_other_are_broken_and_so_is_what_needs_them() -> None:
    files = {
        "a": calling("a", "b"),
        "b": calling("b", "a"),
        "c": calling("c", "a"),
        "d": text("d", extra="reversed_by: c\n"),
    }
    catalogue = load_folder({**files, "e": text("e")})
    assert catalogue.ids() == ("e",)
    assert [item.file for item in catalogue.broken] == ["a", "b", "c", "d"]
    assert "contain each other: " in catalogue.broken[0].error
    assert "no usable workflow 'a'" in catalogue.broken[2].error
    assert "reversed_by names 'c'" in catalogue.broken[3].error


def test_inputs_that_a_child_does_not_take_are_found_when_the_folder_loads() -> None:
    leaf = text("leaf", extra="inputs: {path: {type: string, required: true}}\n")
    catalogue = load_folder({"a": calling("a", "leaf"), "b": calling("b", "leaf", "{path: 7, x: 1}"), "leaf": leaf})
    assert [item.error.splitlines() for item in catalogue.broken] == [
        ["a:5: node call: workflow leaf needs the input 'path'"],
        [
            "b:5: node call: workflow leaf has no input 'x'; it has path",
            "b:5: node call: inputs.path of workflow leaf must be string, got integer",
        ],
    ]


def test_templates_of_inputs_are_checked_like_those_of_params() -> None:
    catalogue = load_folder({"a": calling("a", "leaf", '{x: "{{ nodes.end.output.y }}"}'), "leaf": text("leaf")})
    assert "not upstream" in catalogue.broken[0].error


def test_an_author_cannot_pin_a_child_by_hand() -> None:
    catalogue = load_folder({"a": calling("a", "leaf", extra=", definition_hash: abc"), "leaf": text("leaf")})
    assert "definition_hash is not a word of the language" in catalogue.broken[0].error


def test_without_a_workflow_those_that_run_it_are_gone_too() -> None:
    files = {"a": calling("a", "b"), "b": calling("b", "leaf"), "leaf": text("leaf"), "z": text("z")}
    catalogue = load_folder(files).without(("leaf", 1), BrokenFile("leaf version 1", "why"))
    assert catalogue.ids() == ("z",)
    assert [(item.file, item.error) for item in catalogue.broken] == [
        ("leaf version 1", "why"),
        ("a version 1", "runs leaf version 1"),
        ("b version 1", "runs leaf version 1"),
    ]
