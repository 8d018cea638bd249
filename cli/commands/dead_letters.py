"""`geodag dead-letters`: messages that nobody could use."""

from typing import Annotated

import typer

from cli.operator import Json, ReasonOption, operate
from cli.options import DEFAULT_HOME, HomeOption, JsonOption
from cli.output import key_value_table, row_table, show

app = typer.Typer(no_args_is_help=True, help="Messages that nobody could use.")

COLUMNS = ("dead_letter_id", "classification", "queue", "task_id", "reason", "dead_at", "resolution", "resolved_by")
IdArgument = Annotated[int, typer.Argument(min=0, help="Its number in the list.")]


@app.command("list")
def list_letters(
    settled: Annotated[bool, typer.Option("--settled", help="Also those that were replayed or discarded.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """List dead letters, the newest first."""
    query = f"dead-letters?limit={limit}" + ("&settled=true" if settled else "")
    rows = operate(home, "GET", query)["dead_letters"]
    show(rows, row_table("Dead letters", COLUMNS, rows), as_json=as_json)


@app.command()
def replay(
    letter: IdArgument, reason: ReasonOption = None, home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False
) -> None:
    """Let the task be sent again; `attempt_over` says that it is past, then retry the job."""
    _show(operate(home, "POST", f"dead-letters/{letter}/replay", {"reason": reason}), as_json)


@app.command()
def discard(
    letter: IdArgument, reason: ReasonOption = None, home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False
) -> None:
    """Put a letter away."""
    _show(operate(home, "POST", f"dead-letters/{letter}/discard", {"reason": reason}), as_json)


def _show(answer: Json, as_json: bool) -> None:
    facts = {name: answer[name] for name in ("dead_letter_id", "task_id", "resolution", "resolved_by")}
    show(answer, key_value_table("Settled", facts), as_json=as_json)
