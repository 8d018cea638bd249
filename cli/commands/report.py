"""`geodag report`: what validation said about a version, in the terminal or as a page."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from cli.commands.review import AssetArgument, VersionArgument, call
from cli.options import DEFAULT_HOME, HomeOption, JsonOption
from cli.output import console, print_json
from cli.target import Target
from core.report_view import Line, ReportView, Tone, report_view

Json = dict[str, Any]
_STYLES = {Tone.GOOD: "green", Tone.FIXED: "yellow", Tone.BAD: "red", Tone.PLAIN: "dim"}


def report(
    asset_id: AssetArgument,
    version: VersionArgument = 0,
    html: Annotated[Path | None, typer.Option(help="Write the page with pictures to this file instead.")] = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Show the validation report of a version: verdict, findings, what was done, before and after."""
    target = Target.of(home)
    if html is not None:
        url = f"{target.urls.serving}/report/{asset_id}?version={version}"
        html.write_bytes(asyncio.run(_page(target, url)))
        console().print(f"written to {escape(str(html))}", highlight=False)
        return
    answer = call(target, "reviewer", "GET", f"/api/assets/{asset_id}/versions/{version}")
    if as_json:
        print_json(answer["report"])
        return
    view = report_view(answer["report"], answer["error"], answer["processing_state"])
    console().print(picture_of(view, str(answer["title"])))


async def _page(target: Target, url: str) -> bytes:
    async with target.client("reviewer") as client:
        return await client.get_bytes(url)


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
