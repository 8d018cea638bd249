"""Terms of conditions as their authors write them: what advice quotes, and what it proposes."""

from collections.abc import Iterator, Sequence
from typing import Final, assert_never

from core.dag.condition_syntax import Field, Infix, IsNull, Items, Literal, Operand, Prefix, Term
from core.dag.conditions import shown
from core.wording import shorten


def text_of(term: Term) -> str:
    """Return a term as text; brackets only where they say something."""
    match term:
        case Literal(value=str() as text):
            escaped = shorten(text, 60).replace("\\", "\\\\").replace("'", "\\'")
            return f"'{escaped}'"
        case Literal():
            return shown(term.value)
        case Operand():
            return shorten(" ".join(term.text.split()), 100)
        case Field():
            return ""
        case Items():
            return f"[{', '.join(map(text_of, term.items))}]"
        case Prefix(sign="-"):
            return f"-{_grouped(term.term)}"
        case Prefix():
            return f"not {_grouped(term.term)}"
        case IsNull():
            return f"{_grouped(term.term)} is {'not ' if term.negated else ''}null".strip()
        case Infix():
            return f"{_grouped(term.left)} {term.sign} {_grouped(term.right)}".strip()
        case _ as never:
            assert_never(never)


def _grouped(term: Term) -> str:
    return f"({text_of(term)})" if isinstance(term, Infix | IsNull) else text_of(term)


def named(term: Term) -> str:
    """Return what a term is called in a sentence."""
    return "condition_field" if isinstance(term, Field) else text_of(term)


def chained(term: Term, sign: str) -> Iterator[Term]:
    """Yield the operands of a row of `and`, or of `or`, from left to right."""
    if isinstance(term, Infix) and term.sign == sign:
        yield from chained(term.left, sign)
        yield from chained(term.right, sign)
    else:
        yield term


_MANY: Final = {("or", "=="): "in", ("and", "!="): "not in"}


def alternatives(sign: str, parts: Sequence[Term]) -> str | None:
    """Return `x in ['a', 'b']` for `x == 'a' or 'b'`, `not in` likewise; None when a row of `sign` is anything else."""
    first, *rest = parts
    if not (isinstance(first, Infix) and isinstance(first.right, Literal) and (sign, first.sign) in _MANY):
        return None
    if not all(isinstance(one, Literal) for one in rest):
        return None
    return f"{text_of(first.left)} {_MANY[sign, first.sign]} {text_of(Items((first.right, *rest)))}".strip()
