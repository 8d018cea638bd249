"""`geodag report`: what validation said about a version, in the terminal or as a page."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.commands.review import AssetArgument, VersionArgument, call
from cli.options import DEFAULT_HOME, HomeOption, JsonOption
from cli.output import console, print_json, print_text
from cli.report_picture import picture_of
from cli.target import Target
from core.report_view import report_view

Json = dict[str, Any]


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
        print_text(f"written to {html}\n")
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
