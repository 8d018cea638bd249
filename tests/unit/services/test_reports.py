"""What is kept of reports before anybody looks at their attempts."""

from core.errors import ErrorDetail
from core.payloads import LIMIT_BYTES
from core.wire import ItemOutcome, TaskStatus
from services.reports import outcomes_of


def test_an_endless_error_of_one_item_is_not_kept_and_the_next_item_is() -> None:
    long, short = (ErrorDetail(code="BROKEN", message="x" * size) for size in (LIMIT_BYTES, 10))
    said = [
        ItemOutcome(index=number, status=TaskStatus.FAILED, error=error) for number, error in enumerate((long, short))
    ]
    first, second = outcomes_of(said, "j_n_0") or []
    assert (first["index"], first["error"]["code"], first["error"]["field"]) == (0, "OUTPUT_INVALID", "error")
    assert (second["index"], second["error"]["code"]) == (1, "BROKEN")
