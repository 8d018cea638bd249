"""What a supposed worker reports of an attempt."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from core.dag.scenario import Play, Scenario
from core.dag.tallies import parent_of
from core.dag.templates import TemplateFailed, compile_value, render
from core.models.engine import Attempt, TaskResultRow

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Performance:
    """How long an attempt runs and what it reports then; None when its worker dies."""

    seconds: float
    report: Json | None

    def row(self, attempt: Attempt, now: datetime) -> TaskResultRow | None:
        """Return the row in the inbox."""
        if self.report is None:
            return None
        names = {"task_id": attempt.task_id, "job_id": attempt.job_id, "node_id": attempt.node_id}
        return TaskResultRow(**names, attempt=attempt.attempt, reported_at=now, worker_id="supposed", **self.report)


def suppose(scenario: Scenario, attempt: Attempt, params: Mapping[str, Any], index: int | None) -> Performance:
    """Return the performance of an attempt: of a task, of one item of a fan-out, or of a batch of them."""
    node_id = parent_of(attempt.node_id) or attempt.node_id
    items = params.get("items") if attempt.child and index is None else None
    if items is None:
        play = scenario.play(node_id, attempt.handler, attempt.attempt, index)
        return Performance(play.seconds, None if play.lost else _report(play, params, attempt.attempt, index))
    plays = [scenario.play(node_id, attempt.handler, attempt.attempt, item["index"]) for item in items]
    seconds = sum(play.seconds for play in plays)
    if any(play.lost for play in plays):
        return Performance(seconds, None)
    outcomes = [
        {"index": item["index"], **_report(play, item["params"], attempt.attempt, item["index"])}
        for item, play in zip(items, plays, strict=True)
    ]
    return Performance(seconds, {"status": "completed", "outcomes": outcomes})


def _report(play: Play, params: Mapping[str, Any], attempt: int, index: int | None) -> Json:
    if play.error is not None:
        return {"status": "failed", "error": play.error.model_dump(mode="json")}
    scope = {"params": params, "attempt": attempt, "index": index}
    try:
        return {"status": "completed", "output": render(compile_value(play.output), scope, "output")}
    except TemplateFailed as error:
        return {"status": "failed", "error": error.detail.model_dump(mode="json", exclude_none=True)}
