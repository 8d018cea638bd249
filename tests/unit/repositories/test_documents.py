"""What all rows say is said once, and each row stays what it was, to the type of every number in it."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from repositories.documents import alike, rows_of

EQUAL_AND_NOT_THE_SAME = st.sampled_from([0, 0.0, -0.0, False, 1, 1.0, True, "1", None])
VALUES = (
    EQUAL_AND_NOT_THE_SAME
    | st.lists(EQUAL_AND_NOT_THE_SAME, max_size=1)
    | st.fixed_dictionaries({"a": EQUAL_AND_NOT_THE_SAME})
)
ROWS = st.lists(st.fixed_dictionaries({"output": VALUES}, optional={"count": EQUAL_AND_NOT_THE_SAME}), max_size=3)


@given(ROWS)
@example([{"output": {"a": 1}}, {"output": {"a": True}}])
@example([{"output": [0.0]}, {"output": [-0.0]}])
def test_each_row_is_what_it_was_whatever_all_have_in_common(rows: list[dict[str, Any]]) -> None:
    said = json.loads(rows_of(alike(rows)))
    read = [{**said["every"], **one} for one in said["each"]] if rows else []
    assert [_text(row) for row in read] == [_text(row) for row in rows]


def test_what_all_rows_say_is_said_once() -> None:
    rows = [
        {"job_id": "j", "state": "leased", "child": True, "findings": [], "node_id": f"n{number}"} for number in "012"
    ]
    assert alike(rows) == {
        "every": {"job_id": "j", "state": "leased", "child": True, "findings": []},
        "each": [{"node_id": "n0"}, {"node_id": "n1"}, {"node_id": "n2"}],
    }


def _text(row: dict[str, Any]) -> str:
    """Return the JSON of a row as the server takes it: NULL says nothing."""
    return json.dumps({name: value for name, value in row.items() if value is not None}, sort_keys=True)
