from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from core.statuses import JobStatus
from orchestrator.errors import parameter_error
from orchestrator.routes.commands import CommandMany
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


@pytest.mark.parametrize("text", ['"1"', "1.0", "true"])
def test_a_version_is_a_whole_number_and_nothing_becomes_one(text: str) -> None:
    assert refusal(f'{{"workflow_id": "w", "version": {text}}}'.encode())[0] == "version"


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (CommandMany, '{"dry_run": "true"}'),
        (CommandMany, '{"limit": "5"}'),
        (CommandMany, '{"filter": {"older_than_seconds": "5"}}'),
    ],
)
def test_nothing_that_an_operator_says_is_coerced(model: type[BaseModel], body: str) -> None:
    with pytest.raises(ValidationError):
        model.model_validate_json(body)


def test_an_order_for_many_is_read_from_json() -> None:
    body = '{"filter": {"status": "FAILED", "older_than_seconds": 5}, "dry_run": true, "limit": 5}'
    wanted = CommandMany.model_validate_json(body)
    assert (wanted.filter.status, wanted.filter.older_than_seconds) == (JobStatus.FAILED, 5)


def test_all_fields_that_are_wrong_are_named() -> None:
    with pytest.raises(ValidationError) as caught:
        CreateJob.model_validate_json(b'{"version": "1", "colour": 1, "inputs": 5}')
    assert parameter_error(caught.value).detail.message == "workflow_id is required (also: colour, inputs, version)"
    with pytest.raises(ValidationError) as caught:
        CreateJob.model_validate_json(b'{"workflow_id": "w", "version": "1", "inputs": 5}')
    assert parameter_error(caught.value).detail.message == "version: expected a whole number (also: inputs)"
