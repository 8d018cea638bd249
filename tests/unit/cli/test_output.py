"""Tables for people."""

import io

from rich.console import Console

from cli.output import row_table


def test_an_id_is_whole_however_narrow_the_terminal_is() -> None:
    columns = ("asset_id", "title", "submitted_by", "pending_since", "due_at", "verdict")
    row = {name: f"{name} and much more of it" for name in columns} | {"asset_id": "0123456789abcdef" * 2}
    for rows, shown in (([row, {"asset_id": None}], True), ([], False)):
        out = io.StringIO()
        Console(file=out, width=80).print(row_table("Reviews", columns, rows))
        assert (row["asset_id"] in out.getvalue()) == shown
