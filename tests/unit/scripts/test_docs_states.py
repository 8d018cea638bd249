"""The state diagrams come from the tables and nowhere else."""

import pytest

from core.statuses import ATTEMPT_TRANSITIONS, JOB_TRANSITIONS
from scripts import docs_states


def test_a_diagram_has_every_move_of_its_table() -> None:
    lines = set(docs_states.diagram(JOB_TRANSITIONS).splitlines())
    moves = {f"    {source} --> {target}" for source, targets in JOB_TRANSITIONS.items() for target in targets}
    assert moves <= lines
    assert "    [*] --> PENDING" in lines
    assert "    COMPLETED --> [*]" in lines


def test_a_state_that_can_still_move_is_not_drawn_as_final() -> None:
    assert "    parked --> [*]" not in docs_states.diagram(ATTEMPT_TRANSITIONS)


def test_updating_a_page_twice_changes_nothing_more() -> None:
    page = f"before\n{docs_states.BEGIN}\nstale\n{docs_states.END}\nafter\n"
    once = docs_states.updated(page)
    assert "stale" not in once
    assert once.startswith("before\n")
    assert once.endswith("\nafter\n")
    assert docs_states.updated(once) == once


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the markers"):
        docs_states.updated("no markers")
