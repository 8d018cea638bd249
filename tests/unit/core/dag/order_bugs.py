"""Bugs to plant in the evaluator, each against another law of `order_histories`; some were in it once."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from core.dag import evaluator, outcome, reopening, settle, slots
from core.dag import run as runs
from core.dag.rendering import Rendered
from core.dag.run import Run
from core.dag.slot_wishes import Wishes
from core.models.engine import Attempt
from core.statuses import JOB_FINAL, AttemptState, NodeStatus

Plant = Callable[[pytest.MonkeyPatch], None]


def failed_before_is_read_of_the_state(patch: pytest.MonkeyPatch) -> None:
    """A failure that was started anew and came again at once is taken for the one before: nothing is cancelled."""
    cancel = settle._cancel_after_failure

    def cancel_after_failure(run: Run) -> bool:
        before = run.state.nodes
        known = all(before[node_id].status is NodeStatus.FAILED for node_id in run.failed())
        return False if known else cancel(run)

    patch.setattr(settle, "_cancel_after_failure", cancel_after_failure)


def who_asked_asks_on(patch: pytest.MonkeyPatch) -> None:
    """A job asks for its slot once any node asked for it, also when that was cancelled in the same step."""

    class Asking(Wishes):
        @property
        def job_asks(self) -> bool:
            return getattr(self, "asked", False)

        @job_asks.setter
        def job_asks(self, value: bool) -> None:
            self.asked = self.job_asks or value

    patch.setattr(runs, "Wishes", Asking)


def draining_cancels(patch: pytest.MonkeyPatch) -> None:
    """A failure cancels what is unfinished whatever the workflow says."""

    def settle_and_cancel(run: Run) -> None:
        settle.settle(run)
        settle._cancel_after_failure(run)

    patch.setattr(evaluator, "settle", settle_and_cancel)


def attempts_are_counted_anew(patch: pytest.MonkeyPatch) -> None:
    """A node that starts anew begins with attempt 0 once more."""
    reset = Run.reset_node

    def reset_all(run: Run, node_id: str) -> None:
        reset(run, node_id)
        run.nodes[node_id] = run.nodes[node_id].model_copy(update={"attempt": 0})

    patch.setattr(Run, "reset_node", reset_all)


def what_follows_is_not_started_anew(patch: pytest.MonkeyPatch) -> None:
    """A retry or rerun starts only the nodes themselves."""

    def start_roots(run: Run, roots: Iterable[str], event: str, by: Mapping[str, Any]) -> None:
        run.reopen(event, by)
        for node_id in roots:
            run.reset_node(node_id)

    patch.setattr(reopening, "_start_anew", start_roots)


def work_goes_on_for_nobody(patch: pytest.MonkeyPatch) -> None:
    """No attempt is revoked, whatever becomes of its node."""
    end = Run.end_attempt

    def end_attempt(run: Run, attempt: Attempt, state: AttemptState, reason: str) -> None:
        if state is not AttemptState.REVOKED:
            end(run, attempt, state, reason)

    patch.setattr(Run, "end_attempt", end_attempt)


def a_refused_order_leaves_traces(patch: pytest.MonkeyPatch) -> None:
    """A retry is noted before it finds that nothing failed."""
    retry = reopening.retry_failed

    def retry_failed(run: Run, by: Mapping[str, Any]) -> None:
        run.note("job_retried", **by)
        retry(run, by)

    patch.setattr(reopening, "retry_failed", retry_failed)


def an_end_keeps_its_slots(patch: pytest.MonkeyPatch) -> None:
    """A job that ends gives nothing back."""
    conclude = slots.conclude

    def conclude_nothing(run: Run) -> None:
        conclude(run)
        if run.job.status in JOB_FINAL:
            run.wishes.changes = replace(run.wishes.changes, freed=(), dropped=False)

    patch.setattr(slots, "conclude", conclude_nothing)


def what_was_cancelled_counts_as_done(patch: pytest.MonkeyPatch) -> None:
    """A job completes with nodes that were cancelled in an earlier run and not started anew."""
    finish = outcome._finish

    def complete(run: Run) -> None:
        if list(run.failed()):
            finish(run)
        else:
            outcome._complete(run, Rendered(value={}))

    patch.setattr(outcome, "_finish", complete)


def a_pause_holds_nothing(patch: pytest.MonkeyPatch) -> None:
    """New work begins also while a job is paused."""
    patch.setattr(Run, "held_by", lambda *_: None)


def no_job_waits_for_its_slot(patch: pytest.MonkeyPatch) -> None:
    """Work begins whether or not the job has its slot."""
    patch.setattr(slots, "admits_job", lambda *_: True)


def nobody_wakes_the_job(patch: pytest.MonkeyPatch) -> None:
    """A job that waits for a time is not told when it comes."""
    patch.setattr(evaluator, "next_wake", lambda _: None)


BUGS: Mapping[str, Plant] = {
    plant.__name__: plant
    for plant in (
        failed_before_is_read_of_the_state,
        who_asked_asks_on,
        draining_cancels,
        attempts_are_counted_anew,
        what_follows_is_not_started_anew,
        work_goes_on_for_nobody,
        a_refused_order_leaves_traces,
        an_end_keeps_its_slots,
        what_was_cancelled_counts_as_done,
        a_pause_holds_nothing,
        no_job_waits_for_its_slot,
        nobody_wakes_the_job,
    )
}
