"""How much room answers get."""

from collections.abc import Callable

import pytest

from core.wire import Capacity
from worker.intake import Intake
from worker.tasks import Slots


@pytest.fixture
def intake() -> Callable[[int], Intake]:
    """Return a function that makes the intake of a worker that has so much credit."""

    def make(credit: int) -> Intake:
        return Intake(
            {}, Slots(1, lambda: 0, credit), lambda *_: None, lambda slots: Capacity(slots=slots), enabled=True
        )

    return make


@pytest.mark.parametrize(
    ("ended", "room"),
    [(0, 50), (1, 50), (50, 50), (60, 60), (100, 100), (300, 100)],
    ids=["nothing ended", "little", "half", "more than half", "all", "more than there is"],
)
def test_an_answer_gets_the_room_of_its_results_or_half(intake: Callable[[int], Intake], ended: int, room: int) -> None:
    with intake(100).reserved(ended) as reserved:
        assert reserved.capacity.slots == room


def test_answers_side_by_side_share_and_give_back(intake: Callable[[int], Intake]) -> None:
    worker = intake(100)
    with worker.reserved(10) as first, worker.reserved(10) as second, worker.reserved(40) as third:
        assert [one.capacity.slots for one in (first, second, third)] == [50, 25, 25]
        with worker.reserved(10) as nothing:
            assert nothing.capacity.slots == 0
    with worker.reserved(100) as again:
        assert again.capacity.slots == 100
