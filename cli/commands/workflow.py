"""`geodag workflow`: what authors of workflows need, from their files alone."""

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.errors import CliError
from cli.options import JsonOption
from cli.output import print_json
from core.dag.author_schema import author_schema
from core.dag.catalogue import load_folder
from core.dag.definition import Workflow
from core.dag.drawing import mermaid, svg
from core.dag.lint import examine
from core.dag.loader import load_workflow
from core.dag.problems import Problem
from core.dag.yaml_source import write_yaml
from core.errors import WorkflowError

FileArgument = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A workflow file.")]
PathsArgument = Annotated[list[Path], typer.Argument(exists=True, help="Workflow files, or folders of them.")]

app = typer.Typer(no_args_is_help=True, help="Checks and draws workflow files.")


class Picture(StrEnum):
    """What `graph` prints."""

    SVG = "svg"
    MERMAID = "mermaid"


class NotGood(CliError):
    """A workflow has problems."""


@app.command()
def lint(
    paths: PathsArgument,
    canonical: Annotated[bool, typer.Option(help="Print the canonical form of what has no problem.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Show every problem with file, line and node; the files of a folder are checked against each other too."""
    files = [file for path in paths for file in (_files_of(path) if path.is_dir() else [path])]
    results = {str(file): examine(_text_of(file), str(file)) for file in files}
    problems = [problem for _, found in results.values() for problem in found]
    problems += [problem for path in paths if path.is_dir() for problem in _between(path, results)]
    good = [workflow for workflow, found in results.values() if workflow is not None and not found]
    if as_json:
        rows = [{"file": one.file, "line": one.line, "node": one.node, "message": one.message} for one in problems]
        print_json({"problems": rows, "workflows": [workflow.to_json() for workflow in good]})
    else:
        _print(problems, good if canonical else [])
    if problems:
        raise NotGood(f"{len(problems)} problems in {len(files)} files")


def _print(problems: list[Problem], good: list[Workflow]) -> None:
    sys.stdout.write("".join(f"{problem}\n" for problem in problems))
    sys.stdout.write("".join(f"---\n{write_yaml(workflow.to_json())}" for workflow in good))


def _between(folder: Path, results: dict[str, tuple[Workflow | None, tuple[Problem, ...]]]) -> Iterator[Problem]:
    """Yield what is wrong with files that load alone but not beside the others of their folder."""
    catalogue = load_folder({str(file): _text_of(file) for file in _files_of(folder)})
    for broken in catalogue.broken:
        if broken.file in results and results[broken.file][0] is not None:
            yield Problem(broken.file, 1, None, broken.error)


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
    sys.stdout.write(svg(workflow) if picture is Picture.SVG else mermaid(workflow))


@app.command()
def schema() -> None:
    """Print the JSON Schema that editors check workflow files with."""
    print_json(author_schema())


def _files_of(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in {".yaml", ".yml"})


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotGood(f"{file} cannot be read: {error}") from error
