"""Generated parts of the documents come from the code and nowhere else."""

import pytest

from core.handlers_catalog import CATALOG
from core.statuses import ATTEMPT_TRANSITIONS, JOB_TRANSITIONS
from scripts import generated_docs

STALE = "before\n<!-- generated: states -->\nstale\n<!-- /generated -->\nafter\n"


def test_a_diagram_has_every_move_of_its_table() -> None:
    lines = set(generated_docs.diagram(JOB_TRANSITIONS).splitlines())
    moves = {f"    {source} --> {target}" for source, targets in JOB_TRANSITIONS.items() for target in targets}
    assert moves <= lines
    assert "    [*] --> PENDING" in lines
    assert "    COMPLETED --> [*]" in lines


def test_a_state_that_can_still_move_is_not_drawn_as_final() -> None:
    assert "    parked --> [*]" not in generated_docs.diagram(ATTEMPT_TRANSITIONS)


def test_the_access_table_has_a_row_for_each_door() -> None:
    assert "| tiles | public | public | internal | review |" in generated_docs.access().splitlines()


def test_settings_say_what_is_required_and_what_is_the_default() -> None:
    lines = generated_docs.settings().splitlines()
    assert any(line.startswith("| `SERVING_PORT` | **required** |") for line in lines)
    assert any(line.startswith("| `LOG_LEVEL` | `INFO` |") for line in lines)
    assert sum("`POSTGRES_HOST`" in line for line in lines) == 1


def test_updating_a_page_twice_changes_nothing_more() -> None:
    once = generated_docs.updated(STALE)
    assert "stale" not in once
    assert once.startswith("before\n")
    assert once.endswith("\nafter\n")
    assert generated_docs.updated(once) == once


def test_the_page_of_handlers_tells_each_field_of_each() -> None:
    page = generated_docs.FILES["docs/handlers.md"]()
    for spec in CATALOG.values():
        section = page.partition(f"\n## {spec.name}\n")[2].partition("\n## ")[0]
        assert spec.description
        assert spec.description in section
        for name in (*spec.params.model_fields, *spec.output.model_fields):
            assert f"| `{name}` |" in section


@pytest.mark.parametrize("page", ["no part", STALE.replace("states", "weather")])
def test_a_page_without_a_known_part_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="generated part"):
        generated_docs.updated(page)
