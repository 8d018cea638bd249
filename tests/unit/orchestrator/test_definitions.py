from pathlib import Path

import pytest

from core.dag.catalogue import load_folder
from core.errors import NotFound
from orchestrator.app import load_shelf
from orchestrator.business import load_operation_catalogue

GOOD = b"workflow_id: good\nversion: 1\nnodes:\n  start: {type: start, next: end}\n  end: {type: end}\n"


def test_a_file_that_is_not_utf_8_is_broken_and_the_others_work(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_bytes(GOOD)
    (tmp_path / "latin.yaml").write_bytes(b"workflow_id: w\n" + "name: Höhe\n".encode("latin-1"))
    catalogue = load_shelf(tmp_path).catalogue
    assert catalogue.ids() == ("good",)
    assert [(one.file, one.error) for one in catalogue.broken] == [
        ("latin.yaml", "latin.yaml:2: the byte 0xf6 is not UTF-8")
    ]


@pytest.mark.parametrize(("workflow_id", "version"), [("nope", None), ("good", 7)])
def test_a_workflow_that_is_not_there_is_refused_with_where_to_look(
    tmp_path: Path, workflow_id: str, version: int | None
) -> None:
    (tmp_path / "good.yaml").write_bytes(GOOD)
    with pytest.raises(NotFound) as refused:
        load_shelf(tmp_path).get(workflow_id, version)
    assert "geodag workflow list" in (refused.value.detail.remediation or "")


def test_an_operation_that_is_not_utf_8_is_broken_and_keeps_nothing_from_starting(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes("operation: Höhe\n".encode("latin-1"))
    (broken,) = load_operation_catalogue(tmp_path, load_folder({"good.yaml": GOOD.decode()})).broken
    assert "the byte 0xf6 is not UTF-8" in broken.error
