"""How large a pattern is, and that stored ones of an earlier build are searched as they were then."""

import pytest

from core.dag.definition import Workflow
from core.dag.inputs import resolve_inputs
from core.dag.patterns import check_pattern, matches, size_of
from core.errors import ParameterInvalid
from tests.unit.core.dag.harness import chain, workflow_of


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("", 0),
        ("^[a-z]+$", 1),
        ("^[0-9a-f]{8}-[0-9a-f]{4}$", 13),
        ("(?:[01]*1[01]{1000}){5}x", 5011),
        (r"\d{4}-\d{2}|\p{Lu}{3}", 10),
        (r"(?P<year>\d{4}){2}(?<day>[0-9]{2})", 10),
        ("(?i)ab(?-u:c)", 3),
        ("[[:alpha:]_]{3}[^]a]{2}", 5),
        (r"a\{3}\(\[b", 7),
        ("((a{2}){3}){4}", 24),
        ("(?:a|bc){2,5}", 15),
        ("a{2,}b{0}", 3),
        (")a{", 3),
    ],
)
def test_a_size_counts_each_place_as_often_as_it_is_repeated(pattern: str, size: int) -> None:
    assert size_of(pattern) == size


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("^(?!tmp)[a-z]+$", ["abc"], ["tmpx", "abc\n"]),
        (r"^(.)\1$", ["aa"], ["ab"]),
        (r"(?<=x)y\$", ["xy$"], ["y$", "xy"]),
        ("^[a-z]+$", ["abc"], ["abc\n"]),
    ],
)
def test_a_stored_definition_with_a_pattern_of_an_earlier_build_is_readable(
    pattern: str, good: list[str], bad: list[str]
) -> None:
    stored = workflow_of(chain("a")).to_json() | {"inputs": {"x": {"type": "string", "pattern": pattern}}}
    workflow = Workflow.from_json(stored)
    assert workflow.to_json() == stored
    for text in good:
        assert resolve_inputs(workflow, {"x": text}) == {"x": text}
    for text in bad:
        with pytest.raises(ParameterInvalid):
            resolve_inputs(workflow, {"x": text})


@pytest.mark.parametrize("pattern", ["(?!a)b", r"(.)\1", "[", "a{10001}", r"\w{5000}"])
def test_no_new_file_may_have_one(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"not a regular expression known here|counts multiplied"):
        check_pattern(pattern)


def test_a_text_is_searched_and_not_matched_from_its_start() -> None:
    assert matches("b", "abc")
    assert not matches("^b", "abc")
