from pathlib import Path

import pytest

from core.dag.catalogue import load_folder
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
