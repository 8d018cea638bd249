"""`geodag pause`, `resume` and `pauses`: the switches of everything, one workflow, one queue."""

from typing import Annotated

import typer

from cli.commands.submit import WrongCommandLine
from cli.operator import operate, segment
from cli.options import DEFAULT_HOME, HomeOption, JsonOption
from cli.output import key_value_table, row_table, show

COLUMNS = ("switch", "paused", "updated_by", "updated_at", "reason")
ReasonOption = Annotated[
    str | None,
    typer.Option(help="Kept with the switch, in the audit and in the logs of jobs it is about now."),
]
AllOption = Annotated[bool, typer.Option("--all", help="Everything.")]
WorkflowOption = Annotated[str | None, typer.Option("--workflow", help="Jobs of this workflow.")]
QueueOption = Annotated[str | None, typer.Option("--queue", help="Tasks of this queue.")]


def pause(
    everything: AllOption = False,
    workflow: WorkflowOption = None,
    queue: QueueOption = None,
    reason: ReasonOption = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Start nothing new until `geodag resume` of the same switch; submits are accepted. One job: `geodag job pause`."""
    switch = _switch(everything, workflow, queue)
    answer = operate(home, "PUT", f"settings/pauses/{segment(switch)}", {"reason": reason})
    title = "Paused" if answer["changed"] else "Was paused already"
    show(answer, key_value_table(title, answer), as_json=as_json)


def resume(
    everything: AllOption = False,
    workflow: WorkflowOption = None,
    queue: QueueOption = None,
    reason: ReasonOption = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Lift a switch; what it held goes on at once. What is not paused stays as it is, and the answer says so."""
    switch = _switch(everything, workflow, queue)
    answer = operate(home, "DELETE", f"settings/pauses/{segment(switch)}", {"reason": reason})
    title = "Resumed" if answer["changed"] else "Was not paused"
    show(answer, key_value_table(title, answer), as_json=as_json)


def pauses(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """List the switches that were ever turned."""
    rows = operate(home, "GET", "settings/pauses")["switches"]
    show(rows, row_table("Pause switches", COLUMNS, rows), as_json=as_json)


def _switch(everything: bool, workflow: str | None, queue: str | None) -> str:
    named = ["all"] if everything else []
    named += [f"workflow:{workflow}"] if workflow else []
    named += [f"queue:{queue}"] if queue else []
    if len(named) != 1:
        raise WrongCommandLine("give exactly one of --all, --workflow and --queue")
    return named[0]
