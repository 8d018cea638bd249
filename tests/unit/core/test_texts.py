"""Texts from outside: nothing turns the words around it, and what looks alike in a name is alike."""

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import b2b
from core.b2b_assets import CommentRequest, RejectRequest
from core.errors import ParameterInvalid
from core.texts import is_clean, is_name

TURNING = [chr(n) for n in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))]
HIDDEN = ["\u200b", "\u2060", "\ufeff", "\u00ad\u2061", "\U000e0041", "\ufff9"]
MARKS = ["\u200c", "\u200d", "\u200e", "\u200f", "\u061c", "\u00ad"]
UNSEEN = ["\u3164", "\u034f", "\ufe0f", "\u2800", "\u00a0", "\u3000", "\u180b", "\U000e0100"]


def submit(**changes: Any) -> Any:
    body = {
        "platform_id": "ddh",
        "platform_refs": {"dataset_id": "1"},
        "data_type": "raster",
        "source": {"container_name": "bronze", "blob_name": "ddh/a.tif"},
    }
    return b2b.parse(b2b.SubmitRequest, body | changes)


@pytest.mark.parametrize("char", [*TURNING, *HIDDEN])
def test_what_turns_or_hides_a_text_is_refused_everywhere(char: str) -> None:
    text = f"map{char}fdp.exe"
    assert (is_clean(text), is_name(text)) == (False, False)
    for field, value in (
        ("platform_refs", {"dataset_id": text}),
        ("version_label", text),
        ("title", text),
        ("description", text),
        ("tags", [text]),
    ):
        with pytest.raises(ParameterInvalid) as refused:
            submit(**{field: value})
        assert str(refused.value.detail.field).startswith(field)
    for model, name in ((RejectRequest, "reason"), (CommentRequest, "text")):
        with pytest.raises(ParameterInvalid):
            b2b.parse(model, {name: text})  # type: ignore[type-var]


@pytest.mark.parametrize("char", [*MARKS, *UNSEEN])
def test_what_scripts_are_written_with_stands_in_sentences_and_in_no_name(char: str) -> None:
    text = f"می{char}خواهم"
    assert (is_clean(text), is_name(text)) == (True, False)
    assert submit(title=text, description=text).title == text
    for field, value in (("platform_refs", {"dataset_id": text}), ("version_label", text)):
        with pytest.raises(ParameterInvalid):
            submit(**{field: value})


@pytest.mark.parametrize("text", ["Übersicht 2024", "наблюдения", "地図 v2", "مدينة", "naïve café", "a b-c_d.e"])
def test_names_in_any_script_are_names(text: str) -> None:
    assert (is_clean(text), is_name(text)) == (True, True)


@pytest.mark.parametrize("text", [" 1", "1 ", " "])
def test_a_name_has_no_blank_at_an_end(text: str) -> None:
    assert (is_clean(text), is_name(text)) == (True, False)
    for field, value in (("version_label", text), ("platform_refs", {"dataset_id": text})):
        with pytest.raises(ParameterInvalid) as refused:
            submit(**{field: value})
        assert str(refused.value.detail.field).startswith(field)


@given(st.text(max_size=30))
def test_a_name_is_clean_and_nothing_in_it_has_a_direction_of_its_own(text: str) -> None:
    if is_name(text):
        assert is_clean(text)
        assert {unicodedata.bidirectional(c) for c in text}.isdisjoint(
            {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI", "BN"}
        )
