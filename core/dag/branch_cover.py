"""Whether a conditional without a default has a branch for every value: found by trying the values that can differ.

Conditions that compare a value with literals answer alike between two neighbouring literals. So a value is tried at
each literal, between two of them and beyond the last. What cannot be tried so is taken to be covered: what is
calculated, whose values are nobody's choice and hang together, and below zero a number that may count something.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Any, Final

from core.dag.condition_syntax import ConditionFailed, Field, Infix, IsNull, Items, Literal, Operand, Prefix, Term
from core.dag.condition_types import ANY, NULL, NUMBER, allowed_values, kinds_of_input
from core.dag.conditions import Condition, parse_condition
from core.dag.input_spec import InputSpec, violations
from core.dag.nodes import ConditionalNode
from core.dag.templates import Expression, Program, TemplateFailed, compile_value
from core.statuses import NODE_FINAL
from core.wording import a_kind

MAX_TRIALS: Final = 2_000
MAX_NUMBER: Final = 1e300
"""Between larger ones there is no float."""
Chain = tuple[str | int, ...]


def uncovered(node: ConditionalNode, inputs: Mapping[str, InputSpec]) -> Mapping[str, Any] | None:
    """Return values, by what is written for them, for which no branch holds; None when there are none, or a default."""
    if any(branch.default for branch in node.branches):
        return None
    by_field = node.condition_field is not None
    conditions = [parse_condition(one.condition, field=by_field) for one in node.branches if one.condition is not None]
    read: dict[str, Program] = {
        operand.text: operand.expression for condition in conditions for operand in condition.operands
    }
    if node.condition_field is not None:
        read = {node.condition_field: compile_value(node.condition_field), **read}
    chains = {text: chain for text, program in read.items() if (chain := _chain_of(program)) is not None}
    if len(chains) < len(read):
        return None
    literals = [value for condition in conditions for value in _literals(condition.root)]
    values = {chain: _trials(chain, inputs, literals) for chain in chains.values()}
    if math.prod(map(len, values.values())) > MAX_TRIALS:
        return None
    for chosen in product(*values.values()):
        trial = dict(zip(values, chosen, strict=True))
        if _none_holds(conditions, {text: trial[chain] for text, chain in chains.items()}, node.condition_field):
            texts = {chain: text for text, chain in reversed(chains.items())}
            return {texts[chain]: value for chain, value in trial.items()}
    return None


def _chain_of(program: Program) -> Chain | None:
    """Return where a value is looked up, None when it is not looked up alone, or is a fact of the job."""
    if not isinstance(program, Expression) or not program.is_lookup:
        return None
    chain = program.lookups[0].chain
    return None if chain[0] == "job" else chain


def _none_holds(conditions: Iterable[Condition], values: Mapping[str, Any], field: str | None) -> bool:
    """Return whether every condition is false; one without an answer fails the node in another way."""
    left = None if field is None else values[field]
    try:
        return not any(one.holds(lambda operand: values[operand.text], left) for one in conditions)
    except (ConditionFailed, TemplateFailed):
        return False


def _trials(chain: Chain, inputs: Mapping[str, InputSpec], literals: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values to try for what is looked up: those that it may have as far as that is known."""
    match chain:
        case ("inputs", str() as name) if name in inputs:
            spec = inputs[name]
            listed = allowed_values(spec)
            found = [*_guesses(literals)] if listed is None else [*listed]
            found = [value for value in found if not any(violations(spec, value, ""))]
            kinds = kinds_of_input(spec)
            return (*found, None) if NULL in kinds and kinds != ANY else tuple(found)
        case ("nodes", _, "status"):
            return tuple(sorted(NODE_FINAL))
        case _:
            return tuple(value for value in _guesses(literals) if not _is_unlikely(value, literals))


def _is_unlikely(value: Any, literals: Sequence[Any]) -> bool:
    """Return whether an output need not be looked for there: it may count something, as nobody said what it is."""
    if a_kind(value) != NUMBER:
        return False
    numbers = [one for one in literals if a_kind(one) == NUMBER]
    return value < min([0, *numbers]) or (
        not float(value).is_integer() and all(isinstance(one, int) for one in numbers)
    )


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
