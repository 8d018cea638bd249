"""Twenty publishers at once lose nothing, see no deadlock, and collections span what they hold."""

import pytest

from repositories import roles
from tests.support.databases import Database
from tests.support.publishing import PUBLISHERS, item, measure

EACH = 4


@pytest.mark.parametrize("collections", [1, PUBLISHERS], ids=["one collection", "a new one each"])
async def test_twenty_publishers_lose_nothing(database: Database, collections: int) -> None:
    found = await measure(database.conninfo(roles.WORKER), each=EACH, batch=2, collections=collections)
    print(f"{found.items} items into {collections} collections: {found.rate:.0f}/s")
    assert (found.stored, found.deadlocks) == (PUBLISHERS * EACH, 0)
    assert len(found.bboxes) == collections
    publishers = range(PUBLISHERS)
    for number, name in enumerate(sorted(found.bboxes, key=lambda name: int(name.rpartition("-")[2]))):
        own = [item(p, n, name) for p in publishers if p % collections == number for n in range(EACH)]
        boxes = list(zip(*(one["bbox"] for one in own), strict=True))
        assert found.bboxes[name] == [min(boxes[0]), min(boxes[1]), max(boxes[2]), max(boxes[3])]
        moments = sorted(one["properties"]["datetime"][:7] for one in own)
        assert found.intervals[name] == [moments[0], moments[-1]]
