"""What commands print: tables and panels for people, JSON for programs.

Nothing else in `cli/` prints, so data is made harmless here alone: what would move the cursor, ring, begin a line or
turn text around on somebody's terminal is shown as its escape, and never read as markup.
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

Json = dict[str, Any]
PIPED_WIDTH = 160
NARROWEST = 4
"""Characters of a column that gives way to ids: the last is an ellipsis."""
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
STATE_COLUMNS = frozenset({"status", "state", "review", "event_status"})
FRACTION: Final = re.compile(r"(?<=:\d\d)\.\d+(?=Z|[+-])")
"""Of the second, of a time in a list."""
HARMFUL: Final = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters but the tab, line separators, marks of direction, halves of surrogates."""


def printable(text: str) -> str:
    """Return a text as one line, with the escapes of Python for what a terminal would obey."""
    return HARMFUL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def printable_lines(text: str) -> str:
    """Return a text whose line ends are meant, with each of its lines printable."""
    return "\n".join(map(printable, text.split("\n")))


def plain(text: str, style: str = "") -> Text:
    """Return data as one line of Rich."""
    return Text(printable(text), style=style)


def console(*, stderr: bool = False) -> Console:
    """Return a console: as wide as the terminal, and wide enough for whole ids where there is none."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(width=None if stream.isatty() else PIPED_WIDTH, stderr=stderr, markup=False, highlight=False)


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a JSON document that is as harmless as a text."""
    document = json.dumps(value, indent=indent, ensure_ascii=False)
    return "\n".join(HARMFUL.sub(lambda one: f"\\u{ord(one[0]):04x}", line) for line in document.split("\n"))


def print_json(value: Any, *, stderr: bool = False) -> None:
    """Print one JSON document; to stderr on one line."""
    if stderr:
        sys.stderr.write(json_text(value) + "\n")
    else:
        sys.stdout.write(json_text(value, indent=2) + "\n")


def print_text(text: str) -> None:
    """Print lines as they are, neither wrapped nor coloured."""
    sys.stdout.write(printable_lines(text))


def counted(number: int, noun: str) -> str:
    """Return a number of things in words."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def words_of(value: Any) -> str:
    """Return a value as the few words that stand behind a name in a line: `a,b` of a list, `a:1,b:2` of a mapping."""
    if isinstance(value, Mapping):
        return ",".join(f"{name}:{words_of(one)}" for name, one in value.items())
    if isinstance(value, list):
        return ",".join(map(words_of, value))
    return value if isinstance(value, str) else json.dumps(value)


def none_matches(wanted: Json) -> str:
    """Return the line that says instead of an empty table that a filter means no job; what is None was not asked."""
    said = ", ".join(f"{name}={value}" for name, value in wanted.items() if value is not None)
    return f"No job matches {said}\n" if said else "There are no jobs\n"


def print_error(words: str, text: str = "") -> None:
    """Print words of ours in red and what they are about to stderr."""
    told = plain(words, "bold red")
    console(stderr=True).print(told.append(printable_lines(text), style="not bold default"), soft_wrap=True)


def print_warning(text: str) -> None:
    """Print a warning of some lines to stderr."""
    told = Text("Warning: ", style="bold yellow")
    console(stderr=True).print(told.append(printable_lines(text), style="not bold default"), soft_wrap=True)


def styled(state: str | None) -> Text:
    """Return a state in its colour."""
    return plain(state, STATE_STYLES.get(state, "")) if state else Text("–")


def titled_table(title: str, columns: Iterable[str] = (), *, style: str = "bold", header: bool = True) -> Table:
    """Return an empty table."""
    return Table(*columns, title=plain(title), title_justify="left", title_style=style, show_header=header)


def key_value_table(title: str, rows: Json, *, style: str = "bold") -> Table:
    """Return a two-column table; lists and objects are shown as JSON."""
    table = titled_table(title, style=style, header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in rows.items():
        table.add_row(plain(key), _shown(value))
    return table


def row_table(title: str, columns: tuple[str, ...], rows: list[Json]) -> Table:
    """Return one table line per row, only the named columns; ids are never cut, whatever becomes of the others."""
    table = titled_table(title)
    for column in columns:
        is_id = column.endswith("_id") or column == "name"
        widest = max((_cell(column, row.get(column)).cell_len for row in rows), default=0) if is_id else None
        table.add_column(column, overflow="fold" if is_id else "ellipsis", min_width=widest, no_wrap=is_id)
    for row in rows:
        table.add_row(*(_cell(column, row.get(column)) for column in columns))
    return table


def _cell(column: str, value: Any) -> Text:
    if value is None:
        return Text("–")
    if column.endswith("_at") and isinstance(value, str):
        value = FRACTION.sub("", value)
    return styled(str(value)) if column in STATE_COLUMNS else _shown(value)


def _shown(value: Any) -> Text:
    if isinstance(value, Text):
        return value
    return plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def print_table(table: RenderableType, *, stderr: bool = False) -> None:
    """Print a table, and one whose ids need more than there is wider than that: nothing is cut without a mark."""
    place = console(stderr=stderr)
    if isinstance(table, Table):
        place.width = max(place.width, sum((one.min_width or NARROWEST) + len(" │ ") for one in table.columns) + 1)
    place.print(table)


def show(value: Any, picture: RenderableType, *, as_json: bool) -> None:
    """Print a value as JSON, or its picture for people, which is a table or a group of them."""
    if as_json:
        print_json(value)
        return
    for table in picture.renderables if isinstance(picture, Group) else (picture,):
        print_table(table)
