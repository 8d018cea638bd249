"""Operations: what a platform asks for when one job is not enough; jobs in stages, declared in YAML. Pure.

    operation: raster_stepwise
    stages:                                        # one after the other
      - jobs:                                      # side by side
          validate: {workflow: raster_validate, inputs: {source: "{{ request.source }}"}}
      - jobs:
          process: {workflow: raster_process, inputs: {raster: "{{ jobs.validate.outputs.raster }}"}}
    outputs: {blob_path: "{{ jobs.process.outputs.blob_path }}"}

A stage begins in the transaction that ends the last job of the one before. A request is completed, failed or
cancelled in the transaction that ends its last job: the last one turns out the lights (specification `000_`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.dag.catalogue import BrokenFile
from core.dag.templates import Program, TemplateFailed, compile_value, lookups_of, render
from core.dag.yaml_source import YamlProblem, read_yaml
from core.errors import ErrorDetail, WorkflowError
from core.models.business import RequestState
from core.statuses import JOB_FINAL, JobStatus
from core.wording import a_kind

Json = dict[str, Any]
Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,47}$")]
MAX_STAGES: Final = 16
MAX_JOBS: Final = 32


class OperationInvalid(WorkflowError):
    """An operation's file cannot be used."""


class JobSpec(BaseModel):
    """One job of a stage: a workflow, and what it is given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workflow: Name
    inputs: dict[str, Any] | str = Field(description="Templates over `request` and the `jobs` of earlier stages.")


class Stage(BaseModel):
    """Jobs that run side by side."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    jobs: Annotated[dict[Name, JobSpec], Field(min_length=1, max_length=MAX_JOBS)]


class Operation(BaseModel):
    """Stages of jobs, and what a version stores of their outputs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operation: Name
    description: str = ""
    stages: Annotated[list[Stage], Field(min_length=1, max_length=MAX_STAGES)]
    outputs: dict[str, Any] | str = Field(description="Templates over `request` and all `jobs`.")

    def workflows(self) -> frozenset[str]:
        """Return the workflows that its jobs run."""
        return frozenset(spec.workflow for stage in self.stages for spec in stage.jobs.values())


@dataclass(frozen=True, slots=True)
class OperationCatalogue:
    """The good operations of a folder by id, and the broken files with their errors."""

    operations: Mapping[str, Operation]
    broken: tuple[BrokenFile, ...] = ()

    def get(self, operation_id: str) -> Operation | None:
        """Return an operation; None means that the id is a workflow's, which is one job."""
        return self.operations.get(operation_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestJob:
    """One job that works for a request, as far as an operation looks at it."""

    name: str
    stage: int
    """Counted from 1."""
    status: JobStatus
    outputs: Json | None
    """None while it has none, or when they are too large to be kept in its row."""
    error: Json | None
    warnings: Sequence[Any]


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to start."""

    name: str
    stage: int
    workflow_id: str
    inputs: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What becomes of a request now: jobs to start, or its end; nothing while jobs are under way."""

    start: tuple[NewJob, ...] = ()
    ended: RequestState | None = None
    outputs: Json | None = None
    errors: tuple[Json, ...] = ()
    warnings: tuple[Any, ...] = ()


def load_operation(text: str, filename: str) -> Operation:
    """Read one operation.

    Raises:
        OperationInvalid: with file, place and what is wrong.
    """
    try:
        value = read_yaml(text).value
        operation = Operation.model_validate(value)
    except YamlProblem as error:
        raise OperationInvalid(f"{filename}:{error.line}: {error.message}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise OperationInvalid(f"{filename}: {'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}") from error
    _check(operation, filename)
    return operation


def load_operations(files: Mapping[str, str], workflows: frozenset[str]) -> OperationCatalogue:
    """Return the operations of a folder; a broken file, a doubled id or an unknown workflow spoils its file only."""
    found: dict[str, Operation] = {}
    broken: list[BrokenFile] = []
    for filename, text in sorted(files.items()):
        try:
            operation = load_operation(text, filename)
            _check_names(operation, filename, found, workflows)
        except OperationInvalid as error:
            broken.append(BrokenFile(filename, str(error)))
        else:
            found[operation.operation] = operation
    return OperationCatalogue(found, tuple(broken))


def _check_names(
    operation: Operation, filename: str, known: Mapping[str, Operation], workflows: frozenset[str]
) -> None:
    name = operation.operation
    if name in known or name in workflows:
        raise OperationInvalid(f"{filename}: operation {name} has the id of another operation or a workflow")
    if unknown := sorted(operation.workflows() - workflows):
        raise OperationInvalid(f"{filename}: there is no workflow {unknown[0]}")


def _check(operation: Operation, filename: str) -> None:
    """Check job names and that each template looks only at what is there by then."""
    known: list[str] = []
    for number, stage in enumerate(operation.stages, start=1):
        for name, spec in stage.jobs.items():
            if name in known:
                raise OperationInvalid(f"{filename}: two jobs are called {name}")
            _check_lookups(spec.inputs, known, f"{filename}: stage {number}, job {name}")
        known += stage.jobs
    _check_lookups(operation.outputs, known, f"{filename}: outputs")


def _check_lookups(value: Any, jobs: Sequence[str], where: str) -> None:
    try:
        program = compile_value(value)
    except TemplateFailed as error:
        raise OperationInvalid(f"{where}: {error}") from error
    for lookup, source in lookups_of(program):
        match lookup.chain:
            case ("request", *_):
                continue
            case ("jobs", str() as name, "outputs", *_) if name in jobs:
                continue
            case _:
                there = ", ".join(["request", *(f"jobs.{name}.outputs" for name in jobs)])
                raise OperationInvalid(f"{where}: {source} looks at {lookup}; there are {there}")


def advance_request(operation: Operation, request: Json, jobs: Sequence[RequestJob]) -> Progress:
    """Return what becomes of a request, given every job that works for it so far.

    Idempotent: while a job is under way nothing happens, and a stage that has jobs is not started again.
    """
    if any(job.status not in JOB_FINAL for job in jobs):
        return Progress()
    warnings = tuple(warning for job in jobs for warning in job.warnings)
    if any(job.status is not JobStatus.COMPLETED for job in jobs):
        failed = [job for job in jobs if job.status is JobStatus.FAILED]
        errors = tuple(job.error for job in failed if job.error is not None)
        ended = RequestState.FAILED if failed else RequestState.CANCELLED
        return Progress(ended=ended, errors=errors, warnings=warnings)
    done = max((job.stage for job in jobs), default=0)
    scope = {"request": request, "jobs": {job.name: _seen(job) for job in jobs}}
    try:
        if done < len(operation.stages):
            return Progress(start=tuple(_started(operation.stages[done], done + 1, scope)))
        outputs = _rendered(operation.outputs, scope, "outputs")
    except TemplateFailed as error:
        detail = ErrorDetail(
            code="OPERATION_FAILED", message=f"{operation.operation}: {error}", field=error.detail.field
        )
        return Progress(ended=RequestState.FAILED, errors=(detail.model_dump(mode="json"),), warnings=warnings)
    return Progress(ended=RequestState.COMPLETED, outputs=outputs, warnings=warnings)


def _seen(job: RequestJob) -> Json:
    return {} if job.outputs is None else {"outputs": job.outputs}


def _started(stage: Stage, number: int, scope: Json) -> Iterator[NewJob]:
    for name, spec in stage.jobs.items():
        yield NewJob(name, number, spec.workflow, _rendered(spec.inputs, scope, f"jobs.{name}.inputs"))


def _rendered(value: Any, scope: Json, path: str) -> Json:
    program: Program = compile_value(value)
    found = render(program, scope, path)
    if not isinstance(found, dict):
        raise TemplateFailed(f"{path} is {a_kind(found)}, not a mapping", field=path)
    return found
