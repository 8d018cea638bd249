from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.errors import parameter_error
from orchestrator.routes.jobs import CreateJob


def refusal(body: bytes) -> tuple[str | None, Any]:
    """Return the field and the value that a refused job names."""
    with pytest.raises(ValidationError) as caught:
        CreateJob.model_validate_json(body)
    detail = parameter_error(caught.value).detail
    return detail.field, detail.value


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1.0", 1.0), ("1.5", 1.5), ("[1]", "[1]")])
def test_a_priority_is_a_whole_number_or_a_name_and_nothing_becomes_one(text: str, value: Any) -> None:
    assert refusal(f'{{"workflow_id": "w", "priority": {text}}}'.encode()) == ("priority", value)


@pytest.mark.parametrize(("text", "value"), [("8", 8), ('"routine"', "routine"), ('"8"', "8"), ("null", None)])
def test_a_priority_keeps_its_type(text: str, value: Any) -> None:
    assert CreateJob.model_validate_json(f'{{"workflow_id": "w", "priority": {text}}}').priority == value


def test_a_body_that_is_not_json_is_shown_as_the_text_that_came() -> None:
    assert refusal("{ä".encode()) == (None, "{ä")
    assert refusal(b"\xff{") == (None, "\ufffd{")
