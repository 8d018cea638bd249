import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dag.nodes import Backoff, RetrySpec
from core.dag.retry import RetryPolicy, delay_seconds, merge, redispatch_after_seconds
from tests.unit.core.dag.laws import LAWS


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (RetryPolicy(backoff=Backoff.FIXED, initial_delay_seconds=7, jitter=0), [7, 7, 7, 7]),
        (RetryPolicy(initial_delay_seconds=5, max_delay_seconds=30, jitter=0), [5, 10, 20, 30]),
        (RetryPolicy(backoff=Backoff.SCHEDULE, delays_seconds=(30, 120, 6000), jitter=0), [30, 120, 6000, 6000]),
        (RetryPolicy(backoff=Backoff.FIXED, initial_delay_seconds=50, max_delay_seconds=10, jitter=0), [10] * 4),
        (RetryPolicy(initial_delay_seconds=0, jitter=0.5), [0] * 4),
    ],
)
def test_delays_grow_as_declared(policy: RetryPolicy, delays: list[float]) -> None:
    assert [delay_seconds(policy, used, "t") for used in range(4)] == delays


def test_a_great_number_of_retries_does_not_overflow() -> None:
    assert delay_seconds(RetryPolicy(jitter=0), 10**6, "t") == 300


@LAWS
@given(st.text(), st.floats(0, 1), st.integers(0, 20))
def test_jitter_depends_on_the_task_id_only_and_stays_in_its_band(task_id: str, jitter: float, used: int) -> None:
    policy = RetryPolicy(backoff=Backoff.FIXED, initial_delay_seconds=100, max_delay_seconds=1000, jitter=jitter)
    delay = delay_seconds(policy, used, task_id)
    assert delay == delay_seconds(policy, used, task_id)
    assert 100 * (1 - jitter) - 1e-6 <= delay <= 100 * (1 + jitter) + 1e-6
    assert delay_seconds(RetryPolicy(jitter=jitter), used, task_id) <= 300


def test_jitter_spreads_different_tasks() -> None:
    delays = {delay_seconds(RetryPolicy(), 0, f"job{n}_a_0") for n in range(100)}
    assert len(delays) == 100
    assert max(delays) - min(delays) > 1


def test_a_field_of_the_node_wins_over_the_defaults_and_those_over_the_built_in() -> None:
    node = RetrySpec(max_retries=0, jitter=0.2)
    defaults = RetrySpec(max_retries=9, jitter=0.5, initial_delay_seconds=1)
    assert merge(node, defaults) == RetryPolicy(max_retries=0, jitter=0.2, initial_delay_seconds=1)
    assert merge(None, None) == RetryPolicy()


def test_another_backoff_leaves_the_schedule_of_the_defaults_behind() -> None:
    defaults = RetrySpec(backoff=Backoff.SCHEDULE, delays_seconds=(30.0, 60.0))
    assert merge(RetrySpec(backoff=Backoff.FIXED), defaults) == RetryPolicy(backoff=Backoff.FIXED)
    assert merge(RetrySpec(max_retries=1), defaults).delays_seconds == (30.0, 60.0)
    assert merge(RetrySpec(backoff=Backoff.SCHEDULE), defaults).delays_seconds == (30.0, 60.0)


def test_an_unclaimed_dispatch_is_repeated_after_300_seconds_doubling_to_an_hour() -> None:
    assert [redispatch_after_seconds(n) for n in (1, 2, 3, 4, 5, 6, 99)] == [300, 600, 1200, 2400, 3600, 3600, 3600]
