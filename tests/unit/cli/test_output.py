"""Tables for people, JSON for programs, and nothing of it that a terminal would obey."""

import ast
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console, Group

from cli.errors import CliError, ProcessingFailed, Refused, error_table, show_error
from cli.output import HARMFUL, console, json_text, key_value_table, row_table, show, styled, words_of

CLI = Path(__file__).parents[3] / "cli"


def test_an_id_is_whole_however_narrow_the_terminal_is() -> None:
    columns = ("asset_id", "title", "submitted_by", "pending_since", "due_at", "verdict")
    row: dict[str, Any] = {name: f"{name} and much more of it" for name in columns} | {
        "asset_id": "0123456789abcdef" * 2
    }
    rows: list[dict[str, Any]]
    for rows, shown in (([row, {"asset_id": None}], True), ([], False)):
        out = io.StringIO()
        Console(file=out, width=80).print(row_table("Reviews", columns, rows))
        assert (row["asset_id"] in out.getvalue()) == shown


def test_a_table_that_needs_more_than_there_is_goes_beyond_it_and_is_not_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cli.output.PIPED_WIDTH", 60)
    row = {name: f"{name}-" + "x" * 30 for name in ("job_id", "asset_id", "note", "when")}
    table = row_table("Wide", tuple(row), [row])
    for picture in (table, Group(key_value_table("Facts", {"a": 1}), table)):
        show(row, picture, as_json=False)
        shown = capsys.readouterr().out
        assert row["job_id"] in shown
        assert row["asset_id"] in shown
        wide = [line for line in shown.splitlines() if "job_id-" in line]
        assert all(line.endswith("│") and line.count("…") == 2 for line in wide)


def test_times_in_lists_are_told_to_the_second(capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "job_id": "j",
        "created_at": "2026-11-29T17:06:30.622701Z",
        "note": "took 1.5",
        "until_at": "00:00:01.5+02:00",
    }
    show(row, row_table("Jobs", tuple(row), [row]), as_json=False)
    shown = capsys.readouterr().out
    assert all(words in shown for words in ("2026-11-29T17:06:30Z ", "took 1.5", "00:00:01+02:00"))


NASTY = st.text(st.characters() | st.sampled_from("\x1b\x07\r\n\x9b\x7f\u202e[/]:"), max_size=20)
VALUES = st.recursive(st.none() | st.booleans() | st.integers() | NASTY, lambda inner: st.lists(inner, max_size=2))
ROWS = st.fixed_dictionaries(dict.fromkeys(("job_id", "status", "name", "message"), VALUES))


def written(picture: object, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what reaches a terminal that knows neither colours nor styles."""
    out = io.StringIO()
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", out)
        console().print(picture)
    return out.getvalue()


def harmless(text: str) -> bool:
    """Return whether a terminal only writes it, line for line."""
    return HARMFUL.sub("", text.replace("\n", "")) == text.replace("\n", "")


@given(title=NASTY, row=ROWS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_table_lets_data_command_the_terminal(monkeypatch: pytest.MonkeyPatch, title: str, row: Any) -> None:
    facts = {str(value): value for value in row.values()}
    detail = {"code": row["message"], "detail": title, "value": row["name"]}
    for picture in (
        row_table(title, tuple(row), [row]),
        key_value_table(title, facts | {"state": styled(title)}),
        error_table(title, detail),
    ):
        assert harmless(written(picture, monkeypatch))
    table = row_table("Jobs", tuple(row), [row])
    assert len(written(table, monkeypatch).splitlines()) < 60


@given(VALUES)
def test_json_says_the_same_and_commands_nothing(value: Any) -> None:
    for indent in (None, 2):
        document = json_text(value, indent)
        assert harmless(document)
        assert json.loads(document) == value


def test_lines_and_markup_of_data_stay_in_their_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = written(row_table("[b]x[/b]", ("code",), [{"code": "[red]a\x1b[2J\nb\x07[/red]"}]), monkeypatch)
    assert r"[red]a\x1b[2J\nb\x07[/red]" in shown
    assert "[b]x[/b]" in shown


def test_errors_are_as_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    for error in (
        CliError("[/]a\x1bb\nc"),
        Refused(400, {"detail": "\x1b[2J[/]"}),
        ProcessingFailed({"state": "\x1b"}),
    ):
        for as_json in (False, True):
            show_error(error, as_json=as_json)
            assert harmless(capsys.readouterr().err)


def test_nothing_else_of_the_program_prints() -> None:
    printers = {
        "Console",
        "Table",
        "Text",
        "print",
        "sys.stdout.write",
        "sys.stderr.write",
        "typer.echo",
        "typer.secho",
    }
    found = {
        f"{file.relative_to(CLI)}: {name}"
        for file in CLI.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in printers
    }
    assert found == {
        "output.py: " + name for name in ("Console", "Table", "Text", "sys.stdout.write", "sys.stderr.write")
    }


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (["split__3", "split__7"], "split__3,split__7"),
        ({"queue": "light", "n": 3, "late": True, "since": None}, "queue:light,n:3,late:true,since:null"),
        ([{"a": ["b", 1.5]}], "a:b,1.5"),
        ("two words", "two words"),
        ([], ""),
    ],
)
def test_values_stand_in_a_line_without_the_signs_of_python(value: Any, words: str) -> None:
    assert words_of(value) == words
