"""Templates against any text, any expression and any data."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.dag.filters import FILTERS, TESTS
from core.dag.json_values import as_stored, check_json
from core.dag.templates import TemplateFailed, compile_text, compile_value, render
from core.errors import GeodagError
from core.ids import canonical_json
from tests.unit.core.dag.laws import LAWS

KEYS = st.sampled_from(["a", "b", "items", "keys", "__class__", "output", "status", "a b", "{{ x }}", ""])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
STORABLE = st.characters(exclude_characters="\x00", exclude_categories=["Cs"])
TEXTS = st.text(STORABLE, max_size=8)
DATA = st.recursive(
    SCALARS | TEXTS | st.sampled_from(["{{ inputs }}", "{% if 1 %}", "007", "[1, 2]", "true", "5"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | TEXTS, inner, max_size=3),
    max_leaves=8,
).map(lambda data: as_stored(data, "data"))
ATOMS = st.sampled_from(
    ["inputs.x", "inputs.x.a", "inputs.x[0]", "nodes.a.output.b", "nope", "1", "2.5", "'t'", "none"]
)


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Build larger expressions from smaller ones with everything that the language has, and some that it has not."""
    filters = st.sampled_from([*FILTERS, "attr", "map", "nope"])
    return st.one_of(
        st.builds(
            "({} {} {})".format, inner, st.sampled_from(["+", "*", "**", "%", "~", "and", "==", "<", "in"]), inner
        ),
        st.builds("({} | {})".format, inner, filters),
        st.builds("({} | {}({}))".format, inner, filters, inner),
        st.builds("({} is {})".format, inner, st.sampled_from([*TESTS, "callable", "not defined"])),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("{{'k': {}}}".format, inner),
        st.builds("{}.a".format, inner),
        st.builds("{}[{}]".format, inner, inner),
        st.builds("{}({})".format, inner, inner),
    )


EXPRESSIONS = st.recursive(ATOMS, _grown, max_leaves=6)
PIECES = st.sampled_from(
    ["{{", "}}", "{%", "%}", "{#", "#}", "{{ inputs.x }}", "-", "|", "default", "(", ")", "'", "raw"]
)


def outcome(text: str, scope: dict[str, Any]) -> Any:
    """Return the value, or our error; anything else that is raised fails the test."""
    try:
        return render(compile_text(text), scope, "params.x")
    except TemplateFailed as error:
        return error


@LAWS
@given(st.text(STORABLE) | st.lists(PIECES | st.text(STORABLE, max_size=3), max_size=10).map("".join), DATA)
def test_any_text_renders_or_fails_with_our_error(text: str, data: Any) -> None:
    result = outcome(text, {"inputs": {"x": data}, "nodes": {}})
    if not isinstance(result, GeodagError):
        check_json(result, "result")


@LAWS
@given(EXPRESSIONS, DATA)
def test_any_expression_has_a_json_value_or_fails_with_our_error(expression: str, data: Any) -> None:
    before = canonical_json(data)
    result = outcome(f"{{{{ {expression} }}}}", {"inputs": {"x": data}, "nodes": {"a": {"status": "FAILED"}}})
    if not isinstance(result, GeodagError):
        check_json(result, "result")
    assert canonical_json(data) == before


@LAWS
@given(DATA)
def test_a_lone_expression_hands_any_value_on_as_it_is(data: Any) -> None:
    result = outcome("{{ inputs.x }}", {"inputs": {"x": data}})
    assert result == data
    assert type(result) is type(data)
    assert canonical_json(result) == canonical_json(data)


@LAWS
@given(DATA)
def test_in_a_text_any_value_is_text_and_nothing_in_it_is_rendered(data: Any) -> None:
    shown = data if isinstance(data, str) else canonical_json(data)
    assert outcome("<{{ inputs.x }}>", {"inputs": {"x": data}}) == f"<{shown}>"


@LAWS
@given(DATA, st.lists(KEYS | st.integers(-3, 3), min_size=1, max_size=4))
def test_a_path_leads_to_its_value_or_is_named_in_the_error_at_any_depth(data: Any, path: list[str | int]) -> None:
    text = "".join(f"[{canonical_json(key)}]" for key in path)
    expected: Any = data
    for key in path:
        found = isinstance(expected, dict) and key in expected
        found |= isinstance(key, int) and isinstance(expected, list | str) and -len(expected) <= key < len(expected)
        expected = expected[key] if found else LookupError
        if expected is LookupError:
            break
    scope = {"inputs": {"x": data}}
    result = outcome(f"{{{{ inputs.x{text} }}}}", scope)
    if expected is LookupError:
        assert isinstance(result, TemplateFailed)
        named = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
        assert result.detail.field == f"inputs.x{named}"
        assert outcome(f"{{{{ inputs.x{text} | default('d') }}}}", scope) == "d"
        assert outcome(f"{{{{ inputs.x{text} is defined }}}}", scope) is False
    else:
        assert result == expected
        assert outcome(f"{{{{ inputs.x{text} is defined }}}}", scope) is True


@LAWS
@given(
    st.dictionaries(TEXTS, TEXTS | st.sampled_from(["{{ inputs.x }}", "{{ 1 + 1 }}", "a{{ inputs.x }}"]), max_size=4)
)
def test_rendered_values_are_not_templates_any_more(value: dict[str, str]) -> None:
    scope = {"inputs": {"x": "{{ inputs.y }}", "y": "secret"}}
    try:
        rendered = render(compile_value(value), scope, "params")
    except TemplateFailed:
        return
    assert "secret" not in canonical_json(rendered) or "secret" in canonical_json(value)
