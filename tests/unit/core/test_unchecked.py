"""Instances that are made without a second check are the same as those that were checked."""

import pytest

from core.wire import ClaimAnswer, ClaimOutcome, Grant, ResultAnswer, ResultDisposition, TaskMessage, Wire

MESSAGE = {
    "task_id": "j_n_0",
    "job_id": "j",
    "node_id": "n",
    "attempt": 0,
    "dispatch_no": 1,
    "handler": "echo",
    "queue": "q",
    "params": {"a": [1]},
    "timeout_seconds": 60.0,
    "token": "t",
}
ANSWER = {"task_id": "j_n_0", "outcome": ClaimOutcome.GRANTED, "lease_seconds": 20.0}


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (TaskMessage, MESSAGE),
        (ClaimAnswer, ANSWER),
        (Grant, {"message": TaskMessage(**MESSAGE), "answer": ClaimAnswer(**ANSWER)}),  # type: ignore[arg-type]
        (ResultAnswer, {"task_id": "j_n_0", "disposition": ResultDisposition.APPLIED}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_what_was_checked_before_is_as_if_it_were_checked_again(model: type[Wire], values: dict[str, object]) -> None:
    made, checked = model.of_checked(**values), model(**values)
    assert made == checked
    assert made.model_dump_json() == checked.model_dump_json()
    assert made.model_fields_set == checked.model_fields_set
    assert model.model_validate_json(made.model_dump_json()) == checked
