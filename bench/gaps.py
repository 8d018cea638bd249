"""Plays acts in the gaps of others' transactions, one whole transaction after each statement of another.

    python -m bench.gaps [--kinds task,fan] [--times fresh,due] [--first tick] [--second last]
    python -m bench.gaps --minutes 10 --seed 1

Plays every gap of every pair, or what it draws in some minutes; prints how many that were and what was wrong in which.
"""

import argparse
import asyncio
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from psycopg import AsyncConnection, conninfo
from psycopg_pool import AsyncConnectionPool

from bench.simulation.patching import replaced
from repositories import roles
from repositories.blobs_folder import FolderBlobRepository
from repositories.database import AsyncPool, make_conninfo
from repositories.piped import PipedConnection
from tests.support.databases import Database, Server
from tests.support.gaps.acts import ACTS, acts_on
from tests.support.gaps.desk import SMALL
from tests.support.gaps.play import Stage
from tests.support.gaps.scenes import KINDS, OF_LARGE, TIMES

Pair = tuple[str, str, str, str]
"""Kind, time, the act that is stopped and the act that comes between."""
Gap = tuple[Pair, int]
PATIENT = "-c lock_timeout=30s -c idle_in_transaction_session_timeout=60s"
"""Who is stopped, and who waits for him, is there still on a slow machine."""
LIKELY = 12
"""Stops of an act of which nothing is known yet."""


@asynccontextmanager
async def stage_on(database: Database) -> AsyncIterator[Stage]:
    """Yield a stage on a fresh clone."""
    dsn = conninfo.make_conninfo(database.conninfo(roles.ORCHESTRATOR), options=PATIENT)
    async with (
        _pool(dsn, min_size=3, max_size=6) as pool,
        _pool(database.admin, min_size=1, max_size=2, prepare_threshold=2) as admin,
        await AsyncConnection.connect(database.admin, autocommit=True, prepare_threshold=2) as observer,
    ):
        with tempfile.TemporaryDirectory(prefix="geodag-gaps-values-") as folder, replaced(*SMALL):
            stage = Stage(pool, admin, observer, FolderBlobRepository(Path(folder)))
            await stage.build()
            yield stage


def _pool(dsn: str, *, min_size: int, max_size: int, prepare_threshold: int | None = None) -> AsyncPool:
    """Return a pool whose connections nobody checks: each check would cost as much as a statement."""
    return AsyncConnectionPool(
        make_conninfo(dsn, "gaps"),
        connection_class=PipedConnection,
        kwargs={"prepare_threshold": prepare_threshold},
        min_size=min_size,
        max_size=max_size,
        open=False,
    )


def pairs(kinds: Sequence[str], times: Sequence[str]) -> Iterator[Pair]:
    """Yield everything that makes sense."""
    for kind, when in itertools.product(kinds, times):
        if when in OF_LARGE and kind != "large":
            continue
        for first in acts_on(kind, stepped=True):
            for second in acts_on(kind, stepped=False):
                yield kind, when, first, second


def gaps_of(wanted: Sequence[Pair], stops: Mapping[Pair, int]) -> Iterator[Gap]:
    """Yield every gap of every pair; `stops` says how many a pair has once one of them was played."""
    for pair in wanted:
        gap = 0
        while gap < stops.get(pair, 1):
            yield pair, gap
            gap += 1


def drawn(wanted: Sequence[Pair], stops: Mapping[Pair, int], minutes: float, chance: Random) -> Iterator[Gap]:
    """Yield gaps at random until the time is over."""
    deadline = time.monotonic() + 60 * minutes
    known: dict[tuple[str, ...], int] = {}
    while time.monotonic() < deadline:
        pair = chance.choice(wanted)
        gap = chance.randrange(known.get(pair[:3], LIKELY))
        yield pair, gap
        known[pair[:3]] = max(stops[pair], known.get(pair[:3], 1))


def run(games: Callable[[Mapping[Pair, int]], Iterator[Gap]]) -> None:
    """Play on a private server, and print."""
    with tempfile.TemporaryDirectory(prefix="geodag-gaps-") as folder:
        Path(folder).chmod(0o755)
        server = Server(Path(folder) / "server")
        server.folder.mkdir()
        server.ensure_ready()
        try:
            asyncio.run(_run(server.clone(), games))
        finally:
            server.destroy()


async def _run(database: Database, games: Callable[[Mapping[Pair, int]], Iterator[Gap]]) -> None:
    async with stage_on(database) as stage:
        await play(stage, games)


async def play(stage: Stage, games: Callable[[Mapping[Pair, int]], Iterator[Gap]]) -> int:
    """Play and print; return in how many gaps something was wrong."""
    began, stops = time.monotonic(), dict[Pair, int]()
    played, waited, wrong, pairs_played = 0, 0, 0, set[Pair]()
    for pair, gap in games(stops):
        done = await stage.play(*pair, gap)
        stops[pair] = max(done.gaps, stops.get(pair, 0))
        pairs_played.add(pair)
        played, waited = played + 1, waited + done.waited
        if done.wrong:
            wrong += 1
            print(*pair, f"gap {gap}:", *(f"\n    {one}" for one in done.wrong), flush=True)
            await stage.clear()
    seconds = time.monotonic() - began
    print(f"{len(pairs_played)} pairs, {played} gaps, {waited} waited, {wrong} wrong, {seconds:.0f} s")
    return wrong


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--times", default=",".join(TIMES))
    parser.add_argument("--first", default=",".join(ACTS), help="only these acts are stopped")
    parser.add_argument("--second", default=",".join(ACTS), help="only these come between")
    parser.add_argument("--minutes", type=float, help="draw for so long instead of playing every gap")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    first, second = asked.first.split(","), asked.second.split(",")
    every = pairs(asked.kinds.split(","), asked.times.split(","))
    wanted = [pair for pair in every if pair[2] in first and pair[3] in second]
    print(f"{len(wanted)} pairs make sense")
    if asked.minutes:
        run(lambda stops: drawn(wanted, stops, asked.minutes, Random(asked.seed)))
    else:
        run(lambda stops: gaps_of(wanted, stops))


if __name__ == "__main__":
    main()
