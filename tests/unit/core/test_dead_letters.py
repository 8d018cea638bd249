"""What a dead letter means: it ends the attempt that waits for it, and no other."""

from typing import Any

import pytest

from core.dead_letters import TOO_LARGE, Kind, Letter, Verdict, judge, without_tokens
from core.ids import token_hash
from core.models.engine import Attempt
from core.statuses import AttemptState
from tests.support.queues import message
from tests.unit.core.dag.harness import START

SENT = message("a", dispatch_no=2)
BODY = SENT.model_dump(mode="json")


def attempt(**fields: Any) -> Attempt:
    row = {
        "task_id": SENT.task_id, "job_id": "job", "node_id": "a", "attempt": 0, "dispatch_no": 2, "queue": SENT.queue,
        "handler": "echo", "params_digest": "x", "token_hash": token_hash(SENT.token), "timeout_seconds": 60,
        "queued_at": START,
    }  # fmt: skip
    return Attempt.model_validate(row | fields)


def letter(body: Any = BODY, dispatch_no: int = 2) -> Letter:
    return Letter(f"{SENT.task_id}.{dispatch_no}", body, "nobody wants it")


@pytest.mark.parametrize("body", [[], "{not json", None, 5, {}, {**BODY, "surprise": 1}])
def test_an_unreadable_message_fails_the_attempt_that_waits_for_it(body: Any) -> None:
    verdict = judge(letter(body), attempt())
    assert verdict.kind is Kind.UNREADABLE
    assert verdict.error is not None
    assert (verdict.error.code, verdict.error.classification) == ("MESSAGE_UNREADABLE", "permanent")
    assert "nobody wants it" in verdict.error.message


def test_a_refused_message_fails_it_when_the_token_proves_that_it_was_sent() -> None:
    verdict = judge(letter(), attempt())
    assert (verdict.kind, verdict.error and verdict.error.code) == (Kind.REFUSED, "MESSAGE_REFUSED")


@pytest.mark.parametrize("reason", ["MaxDeliveryCountExceeded", "TTLExpiredException: too old"])
def test_what_the_broker_gave_up_is_sent_again_until_its_third_dispatch(reason: str) -> None:
    given_up = Letter(letter().message_id, BODY, reason)
    verdict = judge(given_up, attempt())
    assert (verdict.kind, verdict.error, verdict.again) == (Kind.UNDELIVERED, None, True)
    last = Letter(letter(dispatch_no=3).message_id, {**BODY, "dispatch_no": 3}, reason)
    verdict = judge(last, attempt(dispatch_no=3))
    assert (verdict.error and verdict.error.code, verdict.again) == ("MESSAGE_UNDELIVERED", False)
    waiting = judge(last, attempt(dispatch_no=3, no_fit="memory"))
    assert waiting == Verdict(Kind.UNDELIVERED, again=True), "workers only have no room for it"
    assert judge(given_up, attempt(dispatch_no=3)) == Verdict(Kind.STALE)
    assert judge(given_up, attempt(state=AttemptState.LEASED)) == Verdict(Kind.STALE)


def test_what_is_too_large_for_the_broker_says_what_to_do() -> None:
    verdict = judge(Letter(letter().message_id, BODY, f"{TOO_LARGE} the message has 3 bytes"), attempt())
    assert verdict.error is not None
    assert verdict.error.code == "MESSAGE_TOO_LARGE"
    assert "3 bytes" in verdict.error.message
    assert "blob" in (verdict.error.remediation or "")


def test_a_forged_message_fails_nothing() -> None:
    verdict = judge(letter({**BODY, "token": "f" * 32}), attempt())
    assert (verdict.kind, verdict.error) == (Kind.BAD_TOKEN, None)


@pytest.mark.parametrize("state", [state for state in AttemptState if state is not AttemptState.QUEUED])
@pytest.mark.parametrize(("body", "kind"), [([], Kind.UNREADABLE), (BODY, Kind.STALE)])
def test_an_attempt_that_waits_for_no_message_goes_on(state: AttemptState, body: Any, kind: Kind) -> None:
    verdict = judge(letter(body), attempt(state=state))
    assert (verdict.kind, verdict.error) == (kind, None)


@pytest.mark.parametrize(("body", "kind"), [([], Kind.UNREADABLE), ({**BODY, "dispatch_no": 1}, Kind.STALE)])
def test_an_older_dispatch_fails_nothing(body: Any, kind: Kind) -> None:
    verdict = judge(letter(body, dispatch_no=1), attempt())
    assert (verdict.kind, verdict.error) == (kind, None)


@pytest.mark.parametrize(("body", "kind"), [([], Kind.UNREADABLE), (BODY, Kind.UNKNOWN_TASK)])
def test_a_message_without_an_attempt_is_only_kept(body: Any, kind: Kind) -> None:
    verdict = judge(letter(body), None)
    assert (verdict.kind, verdict.error) == (kind, None)


def test_what_is_kept_has_no_token_at_any_depth() -> None:
    body = {"token": "s3", "params": {"Token": "s3", "x": [{"auth_token": "s3"}, "kept"]}}
    assert without_tokens(body) == {"params": {"x": [{}, "kept"]}}
    assert without_tokens("text") == "text"
