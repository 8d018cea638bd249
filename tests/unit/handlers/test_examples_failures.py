import logging
from enum import StrEnum
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from core.errors import Classification, DataError, StorageUnavailable
from handlers.failures import error_of
from handlers.json_values import NotJson, to_json

LOG = logging.getLogger("test")


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


class Colour(StrEnum):
    RED = "red"


class Point(BaseModel):
    x: float
    tags: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (1, 1),
        (1.5, 1.5),
        ("ünï", "ünï"),
        (Colour.RED, "red"),
        ((1, (2,)), [1, [2]]),
        ({"a": {"b": [None]}}, {"a": {"b": [None]}}),
        (Point(x=1, tags=("a",)), {"x": 1.0, "tags": ["a"]}),
        (np.float32(0.5), 0.5),
        (np.int64(2**53 + 1), 2**53 + 1),
        (np.bool_(True), True),
        (np.uint8(255), 255),
        (np.array(3), 3),
        (2**4000, 2**4000),
        (nested(100), nested(100)),
    ],
)
def test_values_that_are_json_pass_and_numpy_scalars_become_numbers(value: Any, expected: Any) -> None:
    result = to_json(value)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, float("nan")]}, "output.a[1]"),
        ({"a": float("-inf")}, "output.a"),
        (np.float64("nan"), "output"),
        ({"a": Point(x=float("inf"))}, "output.a.x"),
        ({"s": "a\0"}, "output.s"),
        ({"s": "\ud800"}, "output.s"),
        ({1: 2}, "output"),
        ({"k\0": 2}, "output.k\ufffd (a key)"),
        ({"k": b"bytes"}, "output.k"),
        ({"k": np.arange(2)}, "output.k"),
        ({"k": {1, 2}}, "output.k"),
        ({"n": [2**5000]}, "output.n[0]"),
        (nested(101), "output" + "[0]" * 100),
    ],
)
def test_values_that_are_not_json_fail_naming_the_path(value: Any, path: str) -> None:
    with pytest.raises(NotJson) as caught:
        to_json(value)
    assert caught.value.detail.field == path


def test_errors_of_ours_keep_code_and_class() -> None:
    data = error_of(DataError("x", code="CRS_MISSING", field="crs"), LOG)
    storage = error_of(StorageUnavailable("x"), LOG)
    assert (data.code, data.classification, data.user_fixable) == ("CRS_MISSING", Classification.PERMANENT, True)
    assert (storage.code, storage.classification) == ("STORAGE_UNAVAILABLE", Classification.TRANSIENT)


def test_errors_stay_small_whatever_they_quote() -> None:
    error = error_of(DataError("m" * 1_000_000, field="f", value={"deep": ["v" * 1_000_000]}), LOG)
    assert len(error.model_dump_json()) < 10_000
    assert error.value.startswith('{"deep":["vvv')
    short = error_of(DataError("m", value={"deep": [1]}), LOG)
    assert short.value == {"deep": [1]}


def test_a_data_error_caused_by_missing_memory_is_out_of_memory() -> None:
    def read() -> None:
        try:
            raise MemoryError
        except MemoryError as exc:
            raise DataError("cannot read block", code="RASTER_UNREADABLE") from exc

    with pytest.raises(DataError) as caught:
        read()
    assert error_of(caught.value, LOG).code == "TASK_OUT_OF_MEMORY"


@pytest.mark.parametrize("number", [28, 122, 27])
def test_no_room_on_the_disk_is_transient(number: int) -> None:
    error = error_of(OSError(number, "no room"), LOG)
    assert (error.code, error.classification) == ("TASK_OUT_OF_DISK", Classification.TRANSIENT)


def test_an_unforeseen_error_is_permanent_and_found_in_the_log_by_its_id(caplog: pytest.LogCaptureFixture) -> None:
    error = error_of(KeyError("private"), LOG)
    assert (error.code, error.classification) == ("INTERNAL", Classification.PERMANENT)
    assert "private" not in error.message
    assert caplog.records[0].__dict__["error_id"] == error.error_id
    assert caplog.records[0].exc_info is not None
