"""A validation report as the terminal shows it."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from core.report_view import Line, ReportView, Tone

_STYLES = {Tone.GOOD: "green", Tone.FIXED: "yellow", Tone.BAD: "red", Tone.PLAIN: "dim"}


def picture_of(view: ReportView, title: str) -> Group:
    """Return a report for the terminal; words of partners are never read as markup."""
    parts: list[Text | Table] = [Text(title, style="bold"), Text(view.verdict, style=f"bold {_STYLES[view.tone]}")]
    if view.type != "–":
        parts.append(Text(f"{view.type}, because: {view.evidence}"))
    parts += [_findings(view.lines)] if view.lines else [Text("Nothing was noticed.")]
    parts += [Text(f"{place}. {step}") for place, step in enumerate(view.steps, 1)]
    if view.compared:
        parts.append(_compared(view))
    parts += [Text(f"{name}: {value}", style="dim") for name, value in view.facts]
    return Group(*parts)


def _findings(lines: tuple[Line, ...]) -> Table:
    table = Table("level", "code", "field", "what", title="Findings", title_justify="left", title_style="bold")
    for line in lines:
        said = " ".join(part for part in (line.message, line.change, line.remedy) if part)
        level = Text(line.level, style=_STYLES[line.tone])
        table.add_row(level, Text(line.code), Text(line.field), Text(said))
    return table


def _compared(view: ReportView) -> Table:
    table = Table("property", "before", "after", title="Before and after", title_justify="left", title_style="bold")
    for row in view.compared:
        table.add_row(Text(row.name), Text(row.before), Text(row.after, style="yellow" if row.changed else ""))
    return table
