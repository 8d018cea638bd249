"""Reports arranged for people: any JSON becomes plain lines, errors first."""

from typing import Any

import pytest

from core.report_view import Tone, report_view, text_of

FINDINGS = [
    {"code": "CRS_FROM_SUBMIT", "level": "info", "field": "crs", "message": "given", "from": None, "to": None},
    {"code": "NODATA_REPLACED", "level": "warning", "field": "nodata", "message": "other", "from": 0, "to": -9999.0},
]
REPORT: dict[str, Any] = {
    "verdict": "accept_with_fixes",
    "findings": FINDINGS,
    "type": {"detected": "elevation", "evidence": "name says dem"},
    "steps": ["resampled", "COG written"],
    "compared": [
        {"name": "crs_code", "before": "EPSG:32633", "after": "EPSG:3857"},
        {"name": "dtype", "before": "float32", "after": "float32"},
        {"name": "bounds", "before": [1.5, 2, 3, 4], "after": None},
    ],
    "cog": {"compression": "deflate", "overviews": [2, 4]},
    "estimate": {"memory_bytes": 300 << 20, "seconds": 2.5, "route": "direct"},
}


def test_a_report_is_arranged_with_warnings_before_the_rest() -> None:
    view = report_view(REPORT, None, "completed")
    assert (view.verdict, view.tone, view.type, view.evidence) == (
        "Accepted with fixes", Tone.FIXED, "elevation", "name says dem",
    )  # fmt: skip
    assert [(line.code, line.tone, line.change) for line in view.lines] == [
        ("NODATA_REPLACED", Tone.FIXED, "0 → -9999"),
        ("CRS_FROM_SUBMIT", Tone.PLAIN, ""),
    ]
    assert [(row.name, row.before, row.after, row.changed) for row in view.compared] == [
        ("CRS", "EPSG:32633", "EPSG:3857", True),
        ("pixel type", "float32", "float32", False),
        ("bounds", "1.5, 2, 3, 4", "–", True),
    ]
    assert ("memory of the largest process", "300.0 MiB") in view.facts
    assert view.steps == ("resampled", "COG written")


def test_a_raster_without_overviews_has_none_and_no_cell_is_blank() -> None:
    compared = [{"name": "crs_code", "before": "", "after": None}, {"name": "", "before": [], "after": " "}]
    view = report_view({"cog": {"compression": "deflate", "overviews": []}, "compared": compared}, None, "completed")
    assert ("overviews", "none") in view.facts
    assert [(row.name, row.before, row.after) for row in view.compared] == [("CRS", "–", "–"), ("–", "none", "–")]


def test_a_failed_version_shows_its_error_and_one_under_way_that_nothing_is_known() -> None:
    error = {"code": "CRS_MISSING", "message": "none", "field": "crs", "remediation": "State it.", "user_fixable": True}
    failed = report_view(None, error, "failed")
    assert (failed.verdict, failed.tone, failed.lines[0].remedy) == ("Rejected", Tone.BAD, "State it.")
    assert report_view(None, {"code": "TASK_TIMEOUT", "user_fixable": False}, "failed").verdict == "Failed"
    assert report_view(None, None, "processing").verdict == "Not yet known: processing"


@pytest.mark.parametrize(
    "report", [{}, {"findings": 7, "type": [], "raster": "x", "compared": [1], "cog": 3, "steps": {}}]
)
def test_a_report_of_any_shape_is_shown(report: dict[str, Any]) -> None:
    view = report_view(report, None, "completed")
    assert (view.lines, view.compared, view.steps) == ((), (), ())


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        ("", "–"),
        (" \u3000\n", "–"),
        ([], "none"),
        ((), "none"),
        ({}, "{}"),
        (["", []], "–, none"),
        (True, "yes"),
        (0.1 + 0.2, "0.3"),
        ([1, [2, "a"]], "1, 2, a"),
        ({"a": 1}, '{"a": 1}'),
        ("a\x1b[31m\u202eb\n", "a\ufffd[31m\ufffdb\ufffd"),
        ("x" * 700, "x" * 600 + "…"),
    ],
)
def test_values_become_plain_text(value: Any, shown: str) -> None:
    assert text_of(value) == shown
