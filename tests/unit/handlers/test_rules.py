"""The table of rules and the handlers agree, and each rule has a test that fails once the rule is forgotten."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from core.raster_rules import RULES, by_subject
from tests.support.forgetting import ROOT

HANDLERS = Path(__file__).parents[3] / "handlers"
CALLS = {"reject": "error", "stop": "error", "warn": "warning", "info": "info"}


def used() -> Iterator[tuple[str, str]]:
    """Yield code and level of every finding that the raster handlers may make."""
    for path in [*(HANDLERS / "raster").glob("*.py"), *(HANDLERS / "stac").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS:
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value.isupper():
                    yield first.value, CALLS[node.func.attr]


def test_the_table_has_every_code_that_handlers_use_and_no_other() -> None:
    assert {(rule.code, str(rule.level)) for rule in RULES} == set(used())


def test_ids_are_unique_and_rules_of_a_subject_stand_together() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert [rule for _, rules in by_subject() for rule in rules] == list(RULES)


def test_every_rule_is_a_sentence() -> None:
    assert [rule.id for rule in RULES if not rule.sentence.endswith(".") or not rule.sentence[0].isupper()] == []


def test_each_rule_has_a_test_that_fails_when_the_rule_is_forgotten() -> None:
    tests = sorted({ROOT + rule.test for rule in RULES})
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.support.forgetting", *tests]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HANDLERS.parent, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
