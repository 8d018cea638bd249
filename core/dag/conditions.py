"""Conditions of the workflow language: parsed by `core.dag.condition_syntax`, never rendered and never `eval`ed.

Types must fit, nothing is coerced: `and`, `or` and `not` take true or false; order and arithmetic take numbers, order
also two texts; equality takes two values of one type; null is compared with `is null`, `==` and `!=` only. What does
not fit is an error that names the condition and the values in it.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

from core.dag.condition_syntax import (
    ConditionFailed,
    Field,
    Infix,
    IsNull,
    Items,
    Literal,
    Operand,
    Prefix,
    Term,
    operands,
    parse,
)
from core.dag.json_values import is_number_of_json
from core.dag.templates import TemplateFailed
from core.ids import canonical_json
from core.wording import a_kind, shorten

_ORDER: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}


Read = Callable[[Operand], Any]
"""Returns the value of one `{{ … }}`; raises `TemplateFailed` when it has none."""


class _Misfit(Exception):
    """Values that an operator does not take."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One parsed condition."""

    source: str
    root: Term
    path: str | None = None
    """Where it stands, for errors."""

    @property
    def operands(self) -> Iterator[Operand]:
        """Yield every `{{ … }}` in it."""
        return operands(self.root)

    def conjuncts(self) -> "Iterator[Condition]":
        """Yield the conditions that `and` joins at its top; all of them hold when it does."""
        terms = [self.root]
        while terms:
            term = terms.pop()
            if isinstance(term, Infix) and term.sign == "and":
                terms += [term.right, term.left]
            else:
                yield replace(self, root=term)

    def holds(self, read: Read, field: Any = None) -> bool:
        """Return whether it holds; only the operands that decide are read. `field` is the value of `condition_field`.

        Raises `ConditionFailed` when types do not fit and `TemplateFailed` when an operand has no value.
        """
        evaluation = _Evaluation(read, field)
        try:
            return evaluation.truth(self.root)
        except _Misfit as misfit:
            message = f"{shorten(self.source)} has no answer: {misfit}{evaluation.seen()}"
            raise ConditionFailed(message, field=self.path) from misfit
        except TemplateFailed as error:
            message = f"{shorten(self.source)} has no answer: {error.detail.message}"
            raise TemplateFailed.of(error.detail.model_copy(update={"message": message})) from error


def parse_condition(text: str, *, field: bool = False, path: str | None = None) -> Condition:
    """Parse a condition; `field` allows comparisons without a left side. Raises `ConditionFailed`."""
    return Condition(text, parse(text, field=field), path)


class _Evaluation:
    """Walks a tree once and remembers the values of its operands, for the error message."""

    def __init__(self, read: Read, field: Any) -> None:
        self.read = read
        self.field = field
        self.values: dict[str, Any] = {}

    def seen(self) -> str:
        """Return the operands that were read, with their values."""
        values = [f"{shorten(name, 100)} = {shown(value)}" for name, value in self.values.items()]
        return f" ({', '.join(values)})" if values else ""

    def truth(self, term: Term) -> bool:
        value = self.value(term)
        if not isinstance(value, bool):
            raise _Misfit(f"true or false is needed, got {_named(value)}")
        return value

    def value(self, term: Term) -> Any:
        match term:
            case Literal():
                return term.value
            case Operand():
                return self.operand(term)
            case Field():
                return self.values.setdefault("condition_field", self.field)
            case Items():
                return [self.value(item) for item in term.items]
            case Prefix(sign="not"):
                return not self.truth(term.term)
            case Prefix():
                return -_number(self.value(term.term), "-")
            case IsNull():
                return (self.value(term.term) is None) is not term.negated
            case Infix(sign="and"):
                return self.truth(term.left) and self.truth(term.right)
            case Infix(sign="or"):
                return self.truth(term.left) or self.truth(term.right)
            case Infix():
                return _apply(term.sign, self.value(term.left), self.value(term.right))
            case _ as never:
                assert_never(never)

    def operand(self, operand: Operand) -> Any:
        value = self.read(operand)
        self.values[operand.text] = value
        return value


def _apply(sign: str, left: Any, right: Any) -> Any:
    match sign:
        case "==":
            return _equal(left, right, sign)
        case "!=":
            return not _equal(left, right, sign)
        case "in":
            return _contains(right, left)
        case "not in":
            return not _contains(right, left)
        case _ if sign in _ORDER:
            return _ordered(sign, left, right)
        case _:
            return _calculated(sign, left, right)


def _equal(left: Any, right: Any, sign: str) -> bool:
    if left is not None and right is not None and a_kind(left) != a_kind(right):
        raise _Misfit(f"{sign} takes two values of one type, got {_named(left)} and {_named(right)}")
    return same_json(left, right)


def same_json(left: Any, right: Any) -> bool:
    """Compare as JSON does: numbers by value, but true is not 1."""
    if a_kind(left) != a_kind(right):
        return False
    match left:
        case list() | tuple():
            return len(left) == len(right) and all(map(same_json, left, right))
        case Mapping():
            return left.keys() == right.keys() and all(same_json(left[key], right[key]) for key in left)
        case _:
            return bool(left == right)


def _contains(container: Any, item: Any) -> bool:
    match container:
        case list() | tuple() if item is not None:
            return any(same_json(item, other) for other in container)
        case Mapping() | str() if isinstance(item, str):
            return item in container
        case _:
            pair = f"{_named(item)} in {_named(container)}"
            raise _Misfit(f"in takes a value and a list, or a text and a text or mapping, got {pair}")


def _ordered(sign: str, left: Any, right: Any) -> bool:
    if not (a_kind(left) == a_kind(right) and a_kind(left) in {"a number", "a text"}):
        raise _Misfit(f"{sign} takes two numbers or two texts, got {_named(left)} and {_named(right)}")
    return _ORDER[sign](left, right)


def _calculated(sign: str, left: Any, right: Any) -> int | float:
    _number(left, sign)
    _number(right, sign)
    try:
        result: int | float = _ARITHMETIC[sign](left, right)
    except ArithmeticError as error:
        raise _Misfit(f"{shown(left)} {sign} {shown(right)}: {error}") from error
    if not is_number_of_json(result):
        raise _Misfit(f"the result of {sign} is too large")
    return result


def _number(value: Any, sign: str) -> int | float:
    if a_kind(value) != "a number":
        raise _Misfit(f"{sign} takes numbers, got {_named(value)}")
    number: int | float = value
    return number


def _named(value: Any) -> str:
    return "null" if value is None else f"{a_kind(value)} {shown(value)}"


def shown(value: Any) -> str:
    """Return a value as JSON, cut when it is long."""
    try:
        return shorten(canonical_json(value), 80)
    except (TypeError, ValueError):
        return a_kind(value)
