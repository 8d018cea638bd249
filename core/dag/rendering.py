"""Values that the evaluator does not make itself, because something large is read or comes out of them.

`advance` answers a `Rendering` for each: everything that the value depends on, with references in place of what is
large. Somebody else reads those blobs, calls `perform`, stores what is large in the result, and hands the `Rendered`
to the next `advance` under the rendering's key. The key is the digest of all of it, so an answer fits or is not found.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from core.dag.complaints import OF_NAMES, full_complaint, short_value
from core.dag.input_spec import InputSpec
from core.dag.inputs import fit
from core.dag.json_values import as_stored
from core.dag.templates import TemplateFailed, compile_value, render
from core.errors import ErrorDetail, GeodagError
from core.handlers_catalog import CATALOG, HandlerSpec
from core.ids import canonical_json, digest
from core.payloads import LIMIT_BYTES, PayloadRef, encode, is_large, split
from core.wording import a_kind

LINE_ITEMS = 500
"""Items of a list in one line of a blob of the shape LINES."""

Load = Callable[[PayloadRef], Any]
"""Reads a large value; raises `PayloadLost`."""
Keep = Callable[[bytes], PayloadRef]
"""Sees to it that bytes are stored and returns where."""


class Shape(StrEnum):
    """What becomes of a result that is large."""

    WHOLE = "whole"
    """One blob."""
    SPLIT = "split"
    """A mapping: its largest values are blobs of their own, the others stay."""
    LINES = "lines"
    """A list: a blob of JSON lists of 500 items, one a line."""


class LargeValue(BaseModel):
    """Where in the scope a large value belongs, and where it lies."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: tuple[str, ...] = Field(min_length=2, description="`inputs`, name; or `nodes`, id, `output`.")
    ref: PayloadRef


class Rendering(BaseModel):
    """One value to make: a template and all that it can look up."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    job_id: str
    path: str = Field(description="What it is, for errors: `nodes.merge.params`.")
    template: Any
    scope: dict[str, Any] = Field(description="Without the large values.")
    large: tuple[LargeValue, ...] = ()
    override: dict[str, Any] = Field(default={}, description="Put over the result as it is, never rendered.")
    handler: str | None = Field(default=None, description="The result must fit this handler's params.")
    workflow_id: str | None = Field(default=None, description="The result is what this workflow is started with:")
    inputs: dict[str, InputSpec] = Field(default={}, description="it is brought into the form of these inputs.")
    shape: Shape = Shape.WHOLE
    value_bytes: int = Field(default=LIMIT_BYTES, description="Up to this size the answer has the value as well.")

    @property
    def key(self) -> str:
        """The name of its answer."""
        return digest(self.model_dump(mode="json"))

    @property
    def size_bytes(self) -> int:
        """How much has to be read."""
        return sum(one.ref.size_bytes for one in self.large)


@dataclass(frozen=True, slots=True)
class Rendered:
    """The answer to a `Rendering`."""

    value: Any = None
    """The result, or of SPLIT what stays; None when it is only stored."""
    ref: PayloadRef | None = None
    """Where a large result lies, WHOLE or in LINES."""
    refs: Mapping[str, PayloadRef] = field(default_factory=dict)
    """Of SPLIT: where the large ones of its values lie."""
    digest: str = ""
    """`core.ids.digest` of the whole result."""
    length: int | None = None
    """Of a list: how many items."""
    error: ErrorDetail | None = None


ANSWER: TypeAdapter[Rendered] = TypeAdapter(Rendered)
"""Reads and writes answers as JSON."""


def perform(wanted: Rendering, load: Load, keep: Keep, catalog: Mapping[str, HandlerSpec] = CATALOG) -> Rendered:
    """Make the value; what is wrong with it, or lost, is an answer too: it would be the same again."""
    try:
        value = render(compile_value(wanted.template), _scope(wanted, load), wanted.path)
        if wanted.override:
            value = {**value, **wanted.override}
        return _answer(wanted, value, keep, catalog)
    except GeodagError as error:
        return Rendered(error=error.detail)


def _scope(wanted: Rendering, load: Load) -> dict[str, Any]:
    """Return the scope with the large values in their places; the request itself stays as it is."""
    scope = dict(wanted.scope)
    for one in wanted.large:
        place, names = scope, list(one.at)
        for name in names[:-1]:
            place[name] = place = dict(place.get(name, {}))
        place[names[-1]] = as_stored(load(one.ref), ".".join(one.at))
    return scope


def _answer(wanted: Rendering, value: Any, keep: Keep, catalog: Mapping[str, HandlerSpec]) -> Rendered:
    if wanted.workflow_id is not None:
        value = fit(wanted.inputs, _expect(dict, value, wanted.path), wanted.workflow_id)
    data = encode(value, wanted.path)
    if wanted.handler is not None and (problem := params_problem(catalog[wanted.handler], data)):
        return Rendered(error=problem)
    length = len(value) if isinstance(value, list) else None
    facts: dict[str, Any] = {"digest": digest(value, data.decode()), "length": length}
    if not is_large(data):
        return Rendered(value=value, **facts)
    inline = value if len(data) <= wanted.value_bytes else None
    match wanted.shape:
        case Shape.WHOLE:
            return Rendered(value=inline, ref=keep(data), **facts)
        case Shape.SPLIT:
            rest, large = split(_expect(dict, value, wanted.path))
            return Rendered(value=rest, refs={name: keep(part) for name, part in large.items()}, **facts)
        case Shape.LINES:
            return Rendered(value=inline, ref=keep(lines_of(_expect(list, value, wanted.path))), **facts)


def _expect(kind: type, value: Any, path: str) -> Any:
    if not isinstance(value, kind):
        raise TemplateFailed(f"{path} is {a_kind(value)}, not {a_kind(kind())}", field=path)
    return value


def lines_of(items: Sequence[Any]) -> bytes:
    """Return a list as lines, each a JSON list of 500 items."""
    starts = range(0, len(items), LINE_ITEMS)
    return "\n".join(canonical_json(items[start : start + LINE_ITEMS]) for start in starts).encode()


def params_problem(spec: HandlerSpec, data: bytes) -> ErrorDetail | None:
    """Return what a handler's own model finds wrong with the JSON of its params: a number may lack its fraction."""
    try:
        spec.params.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(("params", *map(str, first["loc"])))
        message = f"{field} of {spec.name}: {full_complaint(first)}"
        value = None if first["type"] in OF_NAMES else short_value(first["input"])
        return ErrorDetail(code="PARAMETER_INVALID", message=message, field=field, value=value, user_fixable=True)
    return None
