"""The grammar of conditions, from text to a tree. Nothing is evaluated here.

    any_of     = all_of { "or" all_of }
    all_of     = negation { "and" negation }
    negation   = "not" negation | comparison
    comparison = [ sum ] [ relation sum | "is" [ "not" ] "null" ]
    relation   = "==" | "!=" | "<" | "<=" | ">" | ">=" | [ "not" ] "in"
    sum        = product { ( "+" | "-" ) product }
    product    = factor { ( "*" | "/" | "//" | "%" ) factor }
    factor     = "-" factor | "{{ … }}" | number | text | "true" | "false" | "null" | "(" any_of ")" | list
    list       = "[" [ sum { "," sum } ] "]"

A comparison without its left side stands for one with the `condition_field` of the node; only branches have one.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from core.dag.json_values import as_stored
from core.dag.other_languages import instead_of_sign
from core.dag.templates import Expression, TemplateFailed, compile_text
from core.errors import GeodagError
from core.wording import shorten

MAX_LENGTH = 10_000
MAX_DEPTH = 50
MAX_DIGITS = 1_000
MAX_OPERATORS = 200

RELATIONS: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "in", "not in"})
_WORDS: Final = frozenset({"and", "or", "not", "in", "is", "true", "false", "null"})
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_OTHER_WORDS: Final[Mapping[str, str]] = {**{word: word for word in _WORDS}, "none": "null", "nil": "null"}
"""In small letters."""
_TOKEN: Final = re.compile(
    r"""(?:(?P<number>(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(?![\w.])
      | (?P<text>'[^'\\]*(?:\\.[^'\\]*)*' | "[^"\\]*(?:\\.[^"\\]*)*")
      | (?P<word>[A-Za-z_]\w*(?:\.\w+)*)
      | (?P<sign>==|!=|<=|>=|//|[<>+\-*/%(),\[\]]))""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


class ConditionFailed(GeodagError):
    """A condition is not one, or has no answer for these values; the same data would fail again."""

    code = "CONDITION_ERROR"


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that stands in the text."""

    value: Any


@dataclass(frozen=True, slots=True)
class Operand:
    """One `{{ … }}`."""

    text: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Field:
    """The left side that was left out."""


@dataclass(frozen=True, slots=True)
class Items:
    """A list of values."""

    items: tuple["Term", ...]


@dataclass(frozen=True, slots=True)
class Prefix:
    """`not` or `-` before a term."""

    sign: str
    term: "Term"


@dataclass(frozen=True, slots=True)
class Infix:
    """Two terms and what stands between them."""

    sign: str
    left: "Term"
    right: "Term"


@dataclass(frozen=True, slots=True)
class IsNull:
    """`is null`, or `is not null`."""

    term: "Term"
    negated: bool


Term = Literal | Operand | Field | Items | Prefix | Infix | IsNull


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """number | text | word | sign | operand | end"""
    text: str
    at: int


def parse(text: str, *, field: bool = False) -> Term:
    """Return the tree of a condition; `field` allows comparisons without a left side. Raises `ConditionFailed`."""
    if len(text) > MAX_LENGTH:
        raise ConditionFailed(f"a condition of {len(text)} characters is longer than {MAX_LENGTH}")
    return _Parser(text, field).parse()


def operands(term: Term) -> Iterator[Operand]:
    """Yield every `{{ … }}` of a tree."""
    match term:
        case Operand():
            yield term
        case Items():
            for item in term.items:
                yield from operands(item)
        case Prefix() | IsNull():
            yield from operands(term.term)
        case Infix():
            yield from operands(term.left)
            yield from operands(term.right)
        case Literal() | Field():
            return


def _tokens(source: str) -> Iterator[_Token]:
    at = _after_space(source, 0)
    while at < len(source):
        if source.startswith("{{", at):
            end = _operand_end(source, at)
            yield _Token("operand", source[at:end], at)
        else:
            match = None if source.startswith("<>", at) else _TOKEN.match(source, at)
            if match is None:
                raise _error(source, at, f"{source[at]!r} is not known here{instead_of_sign(source, at)}")
            kind = match.lastgroup or ""
            end = match.end()
            yield _Token(kind, match[kind], at)
        at = _after_space(source, end)
    yield _Token("end", "the end", len(source))


def _instead_of_word(word: str) -> str:
    """Say what to write for a word that is spelled otherwise here; empty for one that is right or nothing known."""
    meant = _OTHER_WORDS.get(word.lower(), word)
    return "" if meant == word else f"; write {meant} instead of {word}"


def _after_space(source: str, at: int) -> int:
    while at < len(source) and source[at].isspace():
        at += 1
    return at


def _operand_end(source: str, start: int) -> int:
    """Return where a `{{ … }}` ends; braces inside it are balanced and texts are passed over."""
    depth, quote, at = 0, "", start + 2
    while at < len(source):
        char = source[at]
        if quote:
            at += char == "\\"
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif depth == 0 and source.startswith("}}", at):
            return at + 2
        else:
            depth += (char == "{") - (char == "}")
        at += 1
    raise _error(source, start, "a {{ has no }}")


def _error(source: str, at: int, problem: str) -> ConditionFailed:
    return ConditionFailed(f"{shorten(source)} is not a condition: at character {at + 1}, {problem}")


class _Parser:
    """Recursive descent, one method a rule of the grammar."""

    def __init__(self, source: str, field: bool) -> None:
        self.source = source
        self.field = field
        self.depth = 0
        self.tokens = list(_tokens(source))
        self.at = 0

    def parse(self) -> Term:
        """Return the tree of the whole text."""
        operators = [token for token in self.tokens if token.kind in {"sign", "word"} and token.text not in "[,]"]
        if len(operators) > MAX_OPERATORS:
            raise self.error(f"it has {len(operators)} operators, more than {MAX_OPERATORS}")
        term = self.any_of()
        if self.peek.kind != "end":
            raise self.error(f"{self.peek.text} is one thing too many{_instead_of_word(self.peek.text)}")
        return term

    @property
    def peek(self) -> _Token:
        return self.tokens[self.at]

    def take(self, *texts: str) -> str | None:
        """Take the next token when it is one of these signs or words."""
        token = self.peek
        if token.kind not in {"sign", "word"} or token.text not in texts:
            return None
        self.at += 1
        return token.text

    def expect(self, text: str) -> None:
        if self.take(text) is None:
            raise self.error(f"{text} is expected, not {self.peek.text}")

    def error(self, problem: str) -> ConditionFailed:
        return _error(self.source, self.peek.at, problem)

    def any_of(self) -> Term:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error("it is nested too deeply")
        term = self.all_of()
        while self.take("or"):
            term = Infix("or", term, self.all_of())
        self.depth -= 1
        return term

    def all_of(self) -> Term:
        term = self.negation()
        while self.take("and"):
            term = Infix("and", term, self.negation())
        return term

    def negation(self) -> Term:
        signs = 0
        while self.peek.text == "not" and self.peek.kind == "word" and self.tokens[self.at + 1].text != "in":
            self.at += 1
            signs += 1
        term = self.comparison()
        return Prefix("not", term if signs % 2 else Prefix("not", term)) if signs else term

    def comparison(self) -> Term:
        left = self.left_side()
        if self.take("is"):
            negated = self.take("not") is not None
            self.expect("null")
            term: Term = IsNull(left, negated)
        elif (relation := self.relation()) is not None:
            term = Infix(relation, left, self.sum())
        else:
            return left
        if self.peek.text in RELATIONS | {"is"} and self.peek.kind in {"sign", "word"}:
            raise self.error("comparisons cannot be chained; put `and` between two")
        return term

    def left_side(self) -> Term:
        token = self.peek
        if token.kind not in {"sign", "word"} or token.text not in RELATIONS | {"is", "not"}:
            return self.sum()
        if self.field:
            return Field()
        raise self.error(f"{token.text} has nothing on its left; only branches with a condition_field may leave it out")

    def relation(self) -> str | None:
        if self.take("not"):
            self.expect("in")
            return "not in"
        return self.take(*RELATIONS)

    def sum(self) -> Term:
        term = self.product()
        while sign := self.take("+", "-"):
            term = Infix(sign, term, self.product())
        return term

    def product(self) -> Term:
        term = self.factor()
        while sign := self.take("*", "/", "//", "%"):
            term = Infix(sign, term, self.factor())
        return term

    def factor(self) -> Term:
        negative = False
        term: Term
        while self.take("-"):
            negative = not negative
        if self.take("("):
            term = self.any_of()
            self.expect(")")
        elif self.take("["):
            term = self.items()
        else:
            term = self.value()
        return Prefix("-", term) if negative else term

    def items(self) -> Term:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error("it is nested too deeply")
        items: list[Term] = []
        while self.take("]") is None:
            if items:
                self.expect(",")
            items.append(self.sum())
        self.depth -= 1
        return Items(tuple(items))

    def value(self) -> Term:
        token = self.peek
        match token.kind:
            case "operand":
                term: Term = Operand(token.text, self.expression(token.text))
            case "number":
                term = Literal(self.number(token.text))
            case "text":
                term = Literal(self.text(token.text))
            case "word" if token.text in _CONSTANTS:
                term = Literal(_CONSTANTS[token.text])
            case "word" if token.text not in _WORDS:
                hint = _instead_of_word(token.text) or "; names stand inside {{ … }}, texts in quotes"
                raise self.error(f"{shorten(token.text, 50)} is not known{hint}")
            case _:
                raise self.error(f"a value is expected, not {token.text}")
        self.at += 1
        return term

    def expression(self, text: str) -> Expression:
        try:
            program = compile_text(text)
        except TemplateFailed as error:
            raise self.error(error.detail.message) from error
        if not isinstance(program, Expression):
            raise self.error(f"{shorten(text)} is not one expression")
        return program

    def number(self, text: str) -> int | float:
        if len(text) > MAX_DIGITS:
            raise self.error("a number has too many digits")
        number = int(text) if text.isdecimal() else float(text)
        if isinstance(number, float) and math.isinf(number):
            raise self.error(f"{text} is too large a number")
        stored: int | float = as_stored(number, text)
        return stored

    def text(self, quoted: str) -> str:
        if "{{" in quoted:
            raise self.error("a {{ … }} stands in quotes; it is a value of its own type, leave the quotes away")
        return re.sub(r"\\(.)", r"\1", quoted[1:-1], flags=re.DOTALL)
