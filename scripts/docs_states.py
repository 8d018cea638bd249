"""Draws the state diagrams of docs/architecture.md from the transition tables of `core/statuses.py`.

`python -m scripts.docs_states` rewrites the part between the markers; `scripts/check` fails when it is not current.
"""

import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from core.statuses import ATTEMPT_TRANSITIONS, JOB_TRANSITIONS, NODE_TRANSITIONS

PAGE: Final = "docs/architecture.md"
BEGIN: Final = "<!-- states: written by scripts/docs_states.py -->"
END: Final = "<!-- /states -->"
TABLES: Final[Mapping[str, Mapping[Any, frozenset[Any]]]] = {
    "Job": JOB_TRANSITIONS,
    "Node": NODE_TRANSITIONS,
    "Attempt": ATTEMPT_TRANSITIONS,
}


def diagram(table: Mapping[StrEnum, frozenset[StrEnum]]) -> str:
    """Return a Mermaid state diagram; the first state of the table is where everything starts."""
    order = list(table)
    lines = ["stateDiagram-v2", f"    [*] --> {order[0]}"]
    for source, targets in table.items():
        lines += [f"    {source} --> {target}" for target in sorted(targets, key=order.index)]
        lines += [] if targets else [f"    {source} --> [*]"]
    return "\n".join(lines)


def section() -> str:
    """Return the generated part of the page, markers included."""
    parts = [f"**{name}**\n\n```mermaid\n{diagram(table)}\n```" for name, table in TABLES.items()]
    return "\n\n".join([BEGIN, *parts, END])


def updated(page: str) -> str:
    """Return the page with a current generated part.

    Raises:
        ValueError: the page lacks one of the markers.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} lacks the markers {BEGIN} and {END}")
    return before + section() + after


def main() -> int:
    """Rewrite the page where it is not current."""
    path = Path(__file__).resolve().parents[1] / PAGE
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
