"""Fixed seeds of the simulation keep every invariant, planted bugs break one; `python -m bench.simulate` runs more."""

from collections.abc import AsyncIterator

import pytest

from bench.simulation.bugs import BUGS
from bench.simulation.database import SimulatedDatabase
from bench.simulation.faults import HARSH
from bench.simulation.history import SMALL, run_history
from repositories import roles
from tests.support.databases import Database

MOST_SEEDS = 25


@pytest.fixture
async def simulated(database: Database) -> AsyncIterator[SimulatedDatabase]:
    """Return a clone with a virtual clock."""
    dsns = {role: database.conninfo(role) for role in (roles.ORCHESTRATOR, roles.WORKER)}
    async with SimulatedDatabase.connected(database.admin, dsns) as connected:
        yield connected


@pytest.mark.parametrize("seed", range(3))
async def test_a_history_keeps_every_invariant(simulated: SimulatedDatabase, seed: int) -> None:
    history = await run_history(seed, simulated, size=SMALL)
    assert history.violations == []
    assert history.jobs >= 2


async def test_a_seed_gives_the_same_history_again(simulated: SimulatedDatabase) -> None:
    first, second = [await run_history(4, simulated, size=SMALL) for _ in range(2)]
    assert (first.digest, first.steps, first.faults) == (second.digest, second.steps, second.faults)
    assert (await run_history(5, simulated, size=SMALL)).digest != first.digest


@pytest.mark.parametrize("bug", sorted(BUGS))
async def test_the_invariants_find_a_planted_bug(simulated: SimulatedDatabase, bug: str) -> None:
    for seed in range(MOST_SEEDS):
        history = await run_history(seed, simulated, bug=bug, profile=HARSH)
        if history.violations:
            return
    pytest.fail(f"{bug} was not found in {MOST_SEEDS} seeds")
