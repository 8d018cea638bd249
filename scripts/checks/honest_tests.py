"""Tests are honest: hardly a mock, none skipped."""

import ast
from collections.abc import Iterable, Iterator

from scripts.checks.tree import Finding, SourceFile

MOCKS_PER_100_TESTS = 5
_MOCKS = frozenset({"Mock", "MagicMock", "AsyncMock", "NonCallableMock", "create_autospec", "patch"})
_SKIPS = frozenset({"skip", "skipif", "xfail", "importorskip"})


def check(files: Iterable[SourceFile]) -> Iterator[Finding]:
    """Yield skipped tests, and every mock when there are more than 5 to 100 tests."""
    modules = [file for file in files if file.is_test and file.is_python]
    tests = sum(_count_tests(module) for module in modules)
    mocks = [found for module in modules for found in _calls(module, _MOCKS)]
    if len(mocks) * 100 > tests * MOCKS_PER_100_TESTS:
        for file, line, name in mocks:
            message = f"{name}: {len(mocks)} mocks in {tests} tests; at most {MOCKS_PER_100_TESTS} to 100"
            yield Finding(file, line, message)
    for module in modules:
        for file, line, name in _calls(module, _SKIPS):
            yield Finding(file, line, f"{name}: no test is skipped; what is missing must fail loudly")


def _count_tests(module: SourceFile) -> int:
    functions = (n for n in ast.walk(module.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return sum(function.name.startswith("test_") for function in functions)


def _calls(module: SourceFile, names: frozenset[str]) -> Iterator[tuple[str, int, str]]:
    """Yield uses `name(…)`, `unittest.mock.name(…)`, `pytest.mark.name` and `pytest.name(…)`."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield module.name, node.lineno, node.func.id
        if isinstance(node, ast.Attribute) and node.attr in names and _owner(node) in {"pytest", "mark", "mock"}:
            yield module.name, node.lineno, node.attr


def _owner(node: ast.Attribute) -> str | None:
    if isinstance(node.value, ast.Attribute):
        return node.value.attr
    return node.value.id if isinstance(node.value, ast.Name) else None
