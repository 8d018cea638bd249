"""Cursors and parameters of lists."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import ParameterInvalid
from core.paging import check_names, check_once, make_cursor, page, read_cursor, read_limit, read_one_of, read_text

TIMES = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]))
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


@given(TIMES, TEXTS, st.integers(-(2**63), 2**63 - 1))
def test_a_cursor_comes_back_as_the_key_it_was_made_of(when: datetime, text: str, number: int) -> None:
    assert read_cursor("l", make_cursor("l", (when, text, number)), datetime, str, int) == (when, text, number)


@given(st.one_of(st.text(max_size=60), st.binary(max_size=60).map(lambda raw: raw.decode("latin-1"))))
def test_any_other_text_is_a_key_or_refused(text: str) -> None:
    with suppress(ParameterInvalid):
        assert read_cursor("l", text, datetime, str) is not None


@pytest.mark.parametrize(
    ("key", "kinds"),
    [
        (("2026-01-01T00:00:00", "a"), (datetime, str)),
        (("x", "a"), (datetime, str)),
        ((1, "a"), (datetime, str)),
        ((True,), (int,)),
        ((2**63,), (int,)),
        (("a\0",), (str,)),
        (("a",), (int,)),
        (("a", "b"), (str,)),
        ((), (str,)),
        (("a" * 2000,), (str,)),
    ],
)
def test_a_key_of_another_shape_is_no_cursor(key: tuple[Any, ...], kinds: tuple[type, ...]) -> None:
    with pytest.raises(ParameterInvalid):
        read_cursor("l", make_cursor("l", key), *kinds)


def test_a_page_says_where_the_next_one_starts() -> None:
    first = page("l", [1, 2, 3], 2, lambda row: (row,))
    assert first.rows == [1, 2]
    assert read_cursor("l", first.next_after, int) == (2,)
    assert page("l", [1, 2], 2, lambda row: (row,)).next_after is None
    assert page("l", [], 2, lambda row: (row,)).next_after is None
    assert read_cursor("l", None, int) is None
    with pytest.raises(ParameterInvalid):
        read_cursor("other", first.next_after, int)


@pytest.mark.parametrize("text", ["0", "501", "-1", "1.5", "", "x", "٣", "0001"])
def test_a_limit_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(ParameterInvalid):
        read_limit(text)


def test_a_limit_has_a_default() -> None:
    assert (read_limit(None), read_limit("1"), read_limit("500")) == (50, 1, 500)


def test_parameters_are_known_or_refused() -> None:
    check_names({"a": "1"}, ("a", "b"))
    for params in ({"c": "1"}, {"\0": "1"}):
        with pytest.raises(ParameterInvalid):
            check_names(params, ("a",))
    assert read_text("a", {}) is None
    assert read_text("a", {"a": "ä"}) == "ä"
    for value in ("", "\0", "x" * 257, "a\n"):
        with pytest.raises(ParameterInvalid):
            read_text("a", {"a": value})
    assert read_one_of("a", {"a": "x"}, ("x", "y")) == "x"
    with pytest.raises(ParameterInvalid, match="expected x, y"):
        read_one_of("a", {"a": "z"}, ("x", "y"))


def test_a_parameter_that_stands_twice_is_refused_and_named() -> None:
    check_once(["a", "b"])
    with pytest.raises(ParameterInvalid, match="'a' stands twice") as refused:
        check_once(["a", "b", "a"])
    assert refused.value.detail.field == "a"


def test_where_there_are_no_parameters_that_is_said() -> None:
    with pytest.raises(ParameterInvalid, match="there are none"):
        check_names({"force": "1"}, ())
