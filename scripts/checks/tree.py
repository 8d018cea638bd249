"""The files of the project as the checks see them."""

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a check complains about."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class SourceFile:
    """One file: its name relative to the project's root, its text and, for Python, its tree."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.name = name

    @property
    def path(self) -> Path:
        """Return where the file lies."""
        return self.root / self.name

    @property
    def is_python(self) -> bool:
        """Return whether this is a Python module."""
        return self.name.endswith(".py")

    @property
    def is_test(self) -> bool:
        """Return whether this belongs to the tests."""
        return self.name.startswith("tests/")

    @cached_property
    def text(self) -> str:
        """Return the text; bytes that are no UTF-8 are replaced, so binary files pass through harmlessly."""
        return self.path.read_text(encoding="utf-8", errors="replace")

    @cached_property
    def tree(self) -> ast.Module:
        """Return the syntax tree of a Python module."""
        return ast.parse(self.text, self.name)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield (number, text) of each line, from 1."""
        return enumerate(self.text.splitlines(), start=1)


def project_files(root: Path) -> tuple[SourceFile, ...]:
    """Return every file that git knows or would add, sorted by name."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    names = sorted({name for name in listed.split("\0") if name})
    return tuple(SourceFile(root, name) for name in names if (root / name).is_file())
