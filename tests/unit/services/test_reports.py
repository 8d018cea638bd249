"""What is kept of reports before anybody looks at their attempts."""

from typing import Any

import pytest
from pydantic_core import to_json

from core.dag.json_values import check_json
from core.errors import ErrorDetail, Finding
from core.payloads import LIMIT_BYTES
from core.wire import ItemOutcome, TaskResult, TaskStatus
from services.reports import outcomes_of, read


def test_an_endless_error_of_one_item_is_not_kept_and_the_next_item_is() -> None:
    long, short = (ErrorDetail(code="BROKEN", message="x" * size) for size in (LIMIT_BYTES, 10))
    said = [
        ItemOutcome(index=number, status=TaskStatus.FAILED, error=error) for number, error in enumerate((long, short))
    ]
    first, second = outcomes_of(said, "j_n_0") or []
    assert (first["index"], first["error"]["code"], first["error"]["field"]) == (0, "OUTPUT_INVALID", "error")
    assert (second["index"], second["error"]["code"]) == (1, "BROKEN")


def test_an_output_and_a_finding_may_be_as_deep_as_at_the_worker() -> None:
    value: dict[str, object] = {}
    for _ in range(98):
        value = {"a": value}
    finding = Finding.model_validate({"code": "A", "level": "info", "from": value, "message": "m"})
    result = TaskResult(
        task_id="j_n_0", token="t", status=TaskStatus.COMPLETED, output={"a": value}, findings=(finding,)
    )
    (told,) = read([result])
    assert told.columns["status"] == "completed"
    deeper = finding.model_copy(update={"from_": {"a": {"a": {"a": value}}}})
    (told,) = read([result.model_copy(update={"findings": (deeper,)})])
    (kept,) = told.columns["findings"]
    assert (told.columns["status"], kept["code"], kept["from"]) == ("completed", "A", None)
    assert "deeper than 100 levels" in kept["to"]


@pytest.mark.parametrize("findings", [{"code": "C\0"}, {"message": "\ud800"}, {"to": 10**1300}, {"from": float("nan")}])
def test_a_finding_that_cannot_be_stored_costs_the_items_of_a_batch_nothing(findings: dict[str, Any]) -> None:
    finding = Finding.model_validate({"code": "A", "level": "info", "message": "m", **findings})
    items = [ItemOutcome(index=number, status=TaskStatus.COMPLETED, output={}) for number in range(2)]
    result = TaskResult(
        task_id="j_n_0", token="t", status=TaskStatus.COMPLETED, outcomes=tuple(items), findings=(finding,)
    )
    (told,) = read([result])
    assert (told.columns["status"], len(told.columns["outcomes"])) == ("completed", 2)
    check_json(told.columns["findings"], "findings")


def test_what_is_said_of_an_output_that_cannot_be_stored_is_short() -> None:
    output = {"k" * 1_000_000: {"l" * 1_000_000: ["\0"]}}
    result = TaskResult(task_id="j_n_0", token="t", status=TaskStatus.COMPLETED, output=output)
    item = ItemOutcome(index=0, status=TaskStatus.COMPLETED, output=output)
    assert len(to_json(dict(read([result])[0].columns))) < 10_000
    assert len(to_json(outcomes_of([item], "j_n_0"))) < 10_000


def test_numbers_are_as_they_will_be_read_again() -> None:
    result = TaskResult(task_id="j_n_0", token="t", status=TaskStatus.COMPLETED, output={"a": [1e17, -0.0, 2.0]})
    item = ItemOutcome(index=0, status=TaskStatus.COMPLETED, output={"a": 1e17})
    assert repr(read([result])[0].columns["output"]) == f"{{'a': [{10**17}, 0.0, 2.0]}}"
    assert repr((outcomes_of([item], "j_n_0") or [])[0]["output"]) == f"{{'a': {10**17}}}"
