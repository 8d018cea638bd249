"""What callers read of wrong values: words of JSON, none of pydantic or Python."""

from typing import Any

import pytest

from core import b2b
from core.b2b_assets import RejectRequest
from core.b2b_requests import BatchRequest
from core.errors import CallerError

SUBMIT: dict[str, Any] = {
    "platform_id": "ddh",
    "platform_refs": {"dataset_id": "1"},
    "data_type": "raster",
    "source": {"container_name": "bronze", "blob_name": "ddh/a.tif"},
}


@pytest.mark.parametrize(
    ("model", "body", "said"),
    [
        (b2b.SubmitRequest, {"title": "x" * 501}, "expected at most 500 characters"),
        (b2b.SubmitRequest, {"title": ""}, "expected at least 1 character,"),
        (b2b.SubmitRequest, {"title": ["a"]}, "expected a string, found 'array'"),
        (b2b.SubmitRequest, {"tags": ["a"] * 51}, "expected at most 50 items"),
        (b2b.SubmitRequest, {"tags": {}}, "expected an array, found 'object'"),
        (b2b.SubmitRequest, {"options": []}, "expected an object, found 'array'"),
        (b2b.SubmitRequest, {"dry_run": 1}, "expected true or false"),
        (b2b.SubmitRequest, {"priority": "1"}, "expected a whole number"),
        (b2b.SubmitRequest, {"priority": 0}, "expected at least 1,"),
        (b2b.SubmitRequest, {"priority": 11}, "expected at most 10,"),
        (b2b.SubmitRequest, {"options": {"nodata": "x"}}, "expected a number"),
        (b2b.SubmitRequest, {"data_type": "points"}, "expected 'raster' or 'vector'"),
        (b2b.SubmitRequest, {"platform_id": "A"}, "expected the pattern ^[a-z0-9]"),
        (b2b.SubmitRequest, {"colour": "red"}, "unknown field"),
        (BatchRequest, {"submits": []}, "expected at least 1 item,"),
        (RejectRequest, {"reason": " "}, "expected more than blanks"),
    ],
)
def test_what_is_wrong_is_said_in_our_words(model: Any, body: dict[str, Any], said: str) -> None:
    with pytest.raises(CallerError) as refused:
        b2b.parse(model, SUBMIT | body if model is b2b.SubmitRequest else body)
    assert said in refused.value.detail.message
