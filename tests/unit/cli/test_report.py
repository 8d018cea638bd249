"""Reports in the terminal: words of partners are neither markup nor control sequences."""

import io

from rich.console import Console

from cli.report_picture import picture_of
from core.report_view import report_view
from tests.unit.core.test_report_view import REPORT


def shown(title: str, report: dict[str, object]) -> str:
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(picture_of(report_view(report, None, "completed"), title))
    return console.export_text()


def test_everything_of_a_report_is_printed() -> None:
    text = shown("A relief", REPORT)
    for part in ("A relief", "Accepted with fixes", "NODATA_REPLACED", "0 → -9999", "2. COG written", "EPSG:3857"):
        assert part in text


def test_markup_and_control_sequences_stay_text() -> None:
    text = shown("[red]x[/]", REPORT | {"steps": ["[link=http://evil]a[/link]\x1b[2J"]})
    assert "[red]x[/]" in text
    assert "[link=http://evil]a[/link]\ufffd[2J" in text
