"""SQL: values are bound, never inside a literal; time comes from `dagapp.clock()` alone; columns are named."""

import ast
import re
from collections.abc import Iterable, Iterator

from scripts.checks.tree import Finding, SourceFile

_LOOKS_LIKE_SQL = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|CREATE|ALTER|INTERVAL|VALUES)\b")
_PLACEHOLDER = re.compile(r"%(s|b|t|\(\w+\)[sbt])")
_OTHER_CLOCK = re.compile(
    r"\b(now|clock_timestamp|statement_timestamp|transaction_timestamp|timeofday)\s*\(\s*\)"
    r"|\b(current_timestamp|localtimestamp|current_date|current_time)\b",
    re.IGNORECASE,
)
_MAY_READ_ANOTHER_CLOCK = {
    "repositories/migrate.py": "the ledger of migrations is there before dagapp.clock",
    "bench/skeleton.py": "the floor without an engine has no dagapp",
    "bench/tasks.py": "the skeleton without an engine has no dagapp",
}
_CLOCK_ITSELF = re.compile(r"CREATE (OR REPLACE )?FUNCTION dagapp\.clock\(\).*?\$\$;", re.DOTALL)
_ALL_COLUMNS = re.compile(
    r"""(?:\b(?:SELECT(?:\s+(?:ALL|DISTINCT(?:\s+ON\s*\(\s*\))?))?|RETURNING)(?!\w)|,)\s*(?:[\w"{}]+\s*\.\s*)*\*""",
    re.IGNORECASE,
)
"""A `*` with nothing before it in its list; a product has a factor there."""
_LITERAL_OR_COMMENT = re.compile(r"'[^']*'|--[^\n]*")


def check(files: Iterable[SourceFile]) -> Iterator[Finding]:
    """Yield what is wrong in SQL files and in SQL strings of Python modules."""
    for file in files:
        if file.name.startswith("tests/unit/scripts/"):
            continue  # shows the checks what they must find
        if file.name.endswith(".sql"):
            yield from _check_text(file, 1, file.text, placeholders=False)
        elif file.is_python:
            for line, text in sql_strings(file.tree):
                yield from _check_text(file, line, text, placeholders=True)


def sql_strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each string that looks like SQL; docstrings are prose. f-string fields become `{}`."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in prose or id(node) in parts:
            continue
        text = _string(node)
        if text is not None and _LOOKS_LIKE_SQL.search(text):
            yield getattr(node, "lineno", 1), text


def _string(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_string(part) or "{}" for part in node.values)
    return None


def _check_text(file: SourceFile, first_line: int, text: str, *, placeholders: bool) -> Iterator[Finding]:
    text = _LITERAL_OR_COMMENT.sub(lambda found: _blank(found[0]) if found[0].startswith("--") else found[0], text)
    for literal in _literals(text) if placeholders else ():
        if _PLACEHOLDER.search(literal.text):
            message = f"a placeholder inside the SQL literal '{literal.text}'; bind the value, use make_interval(…)"
            yield Finding(file.name, first_line + _line(text, literal.start), message)
    if file.is_test or file.name in _MAY_READ_ANOTHER_CLOCK:
        return
    for found in _OTHER_CLOCK.finditer(_blanked(_CLOCK_ITSELF, text)):
        message = f"{found.group()} in SQL; the one clock is dagapp.clock()"
        yield Finding(file.name, first_line + _line(text, found.start()), message)
    if placeholders and not file.name.startswith("bench/"):  # it never meets another build's tables
        for found in _ALL_COLUMNS.finditer(_outermost(text)):
            all_columns = " ".join(found.group().split()).lstrip(", ")
            message = f"{all_columns} in SQL; name the columns: the next build's tables may have one more"
            yield Finding(file.name, first_line + _line(text, found.end()), message)


def _outermost(text: str) -> str:
    """Return the text with blanks in its literals and parentheses: what is selected in these stays in there."""
    depth, kept = 0, []
    for character in "'".join(_blank(piece) if number % 2 else piece for number, piece in enumerate(text.split("'"))):
        depth = max(depth - (character == ")"), 0)
        kept.append(character if depth == 0 or character == "\n" else " ")
        depth += character == "("
    return "".join(kept)


class _Literal:
    """A single-quoted SQL literal and where it starts."""

    def __init__(self, start: int, text: str) -> None:
        self.start = start
        self.text = text


def _literals(text: str) -> Iterator[_Literal]:
    position = 0
    for number, piece in enumerate(text.split("'")):
        if number % 2:
            yield _Literal(position, piece)
        position += len(piece) + 1


def _blanked(pattern: re.Pattern[str], text: str) -> str:
    """Return the text with matches replaced by blanks, so that lines keep their numbers."""
    return pattern.sub(lambda found: _blank(found.group()), text)


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position)
