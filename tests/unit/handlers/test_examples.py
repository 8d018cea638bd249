import asyncio
import logging
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from core.errors import Classification, GeodagError
from core.handlers_catalog import CATALOG
from handlers.context import Checkpoint, InlineContext, Outcome, ProcessContext, TaskCancelled, TaskInfo
from handlers.json_values import to_json
from handlers.registry import IMPLEMENTATIONS, resolve

TASK = TaskInfo("j_n_0", "j", "n", 0)
LOGGER: "logging.LoggerAdapter[logging.Logger]" = logging.LoggerAdapter(logging.getLogger("test"), {})


@asynccontextmanager
async def no_database() -> Any:
    raise AssertionError("example handlers use no database")
    yield


@pytest.fixture
def inline() -> Callable[..., InlineContext]:
    def make(params: dict[str, Any]) -> InlineContext:
        return InlineContext(
            TASK, params, LOGGER, Checkpoint(None, lambda _: None), lambda _: None, no_database, lambda _: None
        )

    return make


async def run(context: InlineContext, name: str) -> Any:
    spec = CATALOG[name]
    outcome: Outcome = await resolve(IMPLEMENTATIONS[name])(context, spec.params.model_validate(context.params))
    return spec.output.model_validate(to_json(outcome.output)).model_dump()


@pytest.mark.parametrize(
    ("name", "params", "output"),
    [
        ("echo", {"a": [1, {"b": None}]}, {"echoed_params": {"a": [1, {"b": None}]}}),
        ("hello_world", {}, {"message": "Hello, World!"}),
        ("hello_world", {"name": "Ada"}, {"message": "Hello, Ada!"}),
        ("sleep", {"seconds": 0.0}, {"slept_seconds": 0.0}),
        ("flaky_echo", {"failure_rate": 0.0, "x": 1}, {"echoed_params": {"failure_rate": 0.0, "x": 1}}),
        ("size_check", {"size_bytes": 5}, {"size_bytes": 5, "size_mb": 5e-06, "is_large": False}),
        ("size_check", {"size_bytes": 6, "threshold_bytes": 5}, {"size_bytes": 6, "size_mb": 6e-06, "is_large": True}),
    ],
)
async def test_an_inline_example_returns_what_it_says(
    inline: Callable[..., InlineContext], name: str, params: dict[str, Any], output: dict[str, Any]
) -> None:
    assert await run(inline(params), name) == output


@pytest.mark.parametrize(("transient", "kind"), [(False, Classification.PERMANENT), (True, Classification.TRANSIENT)])
async def test_fail_fails_as_asked(inline: Callable[..., InlineContext], transient: bool, kind: Classification) -> None:
    with pytest.raises(GeodagError) as caught:
        await run(inline({"code": "CRS_MISSING", "message": "m", "transient": transient}), "fail")
    assert (caught.value.detail.code, caught.value.detail.message) == ("CRS_MISSING", "m")
    assert caught.value.detail.classification is kind


async def test_flaky_echo_fails_transiently(inline: Callable[..., InlineContext]) -> None:
    with pytest.raises(GeodagError) as caught:
        await run(inline({"failure_rate": 1.0}), "flaky_echo")
    assert caught.value.detail.classification is Classification.TRANSIENT


async def test_sleep_stops_when_it_is_cancelled(inline: Callable[..., InlineContext]) -> None:
    context = inline({"seconds": 3600.0})
    sleeping = asyncio.create_task(run(context, "sleep"))
    await asyncio.sleep(0)
    context.stop.set()
    with pytest.raises(TaskCancelled):
        await asyncio.wait_for(sleeping, 5)


class Recorder:
    """A process context's other side."""

    def __init__(self, scratch: Path, saved: dict[str, Any] | None = None, cancel_after: int | None = None) -> None:
        self.saves: list[dict[str, Any]] = []
        self.progress: list[dict[str, Any]] = []
        self.lines: list[tuple[str, int]] = []
        """Lines of the journal, with how many checkpoints there were before."""
        self.context = ProcessContext(
            TASK,
            scratch,
            checkpoint=Checkpoint(saved, self.saves.append),
            report=self.progress.append,
            is_cancelled=lambda: cancel_after is not None and len(self.progress) >= cancel_after,
            write_journal=lambda line: self.lines.append((line, len(self.saves))),
            logger=LOGGER,
        )

    def run(self, name: str, params: dict[str, Any]) -> Any:
        spec = CATALOG[name]
        outcome: Outcome = resolve(IMPLEMENTATIONS[name])(self.context, spec.params.model_validate(params))
        return spec.output.model_validate(to_json(outcome.output)).model_dump()


def test_multi_phase_saves_after_every_phase(scratch: Path) -> None:
    recorder = Recorder(scratch)
    output = recorder.run("multi_phase", {"phases": 3, "seconds_per_phase": 0.0})
    assert output == {"phases_run": [0, 1, 2], "resumed_from": 0}
    assert [save["state"]["done"] for save in recorder.saves] == [1, 2, 3]


def test_multi_phase_that_is_cancelled_goes_on_where_it_stopped(scratch: Path) -> None:
    first = Recorder(scratch, cancel_after=2)
    with pytest.raises(TaskCancelled):
        first.run("multi_phase", {"phases": 4, "seconds_per_phase": 0.0})
    second = Recorder(scratch, saved=first.saves[-1])
    assert second.run("multi_phase", {"phases": 4, "seconds_per_phase": 0.0})["phases_run"] == [2, 3]


def test_chunk_processor_hands_every_item_back(scratch: Path) -> None:
    recorder = Recorder(scratch)
    output = recorder.run("chunk_processor", {"items": ["a", {"b": 1}, None]})
    assert output == {"processed": 3, "results": ["a", {"b": 1}, None]}
    assert recorder.progress[-1]["current"] == 3


def test_make_values_makes_as_many_different_ones_as_it_is_asked_for(scratch: Path) -> None:
    output = Recorder(scratch).run("make_values", {"count": 1000, "bytes_each": 50})
    assert (output["count"], len(set(output["values"]))) == (1000, 1000)
    assert {len(value) for value in output["values"]} == {50}


def test_multi_phase_leaves_a_line_outside_before_each_checkpoint(scratch: Path) -> None:
    recorder = Recorder(scratch)
    recorder.run("multi_phase", {"phases": 2, "seconds_per_phase": 0.0})
    assert recorder.lines == [("j_n_0 phase 0", 0), ("j_n_0 phase 1", 1)]
