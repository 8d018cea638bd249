"""Following and rotating log files."""

from pathlib import Path

from cli.stack.logs import LogTail, last_lines, rotate


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_only_lines_written_after_the_start_are_followed(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    append(log, "before\n")
    tail = LogTail({"a": log})
    append(log, "after\n")
    assert list(tail.lines()) == [("a", "after")]
    assert list(tail.lines()) == []


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    tail = LogTail({"a": log})
    append(log, "hal")
    assert list(tail.lines()) == []
    append(log, "f\nnext\n")
    assert list(tail.lines()) == [("a", "half"), ("a", "next")]


def test_an_emptied_log_is_followed_from_its_new_start(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    append(log, "a long line before\n")
    tail = LogTail({"a": log})
    rotate(log, limit_bytes=1)
    append(log, "new\n")
    assert list(tail.lines()) == [("a", "new")]


def test_rotation_keeps_the_old_text_and_spares_a_small_log(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    append(log, "x" * 100)
    assert not rotate(log, limit_bytes=100)
    assert rotate(log, limit_bytes=99)
    assert log.read_text() == ""
    assert (tmp_path / "a.log.1").read_text() == "x" * 100


def test_the_last_lines_of_a_missing_log_are_none(tmp_path: Path) -> None:
    assert last_lines(tmp_path / "none.log", 3) == []


def test_the_last_lines_are_the_newest(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "1\n2\n3\n")
    assert last_lines(tmp_path / "a.log", 2) == ["2", "3"]
