"""Measures the engine of the embedded stack beside a skeleton without one, in the same run on the same machine.

W1: start → echo → end, one at a time, from HTTP submit to completed. W2: a chain of ten, time per step. W4: 1,000 W1
jobs at once. Both sides stand behind the same kind of balancer and use the same database server.

    python -m bench.engine [--home FOLDER] [--w1 N] [--w2 N] [--w4 N] [--json FILE]
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import aiohttp
import psycopg
from psycopg.conninfo import make_conninfo
from rich.console import Console
from rich.table import Table

from bench.measures import CpuMeter, Door, all_at_once, one_at_a_time, percentile
from bench.skeleton import TABLE
from cli.stack.layout import REPOSITORY, Shape
from cli.stack.ports import HOST, choose_ports
from cli.stack.processes import Part, PartSpec, end_parts, wait_until
from cli.stack.stack import Stack, answers
from core.identity import CALLER_HEADER, SERVICE_HEADER
from repositories import roles

CHAIN_STEPS = 10
WARM_UP = 30
IN_FLIGHT = 64
SKELETON_DATABASE = "skeleton"
INPUTS = {"message": "bench"}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many jobs of each kind are run."""

    w1: int = 500
    w2: int = 50
    w4: int = 1000


@dataclass(slots=True)
class Result:
    """Milliseconds, but jobs per second for W4; CPU in milliseconds per W4 job, by process."""

    w1_p50: float = 0.0
    w1_p99: float = 0.0
    w2_step: float = 0.0
    w4_rate: float = 0.0
    w1_cpu: dict[str, float] = field(default_factory=dict)
    w4_cpu: dict[str, float] = field(default_factory=dict)


async def measure(door: Door, pids: dict[str, int], sizes: Sizes, chain: str | None) -> Result:
    """Run the workloads against one door."""
    result = Result()
    await one_at_a_time(WARM_UP, lambda: door.run("echo_test", INPUTS))
    with CpuMeter(pids) as meter:
        seconds = await one_at_a_time(sizes.w1, lambda: door.run("echo_test", INPUTS))
    result.w1_p50, result.w1_p99 = 1000 * percentile(seconds, 0.5), 1000 * percentile(seconds, 0.99)
    result.w1_cpu = {name: 1000 * spent / sizes.w1 for name, spent in meter.spent.items()}
    if chain is not None:
        chains = await one_at_a_time(sizes.w2, lambda: door.run(chain, INPUTS))
        result.w2_step = 1000 * percentile(chains, 0.5) / CHAIN_STEPS
    with CpuMeter(pids) as meter:
        result.w4_rate = sizes.w4 / await all_at_once(sizes.w4, IN_FLIGHT, door, "echo_test", INPUTS)
    result.w4_cpu = {name: 1000 * spent / sizes.w4 for name, spent in meter.spent.items()}
    return result


@asynccontextmanager
async def open_session(headers: dict[str, str]) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a client session that keeps enough connections for the whole load."""
    connector = aiohttp.TCPConnector(limit=2 * IN_FLIGHT)
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(headers=headers, connector=connector, timeout=timeout) as session:
        yield session


async def measure_engine(stack: Stack, sizes: Sizes) -> Result:
    """Measure the engine through its balancer, with the credentials of gateway and operator."""
    keys = stack.credentials.keys
    pids = {name: pid for name in ("postgres", *stack.shape.part_names) if (pid := stack.pid(name)) is not None}
    async with open_session({CALLER_HEADER: keys["operator"], SERVICE_HEADER: keys["gateway"]}) as session:
        return await measure(Door(session, f"{stack.urls.orchestrator}/api/v1", "?wait=30"), pids, sizes, "chain_10")


async def measure_skeleton(stack: Stack, parts: dict[str, Part], port: int, sizes: Sizes) -> Result:
    """Measure the skeleton through its own balancer."""
    pids = {name: part.pid for name, part in parts.items()}
    if (pid := stack.pid("postgres")) is not None:
        pids["postgres"] = pid
    async with open_session({}) as session:
        return await measure(Door(session, f"http://{HOST}:{port}"), pids, sizes, None)


def make_database(stack: Stack) -> str:
    """Return how the skeletons reach a database of their own, with their table, on the same server."""
    with psycopg.connect(stack.cluster.admin_conninfo(), autocommit=True) as conn:
        conn.execute(f"DROP DATABASE IF EXISTS {SKELETON_DATABASE}")
        conn.execute(f"CREATE DATABASE {SKELETON_DATABASE} OWNER {roles.DEPLOY}")
    dsn = make_conninfo(
        host=HOST,
        port=stack.plan.ports["postgres"],
        dbname=SKELETON_DATABASE,
        user=roles.DEPLOY,
        password=stack.credentials.passwords[roles.DEPLOY],
    )
    with psycopg.connect(dsn) as conn:
        conn.execute(TABLE)
    return dsn


@contextmanager
def running_skeletons(stack: Stack) -> Iterator[tuple[dict[str, Part], int]]:
    """Run two skeletons behind a balancer, like the two orchestrators."""
    ports = choose_ports(("balancer", "skeleton-1", "skeleton-2"), {})
    dsn = make_database(stack)
    parts: dict[str, Part] = {}
    for name in ("skeleton-1", "skeleton-2"):
        settings = {"SKELETON_DSN": dsn, "SKELETON_PORT": str(ports[name])}
        parts[name] = _start(stack, name, ["-m", "bench.skeleton"], settings)
    upstreams = [word for name in ("skeleton-1", "skeleton-2") for word in ("--upstream", f"{HOST}:{ports[name]}")]
    listen = ["-m", "cli.stack.balancer", "--listen", f"{HOST}:{ports['balancer']}"]
    parts["balancer"] = _start(stack, "skeleton-balancer", [*listen, *upstreams], {})
    try:
        for name in ("skeleton-1", "skeleton-2", "balancer"):
            url = f"http://{HOST}:{ports[name]}/readyz"
            if not wait_until(lambda url=url: answers(url), 30):  # type: ignore[misc]
                raise RuntimeError(f"{name} did not start; see {stack.home.log(name)}")
        yield parts, ports["balancer"]
    finally:
        end_parts(list(parts.values()), 5)


def _start(stack: Stack, name: str, arguments: list[str], settings: dict[str, str]) -> Part:
    environment = {"PATH": os.environ["PATH"], **settings}
    log, record = stack.home.log(name), stack.home.record(name)
    return Part.start(PartSpec(name, [sys.executable, *arguments], environment, log, record, REPOSITORY))


def print_tables(engine: Result, skeleton: Result) -> None:
    """Print both results side by side with their ratio."""
    console = Console()
    table = Table("measure", "engine", "skeleton", "ratio", title="Engine beside a skeleton", title_justify="left")
    rows = {
        "W1 p50, ms": (engine.w1_p50, skeleton.w1_p50),
        "W1 p99, ms": (engine.w1_p99, skeleton.w1_p99),
        "W2 per step, ms": (engine.w2_step, None),
        "W4, jobs/s": (engine.w4_rate, skeleton.w4_rate),
    }
    for name, (mine, floor) in rows.items():
        ratio = "–" if floor is None else f"{mine / floor:.2f}"
        table.add_row(name, f"{mine:.2f}", "–" if floor is None else f"{floor:.2f}", ratio)
    console.print(table)
    for title, result in (("engine", engine), ("skeleton", skeleton)):
        console.print(_cpu_table(title, result))


def _cpu_table(title: str, result: Result) -> Table:
    table = Table("process", "W1", "W4", title=f"CPU ms per job, {title}", title_justify="left")
    for name in sorted(result.w1_cpu):
        table.add_row(name, f"{result.w1_cpu[name]:.2f}", f"{result.w4_cpu[name]:.2f}")
    table.add_section()
    table.add_row("all", f"{sum(result.w1_cpu.values()):.2f}", f"{sum(result.w4_cpu.values()):.2f}")
    return table


def run(home: Path, sizes: Sizes) -> tuple[Result, Result]:
    """Start a stack of its own, measure both sides, stop everything."""
    stack = Stack(home, ports={}, shape=Shape(overrides={"all": {"LOG_LEVEL": "WARNING"}}))
    stack.start()
    try:
        engine = asyncio.run(measure_engine(stack, sizes))
        with running_skeletons(stack) as (parts, port):
            skeleton = asyncio.run(measure_skeleton(stack, parts, port, sizes))
    finally:
        stack.stop()
    return engine, skeleton


def main() -> None:
    """Run the bench that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, help="Folder of the stack; default: a temporary one.")
    for name in ("w1", "w2", "w4"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Sizes(), name))
    parser.add_argument("--json", type=Path, help="Also write the numbers here.")
    arguments = parser.parse_args()
    sizes = Sizes(arguments.w1, arguments.w2, arguments.w4)
    with tempfile.TemporaryDirectory(prefix="geodag-bench-") as folder:
        Path(folder).chmod(0o755)
        engine, skeleton = run(arguments.home or Path(folder), sizes)
    print_tables(engine, skeleton)
    if arguments.json:
        arguments.json.write_text(json.dumps({"engine": asdict(engine), "skeleton": asdict(skeleton)}, indent=2))


if __name__ == "__main__":
    main()
