"""What handlers are given to control their work with."""

import logging
from pathlib import Path
from typing import Any

import pytest

from core.errors import GeodagError
from core.payloads import LIMIT_BYTES, ValueTooLarge
from handlers.context import Checkpoint, ProcessContext, SavedState, TaskCancelled, TaskInfo


def test_a_checkpoint_is_loaded_as_it_was_saved_whatever_happens_to_the_state_later() -> None:
    sent: list[dict[str, Any]] = []
    checkpoint = Checkpoint(None, sent.append)
    assert checkpoint.load() is None
    state = {"done": [1]}
    checkpoint.save("first", state)
    state["done"].append(2)
    assert checkpoint.load() == SavedState("first", {"done": [1]})
    assert sent == [{"phase": "first", "state": {"done": [1]}}]


def test_the_checkpoint_of_the_attempt_before_is_loaded() -> None:
    checkpoint = Checkpoint({"phase": "half", "state": {"n": 1}}, lambda saved: None)
    assert checkpoint.load() == SavedState("half", {"n": 1})


@pytest.mark.parametrize(
    ("state", "path"),
    [
        ({"a": [float("nan")]}, "checkpoint.state.a[0]"),
        ({"a": "\0"}, "checkpoint.state.a"),
        ({1: 2}, "checkpoint.state"),
        ([1], "checkpoint.state"),
    ],
)
def test_a_checkpoint_that_is_no_json_is_refused_naming_the_path(state: Any, path: str) -> None:
    checkpoint = Checkpoint({"phase": "before", "state": {}}, lambda saved: pytest.fail("it was sent"))
    with pytest.raises(GeodagError) as caught:
        checkpoint.save("x", state)
    assert caught.value.detail.field == path
    assert checkpoint.load() == SavedState("before", {})


def test_a_checkpoint_above_the_limit_is_refused() -> None:
    checkpoint = Checkpoint(None, lambda saved: pytest.fail("it was sent"))
    with pytest.raises(ValueTooLarge):
        checkpoint.save("x", {"data": "y" * LIMIT_BYTES})
    assert checkpoint.load() is None


def test_a_process_context_reports_cancels_and_writes_lines(tmp_path: Path) -> None:
    said: list[Any] = []
    cancelled = False
    ctx = ProcessContext(
        TaskInfo("j_n_0", "j", "n", 0),
        tmp_path,
        checkpoint=Checkpoint(None, said.append),
        report=said.append,
        is_cancelled=lambda: cancelled,
        write_journal=said.append,
        logger=logging.LoggerAdapter(logging.getLogger("test")),
    )
    ctx.raise_if_cancelled()
    ctx.progress(1, 2, "half")
    ctx.journal("a line")
    assert said == [{"current": 1, "total": 2, "message": "half"}, "a line"]
    cancelled = True
    assert ctx.cancelled
    with pytest.raises(TaskCancelled):
        ctx.raise_if_cancelled()
