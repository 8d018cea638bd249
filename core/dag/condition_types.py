"""Advice on conditions by the kinds of their terms: what can have no answer, or only one, whatever the values are.

A term has a set of kinds, in the words of `core.wording.a_kind`: of a literal its own, of an input those of its
declared type, and null when nobody has to give it. Of everything else every kind is possible: nothing is said of it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

from core.dag.condition_syntax import (
    RELATIONS,
    Field,
    Infix,
    IsNull,
    Items,
    Literal,
    Operand,
    Prefix,
    Term,
)
from core.dag.condition_text import alternatives, chained, named, text_of
from core.dag.conditions import same_json, shown
from core.dag.input_spec import InputSpec
from core.dag.templates import Expression, Lookup
from core.statuses import NodeStatus
from core.wording import a_kind, did_you_mean

Kinds = frozenset[str]

NULL: Final = a_kind(None)
BOOLEAN: Final = a_kind(True)
NUMBER: Final = a_kind(0)
TEXT: Final = a_kind("")
LIST: Final = a_kind([])
MAPPING: Final = a_kind({})
ANY: Final[Kinds] = frozenset({NULL, BOOLEAN, NUMBER, TEXT, LIST, MAPPING})
_ORDERED: Final[Kinds] = frozenset({NUMBER, TEXT})
KINDS_OF_TYPES: Final[Mapping[str, str]] = {
    "string": TEXT,
    "integer": NUMBER,
    "number": NUMBER,
    "boolean": BOOLEAN,
    "array": LIST,
    "object": MAPPING,
    "null": NULL,
}
_STATUSES: Final = tuple(status.value for status in NodeStatus)
_OF_JOB: Final[Mapping[str, str]] = {
    **dict.fromkeys(("job_id", "workflow_id", "created_at"), TEXT),
    **dict.fromkeys(("workflow_version", "run_no", "priority"), NUMBER),
}


def kinds_of_input(spec: InputSpec) -> Kinds:
    """Return the kinds that an input may have in a job; one that is neither given nor has a default is null."""
    kinds = frozenset(KINDS_OF_TYPES[name] for name in spec.types) or ANY
    allowed = allowed_values(spec)
    if allowed is not None:
        kinds &= frozenset(map(a_kind, allowed))
    return kinds | {NULL} if not spec.is_required and spec.default is None else kinds


def allowed_values(spec: InputSpec) -> tuple[Any, ...] | None:
    """Return the values that an input may be given, None when they are not listed."""
    return spec.enum if spec.enum is not None else None if spec.const is None else (spec.const,)


def input_of(expression: Expression | None, inputs: Mapping[str, InputSpec]) -> InputSpec | None:
    """Return the input that an expression is, None when it is anything else."""
    if expression is None or not expression.is_lookup:
        return None
    match expression.lookups[0].chain:
        case ("inputs", str() as name):
            return inputs.get(name)
        case _:
            return None


def kinds_of(expression: Expression | None, inputs: Mapping[str, InputSpec]) -> Kinds:
    """Return the kinds that the value of a `{{ … }}` may have."""
    if (spec := input_of(expression, inputs)) is not None:
        return kinds_of_input(spec)
    if expression is None or not expression.is_lookup:
        return ANY
    if _is_status(expression):
        return frozenset({TEXT})
    match expression.lookups[0].chain:
        case ("job", str() as name) if name in _OF_JOB:
            return frozenset({_OF_JOB[name]})
        case _:
            return ANY


def doubts(root: Term, inputs: Mapping[str, InputSpec], field: Expression | None = None) -> Iterator[str]:
    """Yield what is doubtful about a condition and what to write instead; `field` is the `condition_field`."""
    reading = _Reading(inputs, field)
    yield from reading.not_a_condition(root)
    yield from reading.below(root)


@dataclass(frozen=True, slots=True)
class _Reading:
    """One condition, read for the kinds of its terms."""

    inputs: Mapping[str, InputSpec]
    field: Expression | None

    def kinds(self, term: Term) -> Kinds:
        match term:
            case Literal():
                return frozenset({a_kind(term.value)})
            case Operand():
                return kinds_of(term.expression, self.inputs)
            case Field():
                return kinds_of(self.field, self.inputs)
            case Items():
                return frozenset({LIST})
            case Prefix(sign="-") | Infix(sign="+" | "-" | "*" | "/" | "//" | "%"):
                return frozenset({NUMBER})
            case Prefix() | Infix() | IsNull():
                return frozenset({BOOLEAN})
            case _ as never:
                assert_never(never)

    def not_a_condition(self, root: Term) -> Iterator[str]:
        kinds = self.kinds(root)
        if BOOLEAN not in kinds:
            yield f"it must be true or false, and {text_of(root)} is {_either(kinds)}; {self._compared(root, kinds)}"

    def below(self, term: Term) -> Iterator[str]:
        """Yield the doubts about everything in a term."""
        match term:
            case Infix(sign="and" | "or" as sign):
                parts = tuple(chained(term, sign))
                yield from self._logic(sign, parts)
                for part in parts:
                    yield from self.below(part)
            case Infix():
                yield from self._relation(term)
                yield from self.below(term.left)
                yield from self.below(term.right)
            case Prefix(sign="not"):
                if not isinstance(term.term, Prefix):
                    yield from self._logic("not", (term.term,))
                yield from self.below(term.term)
            case Prefix():
                yield from self._arithmetic("-", term.term)
                yield from self.below(term.term)
            case IsNull():
                yield from self.below(term.term)
            case Items():
                for item in term.items:
                    yield from self.below(item)
            case Literal() | Operand() | Field():
                return
            case _ as never:
                assert_never(never)

    def _logic(self, sign: str, parts: tuple[Term, ...]) -> Iterator[str]:
        """Yield a doubt about the first operand that is neither true nor false."""
        for part in parts:
            kinds = self.kinds(part)
            if BOOLEAN not in kinds:
                instead = alternatives(sign, parts)
                advice = f"write {instead}" if instead else self._compared(part, kinds, *parts)
                yield f"`{sign}` takes true or false, and {text_of(part)} is {_either(kinds)}; {advice}"
                return

    def _compared(self, term: Term, kinds: Kinds, *beside: Term) -> str:
        """Say how to make a comparison of a value that is none."""
        if isinstance(term, Literal | Items):
            beginnings = [(one.left, one.sign) for one in beside if isinstance(one, Infix) and one.sign in RELATIONS]
            beginnings += [(Field(), "in" if isinstance(term, Items) else "==")] if self.field else []
            for left, sign in beginnings:
                if sign.endswith("in") is isinstance(term, Items) and (sign.endswith("in") or self.kinds(left) & kinds):
                    return f"write {f'{text_of(left)} {sign} {text_of(term)}'.strip()}"
            return "write a whole comparison"
        wanted = {TEXT: "!= ''", NUMBER: "> 0"}
        relation = next((words for kind, words in wanted.items() if kind in kinds), "is not null")
        return f"compare it, as in {text_of(term)} {relation}"

    def _relation(self, term: Infix) -> Iterator[str]:
        match term.sign:
            case "==" | "!=":
                left, right = self.kinds(term.left) - {NULL}, self.kinds(term.right) - {NULL}
                if left and right and not left & right:
                    yield self._misfit(term)
                else:
                    yield from self._unlisted(term)
            case "<" | "<=" | ">" | ">=":
                if not self.kinds(term.left) & self.kinds(term.right) & _ORDERED:
                    yield self._misfit(term)
            case "in" | "not in":
                yield from self._membership(term)
            case sign:
                yield from self._arithmetic(sign, term.left)
                yield from self._arithmetic(sign, term.right)

    def _arithmetic(self, sign: str, term: Term) -> Iterator[str]:
        kinds = self.kinds(term)
        if NUMBER not in kinds:
            yield f"`{sign}` takes numbers, and {text_of(term)} is {_either(kinds)}"

    def _membership(self, term: Infix) -> Iterator[str]:
        kinds, container = self.kinds(term.left), self.kinds(term.right)
        if isinstance(term.right, Items) and term.right.items:
            items = frozenset[str]().union(*map(self.kinds, term.right.items))
            if not (kinds & items) - {NULL}:
                found = f"{named(term.left)} is {_either(kinds)} and no item of {text_of(term.right)} is"
                yield f"{found}; write {_alike(term.right, kinds) or 'items of that type'}"
            else:
                yield from self._unlisted(term)
        elif LIST not in container and not (TEXT in kinds and container & {TEXT, MAPPING}):
            found = f"{named(term.left)} is {_either(kinds)} and {named(term.right)} is {_either(container)}"
            yield f"`{term.sign}` takes a value and a list, or a text and a text or mapping, but {found}"

    def _misfit(self, term: Infix) -> str:
        left, right = self.kinds(term.left), self.kinds(term.right)
        instead = _alike(term.right, left) or _alike(term.left, right)
        return (
            f"`{term.sign}` never fits, since {named(term.left)} is {_either(left)} and {named(term.right)} is "
            f"{_either(right)}; write {instead or 'values of one type on both sides'}"
        )

    def _unlisted(self, term: Infix) -> Iterator[str]:
        """Yield the texts and numbers that an input or status is compared with although it never has them."""
        pairs = [(term.left, term.right), (term.right, term.left)] if term.sign in {"==", "!="} else []
        pairs += [(term.left, item) for item in term.right.items] if isinstance(term.right, Items) else []
        for operand, literal in pairs:
            allowed = self._listed(_expression_of(operand, self.field))
            if allowed is None or not isinstance(literal, Literal) or literal.value is None:
                continue
            if not any(same_json(literal.value, one) for one in allowed):
                known = ", ".join(map(shown, allowed))
                guess = _guess(str(literal.value), [one for one in allowed if isinstance(one, str)])
                yield f"{named(operand)} is never {text_of(literal)}; its values are {known}{guess}"

    def _listed(self, expression: Expression | None) -> tuple[Any, ...] | None:
        """Return the values that an expression may have, None when they are not listed."""
        if (spec := input_of(expression, self.inputs)) is not None:
            return allowed_values(spec)
        return _STATUSES if expression is not None and _is_status(expression) else None


def _is_status(expression: Expression) -> bool:
    """Return whether an expression is the status of a node."""
    match expression.lookups:
        case (Lookup(chain=("nodes", _, "status")),):
            return expression.is_lookup
        case _:
            return False


def _guess(word: str, known: Sequence[str]) -> str:
    """Return the question which known word was meant, in whatever letters it was written."""
    guesses = (did_you_mean(one, known) for one in (word, word.upper(), word.lower()))
    return next(filter(None, guesses), "")


def _expression_of(term: Term, field: Expression | None) -> Expression | None:
    return term.expression if isinstance(term, Operand) else field if isinstance(term, Field) else None


def _either(kinds: Kinds) -> str:
    """Return kinds as a reader says them, null last."""
    return " or ".join(sorted(kinds, key=lambda kind: (kind == NULL, kind)))


def _alike(term: Term, kinds: Kinds) -> str | None:
    """Return how a literal, or a list of them, is written as a value of one of these kinds; None when it cannot be."""
    match term:
        case Items():
            items = [_alike(item, kinds) for item in term.items]
            return None if None in items else f"[{', '.join(str(item) for item in items)}]"
        case Literal(value=str() as text):
            numeric = NUMBER in kinds and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text)
            return text if numeric or (BOOLEAN in kinds and text in {"true", "false"}) else None
        case Literal() if TEXT in kinds and term.value is not None:
            return f"'{text_of(term)}'"
        case _:
            return None
