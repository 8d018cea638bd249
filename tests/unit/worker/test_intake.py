"""How much room answers get."""

import asyncio
from collections.abc import Callable

import pytest

from core.wire import Capacity
from worker.intake import STARTED_TOGETHER, Intake, ReservedRoom
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


async def test_tasks_begin_in_portions_and_all_of_them_also_when_the_worker_is_told_to_go() -> None:
    """What an answer brought is leased: whoever goes amid its start would leave the rest to time-outs."""
    begun: list[int] = []
    room = ReservedRoom(Capacity(slots=1000), lambda grant: begun.append(0) or True)
    starting = asyncio.create_task(room.start([object()] * 300))  # type: ignore[list-item]
    await asyncio.sleep(0)
    assert len(begun) == STARTED_TOGETHER
    await asyncio.sleep(0)
    assert len(begun) == 2 * STARTED_TOGETHER
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert (len(begun), room.left) == (300, 700)


async def test_no_more_begin_than_there_is_room_for() -> None:
    begun: list[object] = []
    room = ReservedRoom(Capacity(slots=100), lambda grant: begun.append(grant) or True)
    await room.start([object()] * 300)  # type: ignore[list-item]
    assert (len(begun), room.left) == (100, 0)
