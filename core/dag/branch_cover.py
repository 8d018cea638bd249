"""Whether a conditional without a default has a branch for every value: found by trying the values that can differ.

Conditions that compare a value with literals answer alike between two neighbouring literals. So a value is tried at
each literal, between two of them and beyond the last. What cannot be tried so is taken to be covered.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Any, Final

from core.dag.condition_syntax import ConditionFailed, Field, Infix, IsNull, Items, Literal, Operand, Prefix, Term
from core.dag.condition_types import ANY, NULL, NUMBER, allowed_values, input_of, kinds_of
from core.dag.conditions import Condition, parse_condition
from core.dag.input_spec import InputSpec, violations
from core.dag.nodes import ConditionalNode
from core.dag.templates import Expression, TemplateFailed, compile_value
from core.wording import a_kind

MAX_TRIALS: Final = 2_000
MAX_NUMBER: Final = 1e300
"""Between larger ones there is no float."""
_FIELD: Final = ""
"""Stands for `condition_field` among the texts of operands; none of those is empty."""


def uncovered(node: ConditionalNode, inputs: Mapping[str, InputSpec]) -> Mapping[str, Any] | None:
    """Return values, by what is written for them, for which no branch holds; None when there are none, or a default."""
    if any(branch.default for branch in node.branches):
        return None
    by_field = node.condition_field is not None
    conditions = [parse_condition(one.condition, field=by_field) for one in node.branches if one.condition is not None]
    read: dict[str, Expression | None] = {
        operand.text: operand.expression for condition in conditions for operand in condition.operands
    }
    if by_field:
        program = compile_value(node.condition_field)
        read[_FIELD] = program if isinstance(program, Expression) else None
    literals = [value for condition in conditions for value in _literals(condition.root)]
    values = {name: _trials(expression, inputs, literals) for name, expression in read.items()}
    if math.prod(map(len, values.values())) > MAX_TRIALS:
        return None
    trials = (dict(zip(values, chosen, strict=True)) for chosen in product(*values.values()))
    found = next((trial for trial in trials if _none_holds(conditions, trial)), None)
    return None if found is None else {name or str(node.condition_field): value for name, value in found.items()}


def _none_holds(conditions: Iterable[Condition], trial: Mapping[str, Any]) -> bool:
    """Return whether every condition is false; one without an answer fails the node in another way."""
    try:
        return not any(one.holds(lambda operand: trial[operand.text], trial.get(_FIELD)) for one in conditions)
    except (ConditionFailed, TemplateFailed):
        return False


def _trials(expression: Expression | None, inputs: Mapping[str, InputSpec], literals: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values to try for an operand: those that it may have as far as that is known."""
    spec, kinds = input_of(expression, inputs), kinds_of(expression, inputs)
    listed = None if spec is None else allowed_values(spec)
    found = list(listed) if listed is not None else [*_guesses(literals)]
    if spec is not None:
        found = [value for value in found if not any(violations(spec, value, ""))]
    if NULL in kinds and kinds != ANY:
        found.append(None)
    return tuple(found)


def _guesses(literals: Sequence[Any]) -> Iterator[Any]:
    numbers = sorted({one for one in literals if a_kind(one) == NUMBER and abs(one) < MAX_NUMBER})
    texts = sorted({one for one in literals if isinstance(one, str)})
    yield from (True, False)
    if numbers or not texts:
        yield from (*numbers, *(one + step for one in numbers or [0] for step in (-1, 1)))
        yield from ((low + high) / 2 for low, high in pairwise(numbers))
    if texts or not numbers:
        yield from (*texts, *(f"{one} or another" for one in texts or ["one"]), "")


def _literals(term: Term) -> Iterator[Any]:
    match term:
        case Literal():
            yield term.value
        case Prefix(sign="-", term=Literal(value=int() | float() as value)):
            yield -value
        case Prefix() | IsNull():
            yield from _literals(term.term)
        case Items():
            for item in term.items:
                yield from _literals(item)
        case Infix():
            yield from _literals(term.left)
            yield from _literals(term.right)
        case Operand() | Field():
            return
