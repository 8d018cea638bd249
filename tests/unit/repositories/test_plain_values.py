"""Statements and values that are made ready without psycopg mean what psycopg would have sent."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors
from psycopg._queries import PostgresQuery
from psycopg.adapt import Transformer
from psycopg.types.json import Jsonb

from repositories.plain_values import prepared

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))
VALUE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    TEXT,
    st.lists(TEXT),
    st.sampled_from([["null"], [""], ['"'], ["\\"], ['a","b'], ["a", ",", "{}"]]),
)
NUMBERS = {21: ">h", 23: ">i", 20: ">q", 701: ">d"}


def items_of(literal: bytes) -> list[str]:
    """Return the items of an array literal of texts, quoted or not."""
    inner, items, at = literal.decode()[1:-1], list[str](), 0
    while at < len(inner):
        quoted, at, item = inner[at] == '"', at + (inner[at] == '"'), ""
        while at < len(inner) and inner[at] != ('"' if quoted else ","):
            at += inner[at] == "\\"
            item, at = item + inner[at], at + 1
        items, at = [*items, item], at + 1 + quoted
    return items


def meaning(sent: Any, kind: int, is_list: bool) -> object:
    """Return what the server understands of a value in psycopg's format, or in ours."""
    if sent is None:
        return None
    data = bytes(sent)
    if is_list:
        return items_of(data)
    if kind == 16:
        return data in {b"t", b"\x01"}
    if kind in NUMBERS:
        return "as the next test says"
    return data


@given(values=st.lists(VALUE, min_size=1, max_size=6), named=st.booleans())
def test_plain_values_have_the_types_and_the_meaning_that_psycopg_gives_them(values: list[Any], named: bool) -> None:
    names = [f"p{number}" for number in range(len(values))]
    places = [f"%({name})s" for name in [*names, *names[:1]]] if named else ["%s"] * len(values)
    statement = f"SELECT '100%%', {', '.join(places)}"
    given_values: Any = dict(zip(names, values, strict=True)) if named else tuple(values)
    query = PostgresQuery(Transformer())
    query.convert(statement, given_values)
    made = prepared(statement, given_values)
    assert made is not None
    text, params, types, formats = made
    assert (text, types, formats) == (query.query, tuple(query.types), None)
    lists = [isinstance(value, list) for value in values]
    ours = [meaning(*one) for one in zip(params or (), types, lists, strict=True)]
    theirs = [meaning(*one) for one in zip(query.params or (), types, lists, strict=True)]
    assert ours == theirs


@given(value=st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)))
def test_numbers_are_written_as_they_are(value: float) -> None:
    made = prepared("SELECT %s", (value,))
    assert made is not None
    text = ((made[1] or [b""])[0] or b"").decode()
    query = PostgresQuery(Transformer())
    query.convert("SELECT %s", (value,))
    assert struct.pack(NUMBERS[made[2][0]], type(value)(text)) == bytes((query.params or [b""])[0] or b"")


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        ("SELECT %s", (2**63,)),
        ("SELECT %s", (Jsonb({}),)),
        ("SELECT %s", ([1, 2],)),
        ("SELECT %s", (["a", None],)),
        ("SELECT %b", (1,)),
        ("SELECT %s", (1, 2)),
        ("SELECT %s", {"a": 1}),
        ("SELECT %(a)s", (1,)),
        ("SELECT %(a)s", {"b": 1}),
        (b"SELECT %s", (1,)),
    ],
)
def test_everything_else_and_every_mistake_is_left_to_psycopg(statement: Any, values: Any) -> None:
    assert prepared(statement, values) is None


def test_a_statement_without_values_is_sent_as_it_is() -> None:
    assert prepared("SELECT 5 % 3", None) == (b"SELECT 5 % 3", None, (), None)


@pytest.mark.parametrize("value", ["a\0b", ["a", "b\0"]])
def test_a_text_that_would_end_early_on_the_wire_is_an_error(value: object) -> None:
    with pytest.raises(errors.DataError, match="NUL"):
        prepared("SELECT %s", (value,))


def test_a_document_is_one_text() -> None:
    document = json.dumps({"rows": ['"', "\\", "ü"]})
    assert prepared("SELECT %s::jsonb", (document,)) == (b"SELECT $1::jsonb", [document.encode()], (0,), None)
