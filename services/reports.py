"""Judges what a worker says about a task against the attempt, without any I/O."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from hmac import compare_digest
from typing import Any, NamedTuple, assert_never

from pydantic_core import to_json

from core.dag.json_values import NotJson, as_stored, check_json
from core.errors import ErrorDetail, Finding
from core.ids import token_hash
from core.models.engine import Attempt, TaskResultRow
from core.payloads import LIMIT_BYTES, is_output_of
from core.statuses import AttemptState
from core.wire import ItemOutcome, Release, ResultAnswer, ResultDisposition, TaskResult, TaskStatus

FOREIGN_REF = "the reference to the output is not one to a value of this attempt"
LONG_ERROR = f"an error has at most {LIMIT_BYTES} bytes"
TOO_LARGE = f"an output of more than {LIMIT_BYTES} bytes has to be stored and reported by reference"


class Told(NamedTuple):
    """A report, and what of its row and its proof needs no look at the attempt."""

    report: TaskResult | Release
    columns: Mapping[str, Any]
    token_hash: str


class Verdict(NamedTuple):
    """The answer to one report; `row` is what to store, `ends` the state that the attempt goes to."""

    answer: ResultAnswer
    row: TaskResultRow | None = None
    ends: AttemptState | None = None
    peak_rss_bytes: int | None = None

    def end(self, now: datetime) -> dict[str, Any]:
        """Return what to write to the attempt that this report ends."""
        return {
            "task_id": self.answer.task_id,
            "state": self.ends,
            "ended_at": now,
            "peak_rss_bytes": self.peak_rss_bytes,
        }


def read(reports: Iterable[TaskResult | Release]) -> list[Told]:
    """Read reports before anything is locked for them; what one says and cannot be stored is its task's failure."""
    return [
        Told(one, _released(one) if isinstance(one, Release) else _reported(one), token_hash(one.token))
        for one in reports
    ]


def judge(told: Sequence[Told], attempts: Mapping[str, Attempt], worker_id: str | None, now: datetime) -> list[Verdict]:
    """Return a verdict per report, in their order; of two about one task the second is a duplicate."""
    seen: set[str] = set()
    verdicts = []
    for one in told:
        task_id = one.report.task_id
        if task_id in seen:
            verdicts.append(_answer(task_id, ResultDisposition.DUPLICATE, "reported twice in one call"))
            continue
        verdict = _judge(one, attempts.get(task_id), worker_id, now)
        if verdict.answer.disposition is not ResultDisposition.REJECTED:
            seen.add(task_id)
        verdicts.append(verdict)
    return verdicts


def _judge(told: Told, attempt: Attempt | None, worker_id: str | None, now: datetime) -> Verdict:
    report = told.report
    if attempt is None:
        return _answer(report.task_id, ResultDisposition.REJECTED, "no such task")
    if not compare_digest(attempt.token_hash, told.token_hash):
        return _answer(report.task_id, ResultDisposition.REJECTED, "the token is not the task's")
    row = _row(told.columns, attempt, worker_id, now)
    match attempt.state:
        case AttemptState.LEASED:
            answer = ResultAnswer.of_checked(task_id=report.task_id, disposition=ResultDisposition.APPLIED)
            ends = AttemptState.RELEASED if isinstance(report, Release) else AttemptState.REPORTED
            return Verdict(answer, row, ends, None if isinstance(report, Release) else report.peak_rss_bytes)
        case AttemptState.REPORTED:
            return _answer(report.task_id, ResultDisposition.DUPLICATE, None)
        case AttemptState.QUEUED | AttemptState.PARKED:
            return _answer(report.task_id, ResultDisposition.REJECTED, "the task was never granted")
        case AttemptState.RELEASED | AttemptState.EXPIRED | AttemptState.REVOKED:
            late = row.model_copy(update={"processed": True, "disposition": "superseded"})
            verdict = _answer(report.task_id, ResultDisposition.SUPERSEDED, f"the attempt was {attempt.state}")
            return Verdict(verdict.answer, late)
        case _ as never:
            assert_never(never)


def _answer(task_id: str, disposition: ResultDisposition, reason: str | None) -> Verdict:
    return Verdict(ResultAnswer(task_id=task_id, disposition=disposition, reason=reason))


def _row(columns: Mapping[str, Any], attempt: Attempt, worker_id: str | None, now: datetime) -> TaskResultRow:
    return TaskResultRow.of_row(
        {
            "task_id": attempt.task_id,
            "job_id": attempt.job_id,
            "node_id": attempt.node_id,
            "attempt": attempt.attempt,
            "findings": [],
            "metrics": {},
            "worker_id": worker_id or attempt.worker_id,
            "reported_at": now,
            **columns,
        }
    )


def _released(release: Release) -> dict[str, Any]:
    return {"status": "released", "outcomes": outcomes_of(release.outcomes, release.task_id)}


def outcomes_of(outcomes: Sequence[ItemOutcome] | None, task_id: str) -> list[dict[str, Any]] | None:
    """Return what a worker says of the items of a batch as it is stored; what cannot be is the item's failure."""
    if outcomes is None:
        return None
    return [_outcome(one, task_id) for one in outcomes]


def _outcome(one: ItemOutcome, task_id: str) -> dict[str, Any]:
    fields = one.model_dump(mode="json", exclude={"output"}, exclude_none=True)
    if one.output is not None:
        fields["output"] = one.output  # as it is: dumped, NaN would be null
    try:
        stored: dict[str, Any] = as_stored(fields, "result", depth=-1)
    except NotJson as error:
        return {"index": one.index, **_invalid(error.detail.message, error.detail.field)}
    if one.output_ref is not None and not is_output_of(one.output_ref, task_id):
        return {"index": one.index, **_invalid(FOREIGN_REF, "output_ref")}
    if len(to_json(one.output)) > LIMIT_BYTES:
        return {"index": one.index, **_invalid(TOO_LARGE, "output")}
    if one.error is not None and len(to_json(fields["error"])) > LIMIT_BYTES:
        return {"index": one.index, **_invalid(LONG_ERROR, "error")}
    return stored


def _reported(result: TaskResult) -> dict[str, Any]:
    """Return the columns of a result; one that cannot be stored is stored as the failure that it is."""
    facts = {
        "status": result.status.value,
        "output": result.output,
        "output_ref": result.output_ref.model_dump() if result.output_ref else None,
        "error": result.error.model_dump(mode="json") if result.error else None,
        "metrics": _small(result.metrics),
    }
    findings = _cut([_storable(finding) for finding in result.findings])
    outcomes = outcomes_of(result.outcomes, result.task_id)  # each was looked at by itself
    try:
        facts = as_stored(facts, "result", depth=-1)  # the columns are no level of the output
    except NotJson as error:
        return _invalid(error.detail.message, error.detail.field)
    if result.output_ref is not None and not is_output_of(result.output_ref, result.task_id):
        return _invalid(FOREIGN_REF, "output_ref")
    if len(to_json(result.output)) > LIMIT_BYTES:
        return _invalid(TOO_LARGE, "output")
    if facts["error"] is not None and len(to_json(facts["error"])) > LIMIT_BYTES:
        return _invalid(LONG_ERROR, "error")
    return {**facts, "findings": findings, "outcomes": outcomes}


def _storable(finding: Finding) -> dict[str, Any]:
    """Return a finding, without its values when these cannot be stored: nothing decides by them."""
    said = finding.model_dump(mode="json", by_alias=True)
    try:
        check_json(said, "the finding")
    except NotJson as error:
        return {**said, "from": None, "to": f"left out: {error.detail.message}"}
    return said


def _cut(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what fits of findings, which are read with every look at a job; the last one says what was left out."""
    size = 0
    for number, finding in enumerate(findings):
        size += len(to_json(finding))
        if size > LIMIT_BYTES:
            said = f"{len(findings) - number} more findings were left out"
            last = Finding(code="FINDINGS_CUT", level="warning", message=said)
            return [*findings[:number], last.model_dump(mode="json", by_alias=True)]
    return findings


def _small(metrics: dict[str, Any]) -> dict[str, Any]:
    """Return metrics, or why there are none: nothing decides by them, so they fail nobody's work."""
    try:
        check_json(metrics, "metrics")
    except NotJson as error:
        return {"left_out": error.detail.message}
    size = len(to_json(metrics))
    return metrics if size <= LIMIT_BYTES else {"left_out_bytes": size}


def _invalid(message: str, field: str | None) -> dict[str, Any]:
    detail = ErrorDetail(code="OUTPUT_INVALID", message=message, field=field)
    return {"status": TaskStatus.FAILED.value, "error": detail.model_dump(mode="json")}
