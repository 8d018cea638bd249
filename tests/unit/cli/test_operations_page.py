"""The commands on the operators' page are commands of the program."""

import re
from collections.abc import Iterator
from pathlib import Path

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from cli.main import app

PAGE = Path(__file__).resolve().parents[3] / "docs" / "operations.md"
CODE = re.compile(r"```bash\n(.*?)```|`([^`\n]+)`", re.DOTALL)


def commands() -> Iterator[list[str]]:
    """Return the words of every geodag command on the page, without comments."""
    for block, inline in CODE.findall(PAGE.read_text(encoding="utf-8")):
        for line in (block or inline).splitlines():
            for command in line.split("# ")[0].split(";"):
                words = command.split()
                if words[:1] == ["geodag"] and len(words) > 1:
                    yield words[1:]


def problem_of(words: list[str]) -> str | None:
    """Return what the program would not understand."""
    command = typer.main.get_command(app)
    rest = list(words)
    while isinstance(command, TyperGroup):
        if not rest:
            return None
        name = rest.pop(0)
        if name not in command.commands:
            return f"there is no {name}"
        command = command.commands[name]
    try:
        command.make_context(words[-1], rest)
    except typer.BadParameter:
        return None  # a value that is only said, as <job>, or one left out
    except TyperException as error:
        return str(error)
    return None


def test_every_command_on_the_page_is_one() -> None:
    found = list(commands())
    assert len(found) >= 20
    assert {" ".join(words): problem for words in found if (problem := problem_of(words))} == {}


def test_a_command_that_is_none_is_noticed() -> None:
    assert problem_of(["dead-letters", "burn"]) == "there is no burn"
    assert "--burning" in str(problem_of(["dead-letters", "list", "--burning"]))
    assert "extra argument" in str(problem_of(["resume", "all"]))
