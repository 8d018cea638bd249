"""Letters that Service Bus has set aside: each is carried, whatever it holds, and none holds up another."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import TransientError
from messaging.servicebus_letters import MAX_LETTERS, LetterCarrier
from repositories.database import AsyncPool
from tests.support.engine import Engine
from tests.support.queues import QUEUE

BROKEN: Any = object()
"""A reason that no text is made of."""


@dataclass(eq=False)
class Letter:
    """A received letter, without a broker."""

    message_id: str
    data: bytes = b"{}"
    reason: Any = "refused"
    broken: bool = False

    @property
    def raw(self) -> Any:
        now = datetime.now(UTC)
        return SimpleNamespace(dead_letter_reason=self.reason, delivery_count=1, enqueued_time_utc=now)

    def body(self) -> bytes:
        if self.broken:
            raise LookupError("nobody thought of this")
        return self.data


@dataclass
class Reader:
    """The dead letters of a queue."""

    left: list[Letter]
    abandoned: list[Letter] = field(default_factory=list)

    async def receive(self, limit: int, _: float) -> Sequence[Letter]:
        return self.left[:limit]

    async def complete(self, letters: Sequence[Letter]) -> None:
        self.left = [one for one in self.left if one not in letters]

    async def abandon(self, letter: Letter) -> None:
        self.abandoned.append(letter)


async def carried(pool: AsyncPool, *letters: Letter) -> list[tuple[str | None, Any, str]]:
    """Carry letters and return what operators see of them: task id, body and reason."""
    reader: Any = Reader(list(letters))
    assert await LetterCarrier(pool, reader, QUEUE).carry(0) == len(letters)
    assert (reader.left, reader.abandoned) == ([], [])
    desk = Engine(pool).dead_letters
    assert await desk.take_over() == len(letters)
    found = await desk.list(only_open=True, before=None, limit=9)
    return [(one.task_id, one.body, one.reason) for one in sorted(found, key=lambda one: one.dead_letter_id)]


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": "\\ud800"}',
        b'{"\\udc00": 1}',
        b'{"a": "\\u0000"}',
        b'{"a": 1e999}',
        b'{"a": NaN}',
        b'{"a": ' + b"[" * 400 + b"]" * 400 + b"}",
        b"[" * 100_000,
        b"1" * 5000,
        b"\xff",
        b"{",
    ],
)
async def test_of_a_body_that_no_row_can_hold_its_size_is_carried(pool: AsyncPool, body: bytes) -> None:
    first, second = await carried(pool, Letter("t_n_0.1", body), Letter("other_n_0.1"))
    assert first == ("t_n_0", {"unreadable": f"{len(body)} bytes"}, "refused")
    assert second == ("other_n_0", {}, "refused")


async def test_a_body_that_only_speaks_of_a_null_character_is_carried_as_it_is(pool: AsyncPool) -> None:
    assert await carried(pool, Letter("t_n_0.1", b'"\\\\u0000"')) == [("t_n_0", "\\u0000", "refused")]


async def test_a_reason_and_a_name_are_carried_without_what_no_row_can_hold(pool: AsyncPool) -> None:
    (letter,) = await carried(pool, Letter("t\0_n_0.1", reason="a\0b\ud800"))
    assert letter == ("t\ufffd_n_0", {}, "a\ufffdb?")


async def test_a_letter_that_fails_holds_up_none_behind_it_and_is_told(pool: AsyncPool) -> None:
    bad, good = Letter("bad_n_0.1", reason=BROKEN), Letter("good_n_0.1")
    reader: Any = Reader([bad, good])
    with pytest.raises(TransientError, match="1 of 2"):
        await LetterCarrier(pool, reader, QUEUE).carry(0)
    assert (reader.left, reader.abandoned) == ([bad], [bad])
    assert await Engine(pool).dead_letters.take_over() == 1


async def test_letters_that_nobody_can_read_are_carried_without_their_bodies(pool: AsyncPool) -> None:
    """As many as come at once: what is given back comes first again, and would keep all others for ever."""
    broken = [Letter(f"t{number}_n_0.1", broken=True) for number in range(MAX_LETTERS)]
    reader: Any = Reader([*broken, Letter("good_n_0.1")])
    carrier = LetterCarrier(pool, reader, QUEUE)
    assert [await carrier.carry(0) for _ in range(2)] == [MAX_LETTERS, 1]
    assert (reader.left, reader.abandoned) == ([], [])
    desk = Engine(pool).dead_letters
    await desk.take_over()
    found = {one.task_id: one.body for one in await desk.list(only_open=True, before=None, limit=99)}
    assert found == {"good_n_0": {}} | {
        f"t{number}_n_0": {"unreadable": "LookupError"} for number in range(MAX_LETTERS)
    }
