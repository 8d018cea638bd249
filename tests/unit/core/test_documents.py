"""What a document says to a build that does not know all of it."""

import pytest
from pydantic import Field, ValidationError

from core.documents import Document, is_empty
from core.errors import Classification, TransientError
from core.handler_models import AnyOutput, Params
from core.handlers_catalog import CATALOG


class Part(Document):
    size: int


class Whole(Document):
    name: str
    parts: tuple[Part, ...] = ()
    novel: str | None = Field(default=None, exclude_if=is_empty)
    many: list[int] = Field(default=[], exclude_if=is_empty)


def test_what_is_new_and_says_nothing_is_left_out() -> None:
    assert Whole(name="a").model_dump() == {"name": "a", "parts": ()}
    assert Whole(name="a", novel="", many=[0]).model_dump() == {"name": "a", "parts": (), "novel": "", "many": [0]}


def test_what_a_newer_build_wrote_is_left_to_newer_workers() -> None:
    assert Whole.of({"name": "a", "parts": [{"size": 1}]}).parts == (Part(size=1),)
    with pytest.raises(TransientError) as found:
        Whole.of({"name": "a", "other": 1, "parts": [{"size": 1, "unit": "m"}]})
    assert found.value.detail.message == "a newer build wrote other, parts.0.unit, which this one does not know"
    assert found.value.detail.classification is Classification.TRANSIENT


def test_what_breaks_the_contract_is_no_news() -> None:
    with pytest.raises(ValidationError):
        Whole.of({"name": 1})


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_every_output_is_a_document_and_what_authors_write_refuses_unknown_words(name: str) -> None:
    spec = CATALOG[name]
    assert issubclass(spec.output, Document | AnyOutput)
    assert spec.params.model_config["extra"] == ("forbid" if issubclass(spec.params, Params) else "allow")
