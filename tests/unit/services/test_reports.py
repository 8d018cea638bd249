"""What is kept of reports before anybody looks at their attempts."""

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
    assert told.columns["error"]["code"] == "OUTPUT_INVALID"
