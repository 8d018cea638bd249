"""Operations: what a file may say, and what becomes of a request while its jobs end in whatever order."""

from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.models.business import RequestState
from core.operations import (
    Operation,
    OperationInvalid,
    Progress,
    RequestJob,
    advance_request,
    load_operation,
    load_operations,
)
from core.statuses import JobStatus
from tests.support.engine import WORKFLOWS, repository_workflows

TEXT = """
operation: two_steps
stages:
  - jobs:
      left: {workflow: echo, inputs: {text: "{{ request.title }}"}}
      right: {workflow: echo, inputs: {text: "x"}}
  - jobs:
      last: {workflow: other, inputs: {both: ["{{ jobs.left.outputs.n }}", "{{ jobs.right.outputs.n }}"]}}
outputs: {sum: "{{ jobs.left.outputs.n + jobs.right.outputs.n }}", last: "{{ jobs.last.outputs }}"}
"""
REQUEST = {"title": "Relief"}
KNOWN = frozenset({"echo", "other"})
J = JobStatus


@cache
def operation() -> Operation:
    return load_operation(TEXT, "two.yaml")


def job(name: str, stage: int, status: J = J.COMPLETED, outputs: Any = None, **facts: Any) -> RequestJob:
    good: dict[str, Any] = {"outputs": {"n": 1} if outputs is None else outputs, "error": None, "warnings": []}
    return RequestJob(name=name, stage=stage, status=status, **(good | facts))


def test_the_first_stage_starts_with_what_was_asked_for() -> None:
    progress = advance_request(operation(), REQUEST, [])
    assert [(one.name, one.stage, one.workflow_id, one.inputs) for one in progress.start] == [
        ("left", 1, "echo", {"text": "Relief"}),
        ("right", 1, "echo", {"text": "x"}),
    ]


@pytest.mark.parametrize("status", [J.PENDING, J.RUNNING])
def test_nothing_happens_while_a_job_is_under_way(status: J) -> None:
    for ended in (J.COMPLETED, J.FAILED, J.CANCELLED):
        jobs = [job("left", 1, ended), job("right", 1, status)]
        assert advance_request(operation(), REQUEST, jobs) == Progress()


def test_the_next_stage_starts_with_the_last_of_the_one_before_and_sees_its_outputs() -> None:
    progress = advance_request(operation(), REQUEST, [job("left", 1), job("right", 1, outputs={"n": 2})])
    assert [(one.name, one.stage, one.inputs) for one in progress.start] == [("last", 2, {"both": [1, 2]})]


def test_the_last_job_ends_the_request_with_all_outputs_and_warnings() -> None:
    jobs = [
        job("left", 1, warnings=["a"]),
        job("right", 1, outputs={"n": 2}),
        job("last", 2, outputs={"x": None}, warnings=["b"]),
    ]
    progress = advance_request(operation(), REQUEST, jobs)
    assert progress.ended is RequestState.COMPLETED
    assert progress.outputs == {"sum": 3, "last": {"x": None}}
    assert progress.warnings == ("a", "b")


@pytest.mark.parametrize(("left", "right"), list(product([J.COMPLETED, J.FAILED, J.CANCELLED], repeat=2)))
def test_one_failed_job_fails_the_request_and_one_cancelled_cancels_it(left: J, right: J) -> None:
    error = {"code": "CRS_MISSING", "message": "no CRS"}
    jobs = [job("left", 1, left, error=error), job("right", 1, right, error=error)]
    progress = advance_request(operation(), REQUEST, jobs)
    failed = [left, right].count(J.FAILED)
    if failed:
        assert (progress.ended, progress.errors) == (RequestState.FAILED, (error,) * failed)
    elif J.CANCELLED in (left, right):
        assert (progress.ended, progress.errors) == (RequestState.CANCELLED, ())
    else:
        assert progress.ended is None
        assert len(progress.start) == 1


def test_outputs_that_are_not_there_fail_the_request_by_their_path() -> None:
    for outputs in ({}, {"m": 1}):
        progress = advance_request(operation(), REQUEST, [job("left", 1, outputs=outputs), job("right", 1)])
        assert progress.ended is RequestState.FAILED
        assert progress.errors[0]["code"] == "OPERATION_FAILED"
        assert "jobs.left.outputs.n" in progress.errors[0]["message"]
    large = RequestJob(name="left", stage=1, status=J.COMPLETED, outputs=None, error=None, warnings=[])
    progress = advance_request(operation(), REQUEST, [large, job("right", 1)])
    assert "jobs.left.outputs" in progress.errors[0]["message"]


def test_data_is_never_a_template() -> None:
    progress = advance_request(operation(), {"title": "{{ jobs }}"}, [])
    assert progress.start[0].inputs == {"text": "{{ jobs }}"}


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["left", "right", "last"]), st.sampled_from([J.COMPLETED, J.FAILED, J.CANCELLED])),
        max_size=6,
    )
)
def test_a_request_ends_once_whatever_the_order_in_which_its_jobs_end(ends: list[tuple[str, J]]) -> None:
    jobs: dict[str, RequestJob] = {}
    started: list[str] = []
    ended: list[RequestState] = []
    for name, status in [("", J.COMPLETED), *ends]:
        if name in jobs and jobs[name].status is J.RUNNING:
            jobs[name] = job(name, jobs[name].stage, status)
        elif name:
            continue
        progress = advance_request(operation(), REQUEST, list(jobs.values()))
        started += [one.name for one in progress.start]
        jobs |= {one.name: job(one.name, one.stage, J.RUNNING) for one in progress.start}
        ended += [progress.ended] if progress.ended else []
    assert len(started) == len(set(started))
    assert len(ended) <= 1
    if ended == [RequestState.COMPLETED]:
        assert started == ["left", "right", "last"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("operation: two_steps", "operation: 2steps"), "operation"),
        (("outputs:", "output:"), "output"),
        (("workflow: other", "workflow: other, queue: x"), "queue"),
        (("last: {", "left: {"), "two jobs are called left"),
        (("{{ jobs.left.outputs.n }}", "{{ jobs.last.outputs.n }}"), "looks at jobs.last.outputs.n"),
        (("{{ jobs.left.outputs.n }}", "{{ jobs.left.status }}"), "looks at jobs.left.status"),
        (("{{ request.title }}", "{{ jobs.right.outputs.n }}"), "looks at jobs.right.outputs.n"),
        (("{{ request.title }}", "{{ env.SECRET }}"), "looks at env.SECRET"),
        (("{{ request.title }}", "{{ request.title"), "not a template"),
        (("stages:", "stages: []\nrest:"), "stages"),
        (("operation: two_steps", "operation: two_steps\noperation: again"), "operation"),
    ],
)
def test_a_file_that_says_something_wrong_is_refused_with_its_place(change: tuple[str, str], complaint: str) -> None:
    with pytest.raises(OperationInvalid) as refused:
        load_operation(TEXT.replace(*change), "two.yaml")
    assert str(refused.value).startswith("two.yaml")
    assert complaint in str(refused.value)


def test_a_broken_file_spoils_no_other() -> None:
    files = {"a.yaml": TEXT, "b.yaml": TEXT, "c.yaml": "[", "d.yaml": TEXT.replace("two_steps", "echo")}
    files["e.yaml"] = TEXT.replace("two_steps", "elsewhere").replace("other", "unknown")
    catalogue = load_operations(files, KNOWN)
    assert list(catalogue.operations) == ["two_steps"]
    assert [one.file for one in catalogue.broken] == ["b.yaml", "c.yaml", "d.yaml", "e.yaml"]
    assert "there is no workflow unknown" in catalogue.broken[-1].error
    assert (catalogue.get("two_steps"), catalogue.get("echo")) == (operation(), None)


def test_the_operations_that_ship_are_good() -> None:
    files = {path.name: path.read_text() for path in (WORKFLOWS / "operations").glob("*.yaml")}
    catalogue = load_operations(files, frozenset(repository_workflows().ids()))
    assert (catalogue.broken, list(catalogue.operations)) == ((), ["raster_stepwise"])
