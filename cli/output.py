"""What commands print: tables and panels for people, JSON for programs."""

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

Json = dict[str, Any]
PIPED_WIDTH = 160
STATE_STYLES = {
    "completed": "green",
    "COMPLETED": "green",
    "approved": "green",
    "failed": "red",
    "FAILED": "red",
    "rejected": "red",
    "cancelled": "yellow",
    "CANCELLED": "yellow",
    "pending_review": "yellow",
}


def console() -> Console:
    """Return the console for answers: as wide as the terminal, and wide enough for whole ids where there is none."""
    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)


def print_json(value: Any) -> None:
    """Print one JSON document."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def styled(state: str | None) -> str:
    """Return a state in its colour."""
    if not state:
        return "–"
    style = STATE_STYLES.get(state)
    return f"[{style}]{state}[/]" if style else state


def key_value_table(title: str, rows: Json) -> Table:
    """Return a two-column table; lists and objects are shown as JSON."""
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in rows.items():
        table.add_row(key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return table


def row_table(title: str, columns: tuple[str, ...], rows: list[Json]) -> Table:
    """Return one table line per row, only the named columns; ids are never cut, whatever becomes of the others."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        is_id = column.endswith("_id") or column == "name"
        widest = max((len(_cell(column, row.get(column))) for row in rows), default=0) if is_id else None
        table.add_column(column, overflow="fold" if is_id else "ellipsis", min_width=widest)
    for row in rows:
        table.add_row(*(_cell(column, row.get(column)) for column in columns))
    return table


def _cell(column: str, value: Any) -> str:
    if value is None:
        return "–"
    if column in {"status", "state", "review", "event_status"}:
        return styled(str(value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def show(value: Any, renderable: object, *, as_json: bool) -> None:
    """Print a value as JSON, or its picture for people."""
    if as_json:
        print_json(value)
    else:
        console().print(renderable)
