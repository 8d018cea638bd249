"""The commands on the pages for operators and authors are commands of the program."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from cli.main import app

ROOT = Path(__file__).resolve().parents[3]
PAGES = {"docs/operations.md": 20, "docs/workflow-language.md": 12, "docs/operator-api.md": 1, "README.md": 15}
"""With how many commands each has at least."""
CODE = re.compile(r"```\w*\n(.*?)```|`([^`\n]+)`", re.DOTALL)


def commands(page: str) -> Iterator[list[str]]:
    """Return the words of every geodag command on a page, without comments."""
    for block, inline in CODE.findall((ROOT / page).read_text(encoding="utf-8")):
        for line in (block or inline).splitlines():
            for command in re.split(r"[;>]", line.split("# ")[0]):
                words = shlex.split(command) if "geodag" in command else []
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


@pytest.mark.parametrize("page", PAGES)
def test_every_command_on_the_page_is_one(page: str) -> None:
    found = list(commands(page))
    assert len(found) >= PAGES[page]
    assert {" ".join(words): problem for words in found if (problem := problem_of(words))} == {}


def test_a_command_that_is_none_is_noticed() -> None:
    assert problem_of(["dead-letters", "burn"]) == "there is no burn"
    assert "--burning" in str(problem_of(["dead-letters", "list", "--burning"]))
    assert "extra argument" in str(problem_of(["resume", "all"]))
