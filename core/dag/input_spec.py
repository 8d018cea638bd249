"""The type of one input: JSON-Schema words, checked and never coerced."""

import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Annotated, Any, Final, NamedTuple, Self

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator
from pydantic_core import PydanticCustomError

from core.dag.nodes import Definition
from core.dag.patterns import MAX_STEPS, check_pattern, matches, size_of
from core.ids import canonical_json, digest
from core.wording import offered

Count = Annotated[int, Field(ge=0)]


def _number(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise PydanticCustomError("float_type", "Input should be a valid number")


Bound = Annotated[int | float, BeforeValidator(_number), WithJsonSchema({"type": "number"})]
"""An integer stays one: as a float it would be another number from 2^53 on, and infinity at some size."""
Step = Annotated[Bound, Field(gt=0), WithJsonSchema({"type": "number", "exclusiveMinimum": 0})]


def _is_integer(value: Any) -> bool:
    """Return whether it is an integer of any size; `math` refuses those that are beyond every float."""
    return isinstance(value, int) and not isinstance(value, bool)


_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": _is_integer,
    "number": lambda value: _is_integer(value) or (isinstance(value, float) and math.isfinite(value)),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


AUTHORED: Final = "authored"
"""Context of validation: a file is read. What was stored stays readable whatever files may say by now."""


_LIMITS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("pattern", "min_length", "max_length"), frozenset({"string"})),
    **dict.fromkeys(("minimum", "maximum", "multiple_of"), frozenset({"integer", "number"})),
    **dict.fromkeys(("exclusive_minimum", "exclusive_maximum"), frozenset({"integer", "number"})),
    **dict.fromkeys(("items", "min_items", "max_items", "unique_items"), frozenset({"array"})),
    **dict.fromkeys(("properties", "additional_properties"), frozenset({"object"})),
}
"""Words that say something of values of these types only."""
_BOUNDS: Final = (("minimum", "maximum"), ("min_length", "max_length"), ("min_items", "max_items"))


class InputSpec(Definition):
    """What an input, an item or a property must look like.

    `required: true` marks the input or property itself, `required: [a, b]` names properties of an object.
    """

    type: str | tuple[str, ...] | None = None
    required: bool | tuple[str, ...] = False
    default: Any = Field(default=None, description="Applied when the value is left out; null is no default.")
    title: str = ""
    description: str = ""
    enum: tuple[Any, ...] | None = None
    const: Any = None
    pattern: str | None = Field(default=None, description="Searched for, as in JSON Schema: anchor it.")
    min_length: Count | None = None
    max_length: Count | None = None
    minimum: Bound | None = None
    maximum: Bound | None = None
    exclusive_minimum: Bound | None = None
    exclusive_maximum: Bound | None = None
    multiple_of: Step | None = None
    items: "InputSpec | None" = None
    min_items: Count | None = None
    max_items: Count | None = None
    unique_items: bool = False
    properties: "dict[str, InputSpec]" = Field(default={})
    additional_properties: bool = True

    @field_validator("pattern")
    @classmethod
    def _may_be_written(cls, pattern: str | None, info: ValidationInfo) -> str | None:
        if pattern is not None and info.context == AUTHORED:
            check_pattern(pattern)
        return pattern

    @model_validator(mode="after")
    def _allows_something(self, info: ValidationInfo) -> Self:
        if info.context == AUTHORED:
            for least, most in _BOUNDS:
                low, high = getattr(self, least), getattr(self, most)
                if low is not None and high is not None and low > high:
                    raise ValueError(f"{least} {_written(low)} is more than {most} {_written(high)}, so no value fits")
            if self.enum == ():
                raise ValueError("enum has no values, so none fits")
            self._check_types()
        return self

    def _check_types(self) -> None:
        """Refuse words that say nothing of any value of the type, and values of none. Raises `ValueError`."""
        if not self.types or not _TYPES.keys() >= set(self.types):
            return
        is_type = f"and the type is {' or '.join(self.types)}"
        for word in (word for word in _LIMITS if word in self.model_fields_set):
            if _LIMITS[word].isdisjoint(self.types):
                raise ValueError(f"{word} is a word for {' or '.join(sorted(_LIMITS[word]))}, {is_type}")
        if isinstance(self.required, tuple) and "object" not in self.types:
            raise ValueError(f"a list of required names is for object, {is_type}")
        for word, values in (("enum", self.enum), ("const", None if self.const is None else (self.const,))):
            if values and not any(_TYPES[name](_by_value(value)) for name in self.types for value in values):
                raise ValueError(f"{word} is {canonical_json(list(values))[:80]}, {is_type}, so no value fits")

    @model_validator(mode="after")
    def _words_make_sense(self) -> Self:
        for name in self.types:
            if name not in _TYPES:
                raise ValueError(f"type {name!r} is not one of {offered(name, _TYPES)}")
        if self.is_required and self.default is not None:
            raise ValueError("a required input cannot have a default")
        return self

    @property
    def types(self) -> tuple[str, ...]:
        """Return the allowed type names; empty means any."""
        return (self.type,) if isinstance(self.type, str) else self.type or ()

    @property
    def is_required(self) -> bool:
        """Return whether the value itself must be given."""
        return self.required is True

    @property
    def nullable(self) -> bool:
        """Return whether null is a value here rather than "not given"."""
        return "null" in self.types


class Violation(NamedTuple):
    """Something that a spec refuses."""

    path: str
    problem: str
    value: Any
    """What stands there, None when that is missing."""


def violations(spec: InputSpec, value: Any, path: str) -> Iterator[Violation]:
    """Yield everything in `value` that `spec` refuses, outermost first."""
    if (steps := _steps(spec, value)) > MAX_STEPS:
        yield Violation(
            path,
            f"has too much text: characters times the size of their pattern are {steps}, at most {MAX_STEPS}",
            value,
        )
        return
    yield from _violations(spec, value, path)


def _steps(spec: InputSpec, value: Any) -> int:
    """Return how many steps the patterns in a spec may need; a text that is too long anyway needs none."""
    match value:
        case str() if spec.pattern is not None and (spec.max_length is None or len(value) <= spec.max_length):
            return len(value) * size_of(spec.pattern)
        case list() if spec.items is not None and (spec.max_items is None or len(value) <= spec.max_items):
            return sum(_steps(spec.items, item) for item in value)
        case dict():
            return sum(_steps(spec.properties[name], item) for name, item in value.items() if name in spec.properties)
    return 0


def _violations(spec: InputSpec, value: Any, path: str) -> Iterator[Violation]:
    if spec.types and not any(_TYPES[name](value) for name in spec.types):
        yield Violation(path, f"must be {' or '.join(spec.types)}, got {_type_name(value)}", value)
        return
    if spec.enum is not None and not any(_same(value, allowed) for allowed in spec.enum):
        yield Violation(path, f"must be one of {canonical_json(list(spec.enum))}", value)
    if spec.const is not None and not _same(value, spec.const):
        yield Violation(path, f"must be {canonical_json(spec.const)}", value)
    match value:
        case str():
            yield from _text_violations(spec, value, path)
        case bool():
            return
        case int() | float():
            yield from _number_violations(spec, value, path)
        case list():
            yield from _array_violations(spec, value, path)
        case dict():
            yield from _object_violations(spec, value, path)


def _text_violations(spec: InputSpec, value: str, path: str) -> Iterator[Violation]:
    if spec.min_length is not None and len(value) < spec.min_length:
        yield Violation(path, f"must have at least {spec.min_length} characters, has {len(value)}", value)
    if spec.max_length is not None and len(value) > spec.max_length:
        yield Violation(path, f"must have at most {spec.max_length} characters, has {len(value)}", value)
    elif spec.pattern is not None and not matches(spec.pattern, value):
        yield Violation(path, f"must match {spec.pattern}", value)


def _number_violations(spec: InputSpec, value: float, path: str) -> Iterator[Violation]:
    if spec.minimum is not None and value < spec.minimum:
        yield Violation(path, f"must be at least {_written(spec.minimum)}", value)
    if spec.maximum is not None and value > spec.maximum:
        yield Violation(path, f"must be at most {_written(spec.maximum)}", value)
    if spec.exclusive_minimum is not None and value <= spec.exclusive_minimum:
        yield Violation(path, f"must be more than {_written(spec.exclusive_minimum)}", value)
    if spec.exclusive_maximum is not None and value >= spec.exclusive_maximum:
        yield Violation(path, f"must be less than {_written(spec.exclusive_maximum)}", value)
    if spec.multiple_of is not None and not _is_multiple(value, spec.multiple_of):
        yield Violation(path, f"must be a multiple of {_written(spec.multiple_of)}", value)


def _array_violations(spec: InputSpec, value: list[Any], path: str) -> Iterator[Violation]:
    if spec.min_items is not None and len(value) < spec.min_items:
        yield Violation(path, f"must have at least {spec.min_items} items, has {len(value)}", value)
    if spec.max_items is not None and len(value) > spec.max_items:
        yield Violation(path, f"must have at most {spec.max_items} items, has {len(value)}", value)
        return
    if spec.unique_items and len({digest(item) for item in value}) < len(value):
        yield Violation(path, "must not repeat an item", value)
    if spec.items is not None:
        for index, item in enumerate(value):
            yield from _violations(spec.items, item, f"{path}[{index}]")


def _object_violations(spec: InputSpec, value: dict[str, Any], path: str) -> Iterator[Violation]:
    named = spec.required if isinstance(spec.required, tuple) else ()
    wanted = {*named, *(name for name, item in spec.properties.items() if item.is_required)}
    for name in sorted(wanted - value.keys()):
        yield Violation(f"{path}.{name}", "is missing", None)
    for name, item in value.items():
        if name in spec.properties:
            yield from _violations(spec.properties[name], item, f"{path}.{name}")
        elif not spec.additional_properties:
            known = offered(name, sorted(spec.properties))
            yield Violation(f"{path}.{name}", f"is not known; known are {known}", item)


def _same(left: Any, right: Any) -> bool:
    """Compare as JSON, where numbers count by value: 1.0 is 1, true is not."""
    return digest(left) == digest(right)


def _by_value(value: Any) -> Any:
    """Return a whole float as the integer that it is the same as."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _written(bound: float) -> str:
    return f"{bound:g}" if isinstance(bound, float) else str(bound)


def _is_multiple(value: float, step: float) -> bool:
    """Divide as they are written: 0.3 is three times 0.1, which no binary fractions say."""
    return (Fraction(repr(value)) / Fraction(repr(step))).denominator == 1


def _type_name(value: Any) -> str:
    return next((name for name, matches in _TYPES.items() if matches(value)), type(value).__name__)
