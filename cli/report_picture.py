"""A validation report as the terminal shows it."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from cli.output import plain, titled_table
from core.report_view import Line, ReportView, Tone

_STYLES = {Tone.GOOD: "green", Tone.FIXED: "yellow", Tone.BAD: "red", Tone.PLAIN: "dim"}


def picture_of(view: ReportView, title: str) -> Group:
    """Return a report for the terminal; words of partners are never read as markup."""
    parts: list[Text | Table] = [plain(title, style="bold"), plain(view.verdict, style=f"bold {_STYLES[view.tone]}")]
    if view.type != "–":
        parts.append(plain(f"{view.type}, because: {view.evidence}"))
    parts += [_findings(view.lines)] if view.lines else [plain("Nothing was noticed.")]
    parts += [plain(f"{place}. {step}") for place, step in enumerate(view.steps, 1)]
    if view.compared:
        parts.append(_compared(view))
    parts += [plain(f"{name}: {value}", style="dim") for name, value in view.facts]
    return Group(*parts)


def _findings(lines: tuple[Line, ...]) -> Table:
    table = titled_table("Findings", ("level", "code", "field", "what"))
    for line in lines:
        said = " ".join(part for part in (line.message, line.change, line.remedy) if part)
        level = plain(line.level, style=_STYLES[line.tone])
        table.add_row(level, plain(line.code), plain(line.field), plain(said))
    return table


def _compared(view: ReportView) -> Table:
    table = titled_table("Before and after", ("property", "before", "after"))
    for row in view.compared:
        table.add_row(plain(row.name), plain(row.before), plain(row.after, style="yellow" if row.changed else ""))
    return table
