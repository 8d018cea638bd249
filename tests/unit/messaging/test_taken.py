"""What is told of a message that is none of ours."""

import json
from typing import Any

import pytest

from messaging.taken import delivery_of
from tests.support.queues import message

WHOLE = message().model_dump(mode="json")


def told(body: Any) -> str | None:
    return delivery_of(("m", 1, json.dumps(body))).unreadable


@pytest.mark.parametrize("body", [[], 5, None, "text"])
def test_a_body_that_is_no_object_is_told_to_be_none(body: Any) -> None:
    assert told(body) == "not a task message: the body is not an object"


def test_a_body_that_is_no_json_is_told_to_be_none() -> None:
    assert delivery_of(("m", 1, "{")).unreadable == "not a task message: the body is not JSON"


def test_missing_unknown_and_wrong_parts_are_told_apart() -> None:
    body = {name: value for name, value in WHOLE.items() if name not in {"attempt", "dispatch_no"}}
    body |= {"x": 1, "params": "s3cret"}
    assert told(body) == "not a task message: missing attempt, dispatch_no; unknown x; wrong params"
    assert told(WHOLE) is None
