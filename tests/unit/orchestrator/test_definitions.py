from pathlib import Path

from core.dag.catalogue import load_folder
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


def test_an_operation_that_is_not_utf_8_is_broken_and_keeps_nothing_from_starting(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes("operation: Höhe\n".encode("latin-1"))
    (broken,) = load_operation_catalogue(tmp_path, load_folder({"good.yaml": GOOD.decode()})).broken
    assert "the byte 0xf6 is not UTF-8" in broken.error
