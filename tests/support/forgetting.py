"""A pytest plugin that proves tests of rules: each runs with its rule forgotten, and has to fail.

`python -m pytest -p tests.support.forgetting TESTS`; exits with 1 and names the rules whose test passes without them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import pytest
from _pytest.runner import runtestprotocol

from core.raster_rules import RULES, Rule
from handlers.raster.findings import Findings

ROOT: Final = "tests/unit/handlers/"


class _Forgetful(list[Any]):
    """Findings or errors without those of one rule."""

    def __init__(self, rule: Rule) -> None:
        super().__init__()
        self._rule = rule

    def append(self, found: Any) -> None:
        if found.code != self._rule.code or self._rule.field not in (found.field, None):
            super().append(found)


@contextmanager
def forgotten(rule: Rule) -> Iterator[None]:
    """Let no handler carry out a rule."""

    def start(self: Findings) -> None:
        original(self)
        self.errors, self.findings = _Forgetful(rule), _Forgetful(rule)

    original = Findings.__init__
    with patch.object(Findings, "__init__", start):
        yield


class Prover:
    """Runs each test once for each of its rules that is not proven yet."""

    def __init__(self) -> None:
        self.unproven = {rule.id: rule for rule in RULES}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run one test with each of its rules forgotten."""
        name = item.nodeid.partition("[")[0]
        for rule in [rule for rule in self.unproven.values() if ROOT + rule.test == name]:
            item._initrequest()  # type: ignore[attr-defined]
            with forgotten(rule):
                reports = runtestprotocol(item, log=False, nextitem=item)
            if any(report.when == "call" and report.failed for report in reports):
                del self.unproven[rule.id]
        item.session._setupstate.teardown_exact(nextitem)
        return True

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail when the test of a rule passes without it."""
        session.exitstatus = pytest.ExitCode.TESTS_FAILED if self.unproven else pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Name the rules that are not proven."""
        for rule_id in self.unproven:
            terminalreporter.write_line(f"forgotten without a failure: {rule_id}")


def pytest_configure(config: pytest.Config) -> None:
    """Put the prover in charge."""
    config.pluginmanager.register(Prover())
