"""Runs histories of the deterministic simulation over all cores.

    python -m bench.simulate --seeds 1000 [--first 0] [--jobs N] [--bug NAME]
    python -m bench.simulate --replay 4711

Prints seeds, steps and histories checked; of each seed that broke an invariant, what broke and how to replay it.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg import conninfo, sql

from bench.simulation.bugs import BUGS, PROFILES
from bench.simulation.database import SimulatedDatabase
from bench.simulation.faults import HARSH
from bench.simulation.history import History, run_history
from cli.stack.cluster import TEST_CONFIG, Cluster
from repositories import roles
from repositories.deploy import deploy

TEMPLATE = "simulation_template"
HOST = "127.0.0.1"
PASSWORDS = {role: f"simulated-{role}" for role in roles.LOGIN_ROLES}
BATCH = 10


@dataclass(slots=True)
class Totals:
    """Sums over histories."""

    histories: int = 0
    jobs: int = 0
    steps: int = 0
    transactions: int = 0
    virtual_seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    covered: Counter[str] = field(default_factory=Counter)
    failed: list[History] = field(default_factory=list)

    def add(self, history: History) -> None:
        """Count one history."""
        self.histories += 1
        self.jobs += history.jobs
        self.steps += history.steps
        self.transactions += history.transactions
        self.virtual_seconds += history.virtual_seconds
        self.faults.update(history.faults)
        self.covered.update(history.covered)
        if history.violations:
            self.failed.append(history)


@contextmanager
def temporary_cluster() -> Iterator[Cluster]:
    """Yield a private server with a migrated template; it is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="geodag-simulation-") as folder:
        Path(folder).chmod(0o755)
        cluster = Cluster(Path(folder), config=TEST_CONFIG)
        cluster.start()
        try:
            asyncio.run(deploy(cluster.admin_conninfo(), TEMPLATE, PASSWORDS, host=HOST))
            yield cluster
        finally:
            cluster.destroy()


@asynccontextmanager
async def clone(admin: str, port: int) -> AsyncIterator[SimulatedDatabase]:
    """Yield a simulation's database, a clone of the template."""
    name = f"simulation_{os.getpid()}_{time.monotonic_ns()}"
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute("SELECT pg_advisory_lock(1)")
        conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*map(sql.Identifier, (name, TEMPLATE))))
        conn.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO PUBLIC").format(sql.Identifier(name)))
    dsns = {
        role: conninfo.make_conninfo(host=HOST, port=port, dbname=name, user=role, password=PASSWORDS[role])
        for role in (roles.ORCHESTRATOR, roles.WORKER)
    }
    async with SimulatedDatabase.connected(conninfo.make_conninfo(admin, dbname=name), dsns) as database:
        yield database


async def run_seeds(seeds: Sequence[int], admin: str, port: int, bug: str | None) -> list[History]:
    """Run some seeds one after the other in a database of their own."""
    async with clone(admin, port) as database:
        profile = PROFILES.get(bug, HARSH) if bug else None
        return [await run_history(seed, database, bug=bug, profile=profile) for seed in seeds]


def _worker(seeds: Sequence[int], admin: str, port: int, bug: str | None) -> list[History]:
    return asyncio.run(run_seeds(seeds, admin, port, bug))


def main() -> int:
    """Run the seeds that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--replay", type=int, help="Run this one seed and print its history.")
    parser.add_argument("--bug", choices=sorted(BUGS), help="Plant a bug, to see whether the invariants find it.")
    parser.add_argument("--json", type=Path, help="Also write the numbers so far here, again and again.")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.replay is not None:
        seeds = range(arguments.replay, arguments.replay + 1)
    totals, began = Totals(), time.monotonic()
    with temporary_cluster() as cluster, ProcessPoolExecutor(arguments.jobs) as pool:
        admin, port = cluster.admin_conninfo(), cluster.port
        batches = [seeds[start : start + BATCH] for start in range(0, len(seeds), BATCH)]
        for histories in pool.map(_worker, batches, *([one] * len(batches) for one in (admin, port, arguments.bug))):
            for history in histories:
                totals.add(history)
                _report(history)
            if arguments.json:
                _write(totals, arguments.json)
    _print(totals, time.monotonic() - began)
    return 1 if totals.failed else 0


def vars_of(totals: Totals) -> dict[str, object]:
    """Return the numbers of the totals."""
    return {
        "histories": totals.histories,
        "jobs": totals.jobs,
        "steps": totals.steps,
        "transactions": totals.transactions,
        "virtual_hours": round(totals.virtual_seconds / 3600, 1),
        "faults": dict(totals.faults.most_common()),
        "covered": dict(sorted(totals.covered.items())),
    }


def _write(totals: Totals, file: Path) -> None:
    failed = [one.seed for one in totals.failed]
    file.write_text(json.dumps({**vars_of(totals), "failed": failed}, indent=2))


def _report(history: History) -> None:
    for violation in history.violations:
        print(f"seed {history.seed}: {violation}")
    if history.violations:
        print(f"digest {history.digest[:12]}, replay: python -m bench.simulate --replay {history.seed}", flush=True)


def _print(totals: Totals, seconds: float) -> None:
    for name, value in vars_of(totals).items():
        print(f"{name}: {value}")
    print(f"real seconds: {seconds:.0f}")
    print(f"histories that broke an invariant: {len(totals.failed)}")


if __name__ == "__main__":
    sys.exit(main())
