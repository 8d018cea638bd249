"""`core` is pure: standard library without I/O, pydantic, PyYAML, Jinja2; time and ids come in as arguments."""

import ast
import sys
from collections.abc import Iterable, Iterator

from scripts.checks.tree import Finding, SourceFile

THIRD_PARTY = frozenset({"core", "pydantic", "pydantic_core", "yaml", "jinja2"})
IMPURE = frozenset(
    {
        "asyncio", "concurrent", "ctypes", "fcntl", "http", "io", "logging", "mmap", "multiprocessing", "os", "random",
        "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "sys",
        "tempfile", "threading", "time", "uuid",
    }
)  # fmt: skip
"""Modules of the standard library that reach a file, clock, random source, environment, logger or event loop."""
_READS_CLOCK = frozenset({"now", "utcnow", "today"})


def check(files: Iterable[SourceFile]) -> Iterator[Finding]:
    """Yield imports and calls in `core` that are none of a pure package's business."""
    for file in files:
        if file.is_python and file.name.startswith("core/"):
            yield from _check_module(file)


def _check_module(file: SourceFile) -> Iterator[Finding]:
    for node in ast.walk(file.tree):
        for name in _imported(node):
            root = name.partition(".")[0]
            if root in IMPURE or name == "urllib.request":
                yield Finding(file.name, node.lineno, f"core imports {name}, which does I/O")  # type: ignore[attr-defined]
            elif root not in THIRD_PARTY and root not in sys.stdlib_module_names:
                yield Finding(file.name, node.lineno, f"core imports {name}, which is not among its own")  # type: ignore[attr-defined]
        if isinstance(node, ast.Call) and (complaint := _impure_call(node)):
            yield Finding(file.name, node.lineno, complaint)


def _imported(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Import):
        return tuple(alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "",)
    return ()


def _impure_call(call: ast.Call) -> str | None:
    if isinstance(call.func, ast.Name) and call.func.id in {"open", "print", "input"}:
        return f"core calls {call.func.id}()"
    if isinstance(call.func, ast.Attribute) and call.func.attr in _READS_CLOCK and not call.args:
        return f"core reads a clock: {call.func.attr}(); time comes in as an argument"
    return None
