"""Budgets and delays. Pure: jitter comes from a hash of the task id."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from core.dag.nodes import Backoff, RetrySpec

REDISPATCH_SECONDS = 300.0
REDISPATCH_MAX_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """What holds for one task after node, `defaults` and these values are merged.

    `max_retries` counts retries, not attempts: 5 means 6 attempts. Lost workers have their own budget.
    """

    max_retries: int = 3
    max_losses: int = 5
    max_elapsed_seconds: float | None = None
    backoff: Backoff = Backoff.EXPONENTIAL
    initial_delay_seconds: float = 5.0
    max_delay_seconds: float = 300.0
    delays_seconds: tuple[float, ...] = ()
    jitter: float = 0.2


def merge(*specs: RetrySpec | None) -> RetryPolicy:
    """Return the policy; a field of an earlier spec wins over the same field of a later one.

    One that says another `backoff` wins over the `delays_seconds` of a later one too.
    """
    fields: dict[str, object] = {}
    for spec in reversed(specs):
        if spec is not None:
            if spec.backoff not in {None, Backoff.SCHEDULE}:
                fields.pop("delays_seconds", None)
            fields |= {name: value for name, value in spec if value is not None}
    return RetryPolicy(**fields)  # type: ignore[arg-type]


def delay_seconds(policy: RetryPolicy, retries_used: int, task_id: str) -> float:
    """Return the pause before the retry that follows `retries_used` earlier ones.

    Jitter moves it by up to `jitter` in both directions, the same for the same task id; never above the cap.
    """
    base = _base_delay(policy, retries_used)
    spread = 1 + policy.jitter * (2 * _fraction(task_id) - 1)
    cap = policy.max_delay_seconds if policy.backoff is not Backoff.SCHEDULE else float("inf")
    return min(base * spread, cap)


def contradictions(policy: RetryPolicy) -> Iterator[str]:
    """Yield what a policy says in vain."""
    initial, longest, elapsed = policy.initial_delay_seconds, policy.max_delay_seconds, policy.max_elapsed_seconds
    if policy.max_retries == 0:
        return
    if policy.backoff is not Backoff.SCHEDULE and initial > longest:
        yield (
            f"initial_delay_seconds {initial:g} is cut to the {longest:g} of max_delay_seconds; "
            "say a larger max_delay_seconds too"
        )
    earliest = _base_delay(policy, 0) * (1 - policy.jitter)
    if elapsed is not None and elapsed <= earliest:
        yield (
            f"max_elapsed_seconds {elapsed:g} are over before the first retry, {earliest:g} s after the failure or "
            "later: nothing but lost workers is retried; say more of them, or max_retries: 0"
        )


def _base_delay(policy: RetryPolicy, retries_used: int) -> float:
    match policy.backoff:
        case Backoff.FIXED:
            return min(policy.initial_delay_seconds, policy.max_delay_seconds)
        case Backoff.EXPONENTIAL:
            return min(policy.initial_delay_seconds * 2.0 ** min(retries_used, 64), policy.max_delay_seconds)
        case Backoff.SCHEDULE:
            return policy.delays_seconds[min(retries_used, len(policy.delays_seconds) - 1)]
        case _ as never:
            assert_never(never)


def _fraction(text: str) -> float:
    """Return a number in [0, 1) that depends on nothing but the text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def redispatch_after_seconds(dispatch_no: int) -> float:
    """Return how long a dispatch may stay unclaimed before the same attempt is sent again: 300 s, doubling to 1 h."""
    return min(REDISPATCH_SECONDS * 2.0 ** min(dispatch_no - 1, 16), REDISPATCH_MAX_SECONDS)
