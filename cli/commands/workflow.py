"""`geodag workflow`: what authors of workflows need, from their files alone."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group

from cli.commands.looking import reason_of
from cli.errors import CliError, JobNotCompleted
from cli.options import JsonOption
from cli.output import counted, json_text, key_value_table, print_json, print_text, printable_lines, row_table, show
from cli.stack.layout import REPOSITORY
from core.dag.author_schema import author_schema
from core.dag.catalogue import WorkflowCatalogue, load_folder
from core.dag.definition import Workflow
from core.dag.drawing import mermaid, svg
from core.dag.lint import examine
from core.dag.loader import load_workflow
from core.dag.nodes import WorkflowNode
from core.dag.problems import Problem
from core.dag.rehearsal import Rehearsed, rehearse
from core.dag.scenario import Scenario, read_scenario
from core.dag.yaml_source import MAX_CHARACTERS, write_yaml
from core.errors import CallerError, WorkflowError
from core.handlers_catalog import CATALOG, HandlerSpec
from core.model_guide import Guide, guides_of
from core.models.engine import NodeState
from core.statuses import NODE_FINAL, JobStatus
from core.wording import offered

FileArgument = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A workflow file.")]
PathsArgument = Annotated[list[Path], typer.Argument(exists=True, help="Workflow files, or folders of them.")]
SHOWN_OF_NODES = {"status", "skip_reason", "attempt", "waiting_for", "output", "error", "started_at", "completed_at"}
MAX_VALUE = 120
UNCUT = frozenset({"message", "reason"})
"""What people wrote, or are to read."""
FIELD_COLUMNS = ("name", "type", "default", "meaning")

app = typer.Typer(no_args_is_help=True, help="Checks, draws and rehearses workflow files.")


class Picture(StrEnum):
    """What `graph` prints."""

    SVG = "svg"
    MERMAID = "mermaid"


class NotGood(CliError):
    """A workflow or a scenario has problems."""


@app.command()
def lint(
    paths: PathsArgument,
    canonical: Annotated[bool, typer.Option(help="Print the canonical form of what loads.")] = True,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 for advice too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show every problem with file, line and node; all files that are given are checked against each other too.

    Workflows that they name and do not have are looked up in workflows/ of the checkout, as `geodag up --workflows`
    does; problems of those files are not shown. One file given alone may name workflows that are nowhere.
    What a platform would not load is a problem; what may surprise in some runs is advice.
    """
    files = [file for path in paths for file in (_files_of(path) if path.is_dir() else [path])]
    results = {str(file): examine(_text_of(file), str(file)) for file in files}
    problems = [problem for workflow, found in results.values() if workflow is None for problem in found]
    loaded = {file: workflow for file, (workflow, _) in results.items() if workflow is not None}
    problems += _between(files, loaded, alone=[path.is_dir() for path in paths] == [False])
    bad = {problem.file for problem in problems}
    advice = [problem for workflow, found in results.values() if workflow is not None for problem in found]
    good = [workflow for file, (workflow, _) in results.items() if workflow is not None and file not in bad]
    if as_json:
        listed = [workflow.to_json() for workflow in good]
        print_json({"problems": _rows(problems), "advice": _rows(advice), "workflows": listed})
    else:
        _print(problems, advice, good if canonical else [])
    if problems or (strict and advice):
        found = f"{counted(len(problems), 'problem')} and {counted(len(advice), 'piece')} of advice"
        raise NotGood(f"{found} in {counted(len(files), 'file')}")


def _rows(problems: list[Problem]) -> list[dict[str, Any]]:
    return [{"file": one.file, "line": one.line, "node": one.node, "message": one.message} for one in problems]


def _print(problems: list[Problem], advice: list[Problem], good: list[Workflow]) -> None:
    print_text("".join(f"{problem}\n" for problem in problems))
    print_text("".join(f"{replace(one, message=f'advice: {one.message}')}\n" for one in advice))
    print_text("".join(f"---\n{_written(workflow)}" for workflow in good))


def _written(workflow: Workflow) -> str:
    """Return the canonical form; as JSON, which is YAML too, where its texts have what a terminal would obey."""
    text = write_yaml(workflow.to_json())
    return text if text == printable_lines(text) else json_text(workflow.to_json(), indent=2) + "\n"


def _between(files: list[Path], loaded: Mapping[str, Workflow], *, alone: bool) -> Iterator[Problem]:
    """Yield what is wrong with files that load but not beside the others and those of the checkout.

    Of one that is `alone` the author may keep elsewhere what it names.
    """
    catalogue = _beside_checkout(files)
    for broken in catalogue.broken:
        if broken.file in loaded:
            if not broken.problems:
                yield Problem(broken.file, 1, None, broken.error.removeprefix(f"{broken.file}: "))
            elsewhere = _named(loaded[broken.file]) - frozenset(catalogue.ids()) if alone else frozenset[str]()
            yield from (one for one in broken.problems if not elsewhere or _is_found(one, loaded[one.file], elsewhere))


def _named(workflow: Workflow) -> frozenset[str]:
    """Return the ids of the workflows that a workflow names."""
    children = {node.workflow_id for node in workflow.nodes.values() if isinstance(node, WorkflowNode)}
    return frozenset(children | ({workflow.reversed_by} if workflow.reversed_by else set[str]()))


def _is_found(problem: Problem, workflow: Workflow, elsewhere: frozenset[str]) -> bool:
    """Return whether a problem is about a node that runs something known."""
    node = workflow.nodes.get(problem.node or "")
    return isinstance(node, WorkflowNode) and node.workflow_id not in elsewhere


def _beside_checkout(files: list[Path]) -> WorkflowCatalogue:
    """Return what some files and those of the checkout are together."""
    given = {str(file): _text_of(file) for file in files}
    return load_folder(_of_checkout(files) | given, last=given.keys())


def _of_checkout(files: list[Path]) -> dict[str, str]:
    """Return what `geodag up` loads beside some files: one of the same name is taken in place of the checkout's."""
    folder, names = REPOSITORY / "workflows", {file.name for file in files}
    return {
        str(file): _text_of(file) for file in (_files_of(folder) if folder.is_dir() else []) if file.name not in names
    }


@app.command()
def graph(
    file: FileArgument,
    picture: Annotated[Picture, typer.Option("--format", case_sensitive=False)] = Picture.MERMAID,
) -> None:
    """Draw a workflow."""
    try:
        workflow = load_workflow(_text_of(file), str(file))
    except WorkflowError as error:
        raise NotGood(error.detail.message) from error
    print_text(svg(workflow) if picture is Picture.SVG else mermaid(workflow))


@app.command()
def simulate(
    file: FileArgument,
    scenario: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="YAML or JSON: inputs, and how tasks, items and gates turn out."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a workflow in supposed time with supposed tasks; the engine that decides is the real one."""
    try:
        workflow, workflows = _with_children(file)
        supposed = read_scenario(_text_of(scenario), str(scenario)) if scenario else Scenario()
        result = rehearse(workflow, supposed, workflows=workflows)
    except (WorkflowError, CallerError) as error:
        raise NotGood(error.detail.message) from error
    if as_json:
        print_json(_document(result))
    else:
        print_text(_story(result))
    if result.job.status is not JobStatus.COMPLETED:
        raise JobNotCompleted(f"the job is {result.job.status} after {result.seconds:g} s")


def _with_children(file: Path) -> tuple[Workflow, dict[str, Workflow]]:
    """Return the workflow of a file, and by hash those of its folder and the checkout, which its nodes may run."""
    alone = load_workflow(_text_of(file), str(file))
    if not any(isinstance(node, WorkflowNode) for node in alone.nodes.values()):
        return alone, {}
    catalogue = _beside_checkout(_files_of(file.parent))
    for broken in catalogue.broken:
        if broken.file == str(file):
            raise WorkflowError(broken.error)
    beside = catalogue.get(alone.workflow_id, alone.version)
    return beside, {one.definition_hash: one for one in catalogue.workflows.values()}


def _document(result: Rehearsed) -> dict[str, Any]:
    return {
        "status": result.job.status,
        "seconds": result.seconds,
        "outputs": result.job.outputs,
        "error": result.job.error,
        "warnings": result.job.warnings,
        "hints": result.hints,
        "nodes": {key: _shown(node, result.waiting[key]) for key, node in result.nodes.items()},
        "timeline": [
            {"seconds": one.seconds, "event": one.event, "node_id": one.node_id, "data": dict(one.data)}
            for one in result.timeline
        ],
    }


def _shown(node: NodeState, reason: Mapping[str, Any] | None) -> dict[str, Any]:
    return {**node.model_dump(mode="json", include=SHOWN_OF_NODES), "waiting_for": reason}


def _story(result: Rehearsed) -> str:
    lines = [
        f"{one.seconds:>10.1f} s  {one.node_id or '':<24}  {one.event:<20}  {_words(one.data)}".rstrip()
        for one in result.timeline
    ]
    waiting = [_unfinished(key, node, result) for key, node in result.nodes.items() if node.status not in NODE_FINAL]
    hints = [f"hint: {one}" for one in result.hints]
    return "\n".join([*lines, *waiting, *hints, f"{result.job.status} after {result.seconds:g} s", ""])


def _unfinished(node_id: str, node: NodeState, result: Rehearsed) -> str:
    reason = reason_of(result.waiting[node_id])
    return f"{node_id} is {node.status}" + (f": {reason}" if reason else "")


def _words(data: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_word(name, value)}" for name, value in data.items() if value not in (None, ""))


def _word(name: str, value: Any) -> str:
    text = json_text(value) if isinstance(value, list | dict) else str(value)
    return text if name in UNCUT or len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"


@app.command()
def handlers(
    name: Annotated[str | None, typer.Argument(help="One handler, with its params and its output.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List what tasks can do, or show one handler as docs/handlers.md does."""
    if name is None:
        rows = [_brief(one) for one in CATALOG.values()]
        show(rows, row_table("Handlers", tuple(rows[0]), rows), as_json=as_json)
        return
    if name not in CATALOG:
        raise NotGood(f"there is no handler {name!r}; there are {offered(name, CATALOG)}")
    spec = CATALOG[name]
    schemas = {"params": spec.params.model_json_schema(), "output": spec.output.model_json_schema(mode="serialization")}
    params, *inside = guides_of(spec.params)
    output, *within = guides_of(spec.output, "serialization")
    parts = {"Params": params, "Output": output} | {one.name: one for one in (*inside, *within)}
    tables = [row_table(_title(title, one), FIELD_COLUMNS, _lines(one)) for title, one in parts.items()]
    show({**_brief(spec), **schemas}, Group(key_value_table(name, _brief(spec)), *tables), as_json=as_json)


def _brief(spec: HandlerSpec) -> dict[str, Any]:
    facts = {"name": spec.name, "description": spec.description, "queue": spec.queue}
    return facts | {"mode": spec.mode.value, "timeout_seconds": spec.timeout_seconds}


def _title(title: str, guide: Guide) -> str:
    return f"{title}, and whatever else it is given" if guide.others else title


def _lines(guide: Guide) -> list[dict[str, Any]]:
    return [asdict(one) for one in guide.fields]


@app.command()
def schema() -> None:
    """Print the JSON Schema that editors check workflow files with."""
    print_json(author_schema())


def _files_of(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in {".yaml", ".yml"})


def _text_of(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", errors="surrogateescape") as opened:
            return opened.read(MAX_CHARACTERS + 1)
    except OSError as error:
        raise NotGood(f"{file} cannot be read: {error}") from error
