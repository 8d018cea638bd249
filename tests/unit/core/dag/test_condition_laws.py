"""Conditions against Python's own operators, and against any text."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.dag.condition_syntax import ConditionFailed
from core.dag.conditions import Condition, parse_condition
from core.dag.templates import TemplateFailed
from core.errors import GeodagError
from core.ids import canonical_json
from tests.unit.core.dag.harness import reading
from tests.unit.core.dag.laws import LAWS

NUMBERS = st.integers(-20, 20) | st.floats(-20, 20, allow_nan=False).map(lambda number: round(number, 2))
TEXTS = st.text(alphabet="ab'\"\\ ", max_size=3)

Spelt = tuple[str, str]
"""The same thing in the condition's language and in Python, where `v` holds the operands."""


class Made:
    """Draws terms and keeps the values that they refer to."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.values: list[Any] = []

    def leaf(self, value: Any) -> Spelt:
        self.values.append(value)
        place = f"v[{len(self.values) - 1}]"
        if self.draw(st.booleans()):
            return f"{{{{ {place} }}}}", place
        if isinstance(value, str):
            value = value.replace("\\", "\\\\").replace("'", "\\'")
            return f"'{value}'", place
        return canonical_json(value), place

    def number(self, depth: int) -> Spelt:
        if depth == 0 or self.draw(st.booleans()):
            return self.leaf(self.draw(NUMBERS))
        sign = self.draw(st.sampled_from(["+", "-", "*", "/", "//", "%"]))
        left, right = self.number(depth - 1), self.number(depth - 1)
        return f"({left[0]} {sign} {right[0]})", f"({left[1]} {sign} {right[1]})"

    def truth(self, depth: int) -> Spelt:
        kind = self.draw(st.sampled_from(["compare", "text", "in", "null", *(["and", "or", "not"] if depth else [])]))
        sign = self.draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
        match kind:
            case "and" | "or":
                left, right = self.truth(depth - 1), self.truth(depth - 1)
                return f"({left[0]} {kind} {right[0]})", f"({left[1]} {kind} {right[1]})"
            case "not":
                inner = self.truth(depth - 1)
                return f"(not {inner[0]})", f"(not {inner[1]})"
            case "compare":
                left, right = self.number(2), self.number(2)
            case "text":
                left, right = self.leaf(self.draw(TEXTS)), self.leaf(self.draw(TEXTS))
            case "in":
                sign = self.draw(st.sampled_from(["in", "not in"]))
                left = self.leaf(self.draw(NUMBERS))
                items = [self.number(0) for _ in range(self.draw(st.integers(0, 3)))]
                right = f"[{', '.join(item[0] for item in items)}]", f"[{', '.join(item[1] for item in items)}]"
            case _:
                left = self.leaf(self.draw(NUMBERS | TEXTS | st.none()))
                negated = self.draw(st.booleans())
                python = f"({left[1]} is not None)" if negated else f"({left[1]} is None)"
                return f"({left[0]} is {'not ' if negated else ''}null)", python
        return f"({left[0]} {sign} {right[0]})", f"({left[1]} {sign} {right[1]})"


@st.composite
def questions(draw: st.DrawFn) -> tuple[str, str, list[Any]]:
    """Draw a condition, the same in Python, and the values of its operands."""
    made = Made(draw)
    text, python = made.truth(2)
    return text, python, made.values


def by_python(text: str, values: list[Any]) -> bool | None:
    """Return Python's answer, None when it has none."""
    try:
        return bool(eval(text, {"__builtins__": {}}, {"v": values}))
    except ArithmeticError:
        return None


def by_us(condition: Condition, values: list[Any]) -> bool | None:
    """Return our answer, None when there is none."""
    try:
        return condition.holds(reading({"v": values}))
    except ConditionFailed:
        return None


@LAWS
@given(questions())
def test_every_operator_means_what_it_means_in_python(question: tuple[str, str, list[Any]]) -> None:
    text, python, values = question
    assert by_us(parse_condition(text), values) == by_python(python, values)


@LAWS
@given(questions())
def test_parentheses_around_nothing_change_nothing(question: tuple[str, str, list[Any]]) -> None:
    text, _, values = question
    answer = by_us(parse_condition(text), values)
    assert by_us(parse_condition(f"(({text}))"), values) == answer
    inner = text.removeprefix("(").removesuffix(")")
    assert by_us(parse_condition(inner), values) == answer


WORDS = "and or not in is null true false ( ) [ ] , < <= == != > >= + - * / // % 1 2.5 'a' \" ' {{ {% }}"
PIECES = st.sampled_from(["{{ v[0] }}", "{{ x.y }}", "{{ }}", *WORDS.split()])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


SIGNS = ["==", "!=", "<", "<=", ">", ">=", "in", "not in"]


def answer_of(text: str, scope: dict[str, Any], field: Any = None) -> bool | GeodagError:
    """Return the answer, or the error in place of one; anything else that is raised fails the test."""
    try:
        return parse_condition(text, field=field is not None).holds(reading(scope), field)
    except (ConditionFailed, TemplateFailed) as error:
        return error


@LAWS
@given(st.text() | st.lists(PIECES | st.text(max_size=2), max_size=12).map(" ".join), VALUES)
def test_any_text_has_an_answer_or_one_of_our_errors(text: str, value: Any) -> None:
    answer = answer_of(text, {"v": [value], "x": value}, value)
    assert isinstance(answer, bool | ConditionFailed | TemplateFailed)


@LAWS
@given(VALUES, VALUES, st.sampled_from(SIGNS))
def test_any_two_values_compare_or_are_named_in_the_error(left: Any, right: Any, sign: str) -> None:
    answer = answer_of(f"{{{{ left }}}} {sign} {{{{ right }}}}", {"left": left, "right": right})
    assert isinstance(answer, bool) or ("{{ left }} = " in str(answer) and "{{ right }} = " in str(answer))


@LAWS
@given(VALUES, VALUES, st.sampled_from(["+", "-", "*", "/", "//", "%"]))
def test_any_two_values_calculate_or_are_named_in_the_error(left: Any, right: Any, sign: str) -> None:
    text = f"{{{{ left }}}} {sign} {{{{ right }}}} is not null"
    answer = answer_of(text, {"left": left, "right": right})
    assert answer is True or ("{{ left }} = " in str(answer) and "{{ right }} = " in str(answer))
