"""What an author supposes about the world when a workflow is rehearsed: how tasks, items and gates turn out."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from core.dag.complaints import first_causes, full_complaint
from core.dag.json_values import NotJson, as_stored
from core.dag.nodes import Definition, PositiveSeconds, Seconds
from core.dag.yaml_source import YamlProblem, read_yaml
from core.errors import Classification, WorkflowError
from core.ids import canonical_json
from core.wording import offered


class SupposedError(Definition):
    """The error that a handler reports."""

    code: str = "SUPPOSED"
    message: str = "the scenario says so"
    classification: Classification = Classification.PERMANENT


class Play(Definition):
    """How one attempt turns out; it completes unless it says otherwise."""

    seconds: Seconds = Field(default=1.0, description="How long it runs; of a batch, each item.")
    output: Any = Field(default={}, description="May have templates with `params`, `index` and `attempt`.")
    error: SupposedError | None = Field(default=None, description="It fails with this error.")
    lost: bool = Field(default=False, description="Its worker dies after that time.")

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if sum(("output" in self.model_fields_set, self.error is not None, self.lost)) > 1:
            raise ValueError("an attempt has an output, an error or is lost, not two of them")
        return self


Plays = Annotated[tuple[Play, ...], Field(min_length=1)]
"""Of the first attempt, the second, and so on; the last one counts for all that follow. One may stand alone."""


class GatePlay(Definition):
    """What somebody decides."""

    decision: Literal["approved", "rejected"] = "approved"
    after_seconds: Seconds = 0.0
    actor: str = "somebody"
    reason: str = ""
    data: dict[str, Any] = Field(default={})


class Order(Definition):
    """A command that somebody gives."""

    kind: str = Field(description="cancel, pause, resume, priority, skip, rerun, window, …")
    after_seconds: Seconds = 0.0
    args: dict[str, Any] = Field(default={})
    actor: str = "somebody"
    reason: str = ""


class Scenario(Definition):
    """Everything that is supposed; what is left out completes after a second with an empty output."""

    inputs: dict[str, Any] = Field(default={})
    priority: int | None = None
    tasks: dict[str, Plays] = Field(default={}, description="By node id, or by handler for all its nodes.")
    items: dict[str, dict[str, Plays]] = Field(default={}, description="By fan-out and index, other than its `tasks`.")
    gates: dict[str, GatePlay] = Field(default={}, description="Gates that are not named wait.")
    commands: tuple[Order, ...] = ()
    workers: dict[str, Annotated[int, Field(ge=1)]] = Field(
        default={}, description="By queue, how many tasks run at a time; any number when left out."
    )
    queue_seconds: Seconds = Field(default=0.0, description="How long a free worker takes to begin.")
    give_up_after_seconds: PositiveSeconds = Field(default=30 * 86400.0, description="Of supposed time.")

    def plays(self, node_id: str, handler: str) -> Sequence[Play]:
        """Return how the attempts of a node turn out, other than those of items that have plays of their own."""
        return self.tasks.get(node_id) or self.tasks.get(handler) or (Play(),)

    def play(self, node_id: str, handler: str, attempt: int, index: int | None = None) -> Play:
        """Return how an attempt, or one item of it, turns out."""
        plays = self.plays(node_id, handler)
        if index is not None:
            plays = self.items.get(node_id, {}).get(str(index), plays)
        return plays[min(attempt, len(plays) - 1)]


def read_scenario(text: str, filename: str) -> Scenario:
    """Read a scenario from YAML or JSON. Raises `WorkflowError` that names the file and everything that is wrong."""
    try:
        source = read_yaml(text)
        return Scenario.model_validate_json(canonical_json(_canonical(as_stored(source.value, "scenario"))))
    except YamlProblem as error:
        raise WorkflowError(f"{filename}:{error.line}: {error.message}") from error
    except NotJson as error:
        raise WorkflowError(f"{filename}: {error.detail.message}") from error
    except ValidationError as error:
        problems = first_causes(error.errors(include_url=False))
        told = sorted((source.line(one["loc"]), _told(one)) for one in problems)
        raise WorkflowError("\n".join(f"{filename}:{line}: {words}" for line, words in told)) from error


def _told(problem: ErrorDetails) -> str:
    """Return what is wrong with a part of a scenario; of a word that is not known, which are."""
    location = problem["loc"]
    where = ".".join(map(str, location)) or "the scenario"
    if problem["type"] != "extra_forbidden":
        return f"{where}: {full_complaint(problem)}"
    model, word = _model_at(location[:-1]), str(location[-1])
    known = f"known are {offered(word, model.model_fields)}"
    hint = "; what an order is about, as its node_id, stands in its args" if model is Order else ""
    return f"{where} is not a word of a scenario; {known}{hint}"


def _model_at(location: tuple[int | str, ...]) -> type[Definition]:
    match location:
        case (*_, "error"):
            return SupposedError
        case ("tasks" | "items", *_):
            return Play
        case ("gates", *_):
            return GatePlay
        case ("commands", *_):
            return Order
        case _:
            return Scenario


def _canonical(value: Any) -> Any:
    """Return a scenario in which a single play is a list of one."""
    if not isinstance(value, dict):
        return value
    items = value.get("items", {})
    listed = {
        "tasks": _listed(value.get("tasks", {})),
        "items": {key: _listed(plays) for key, plays in items.items()} if isinstance(items, dict) else items,
    }
    return {**value, **listed}


def _listed(plays: Any) -> Any:
    if not isinstance(plays, dict):
        return plays
    return {key: [play] if isinstance(play, dict) else play for key, play in plays.items()}
