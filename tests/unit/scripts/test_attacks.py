"""The table of attacks in docs/security.md: complete, and each row with a test that `scripts.checks` finds."""

import re

from cli.stack.layout import REPOSITORY

MUST = (
    "forged token", "expired token", "wrong audience", "role escalation", "cross-platform reads",
    "cross-platform sources", "gateway's credential alone", "spoofed easyauth header", "ssrf through a callback",
    "ssrf through a source", "ssrf by redirect", "ssrf by dns rebinding", "path traversal in blob names",
    "oversized bodies", "header injection",
)  # fmt: skip
"""What issue 4 names."""


def rows() -> dict[str, str]:
    page = (REPOSITORY / "docs/security.md").read_text(encoding="utf-8")
    section = page.partition("## Attacks\n")[2].partition("\n## ")[0]
    lines = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {cells[0].removeprefix("| ").lower(): cells[-1] for cells in lines[1:]}


def test_every_attack_that_must_be_tried_has_a_row() -> None:
    assert [attack for attack in MUST if not any(row.startswith(attack) for row in rows())] == []


def test_every_row_names_a_test() -> None:
    found = rows()
    assert len(found) >= len(MUST)
    assert [attack for attack, tests in found.items() if not re.search(r"`tests/[\w/]+\.py", tests)] == []


def test_the_spellings_of_addresses_that_must_be_tried_are() -> None:
    tried = (REPOSITORY / "tests/unit/core/test_webhooks.py").read_text() + (
        REPOSITORY / "tests/integration/business/test_url_sources.py"
    ).read_text()
    for spelling in ("2130706433", "[::1]", "::ffff:", "169.254.169.254", "0x7f", "0177", "64:ff9b"):
        assert spelling in tried
