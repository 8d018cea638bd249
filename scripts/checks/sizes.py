"""Rooms stay small: modules of at most 400 lines, functions of at most 60, files of at most 1 MiB."""

import ast
from collections.abc import Iterable, Iterator

from scripts.checks.tree import Finding, SourceFile

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_FILE_BYTES = 1 << 20


def check(files: Iterable[SourceFile]) -> Iterator[Finding]:
    """Yield modules, functions and files that are too long; tests may be as long as they need."""
    for file in files:
        if (size := file.path.stat().st_size) > MAX_FILE_BYTES:
            yield Finding(file.name, 1, f"{size} bytes; at most {MAX_FILE_BYTES} belong into the repository")
        if file.is_python and not file.is_test:
            yield from _check_module(file)


def _check_module(file: SourceFile) -> Iterator[Finding]:
    lines = file.text.count("\n")
    if lines > MAX_MODULE_LINES:
        yield Finding(file.name, 1, f"{lines} lines in a module; at most {MAX_MODULE_LINES}")
    for node in ast.walk(file.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                message = f"{node.name} has {length} lines; at most {MAX_FUNCTION_LINES}"
                yield Finding(file.name, node.lineno, message)
