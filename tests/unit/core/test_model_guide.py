"""Fields of models in words."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from core.model_guide import guides_of


class Colour(StrEnum):
    """Of something."""

    RED = "red"
    BLUE = "blue"


class Inner(BaseModel):
    """What is inside."""

    colour: Colour = Colour.RED


class Outer(BaseModel):
    """What is outside.

    More of it.
    """

    model_config = ConfigDict(extra="allow")

    count: Annotated[int, Field(ge=1, le=9, description="How  many.")]
    names: list[str] = Field(default=[], max_length=3)
    inner: Inner = Inner()
    either: Literal["a", "b"] | None = None
    anything: Any = None


@dataclass(frozen=True)
class Plain:
    """No model."""

    parts: list[Inner]


def test_fields_are_told_in_words_with_the_objects_behind_them() -> None:
    outer, inner = guides_of(Outer)
    assert (outer.name, outer.summary, outer.others) == ("Outer", "What is outside.", True)
    assert [(one.name, one.type, one.default, one.meaning) for one in outer.fields] == [
        ("count", "integer ≥ 1, ≤ 9", "required", "How many."),
        ("names", "list of string at most 3 items", "[]", ""),
        ("inner", "Inner", "", ""),
        ("either", 'one of "a", "b" or null', "null", ""),
        ("anything", "any", "null", ""),
    ]
    assert [(one.name, one.type, one.default) for one in inner.fields] == [
        ("colour", 'one of "red", "blue"', '"red"'),
    ]
    assert not inner.others


def test_a_dataclass_is_told_like_a_model() -> None:
    plain, inner = guides_of(Plain, "serialization")
    assert [(one.name, one.type) for one in plain.fields] == [("parts", "list of Inner")]
    assert inner.name == "Inner"
