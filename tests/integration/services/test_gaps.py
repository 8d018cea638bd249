"""What others commit between two statements of a transaction; `python -m bench.gaps` plays every such gap.

Whatever comes between, the jobs come to their end, nothing counts twice, and no result of a current attempt is lost.
"""

import itertools
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from bench.gaps import Pair, pairs, stage_on
from core.models.engine import TaskResultRow
from repositories.results import ResultRepository
from tests.support.databases import Database
from tests.support.gaps.play import Stage
from tests.support.gaps.scenes import KINDS, TIMES

DRAWN = 20
LIKELY_STOPS = 14
FOUND: dict[str, tuple[Pair, range]] = {
    "a batch is given back amid the reading of its job": (("batch", "due", "tick", "release"), range(11, 14)),
    "a result comes amid the reading of its job": (("fan", "fresh", "first", "last"), range(3, 6)),
}
"""Gaps in which something was lost once."""


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    """Return a database on which scenes are played."""
    async with stage_on(database) as made:
        yield made


async def test_whatever_comes_between_two_statements_nothing_is_lost_or_doubled(stage: Stage) -> None:
    chance, every = Random(5), list(pairs(KINDS, TIMES))
    drawn = [(chance.choice(every), chance.randrange(LIKELY_STOPS)) for _ in range(DRAWN)]
    known = [(pair, gap) for pair, gaps in FOUND.values() for gap in gaps]
    wrong = {
        (*pair, gap): played.wrong for pair, gap in (*known, *drawn) if (played := await stage.play(*pair, gap)).wrong
    }
    assert wrong == {}


class _Late:
    """An inbox that is read when it is looked at, after everything else."""

    def __init__(self, *asked: Any) -> None:
        self._asked = asked

    async def rows(self) -> list[TaskResultRow]:
        return await (await INBOX(*self._asked)).rows()


INBOX = ResultRepository.inbox


async def test_the_gaps_find_an_inbox_that_is_read_after_the_attempts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def inbox(*asked: Any) -> _Late:
        return _Late(*asked)

    monkeypatch.setattr(ResultRepository, "inbox", inbox)
    for gap in itertools.count():
        played = await stage.play("fan", "fresh", "first", "last", gap)
        assert gap < played.gaps, "no gap of it was found"
        if "nothing will ever happen" in played.wrong:
            return
