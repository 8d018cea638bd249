"""Measures the engine of the embedded stack beside skeletons without one and two durable queues, in one run.

W1: start → echo → end, one at a time, from HTTP submit to completed. W2: a chain of ten, time per step. W3: a fan-out
of echo tasks, window 512, then fan_in: tasks a second. W4: many W1 jobs at once, by single and by batch submits. W1 and
W4 once more right after the large fan-out. The skeleton has jobs of tasks and a worker that claims and reports them
(`bench.tasks`), the floor only stores and answers (`bench.skeleton`); both stand behind the same kind of balancer and,
like the durable queues, use the same database server. A queue has no workflows: its W4 are tasks by single and batch
submits that keep nothing; its W3 stores and gathers results as its user would (`bench.peers`), and is told without.

    python -m bench.engine [--home FOLDER] [--queue servicebus] [--w1 N] [--w2 N] [--w4 N] [--only engine] [--json FILE]
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import aiohttp

from bench.measures import CpuMeter, Door, all_at_once, in_batches, one_at_a_time, percentile
from bench.peers import PEERS, measuring
from bench.report import AFTER, print_table
from bench.sides import SKELETONS, Skeleton, running_peer, running_skeletons
from cli.stack.layout import QueueKind, Shape
from cli.stack.ports import HOST
from cli.stack.stack import Stack
from core.identity import CALLER_HEADER, SERVICE_HEADER

CHAIN_STEPS = 10
WARM_UP = 30
IN_FLIGHT = 64
SETTLE_SECONDS = 8.0
IDLE_SECONDS = 10.0
FAN_OUTS = (1000, 10_000)
INPUTS = {"message": "bench"}
Measures = dict[str, float]
"""By name of the measure; CPU is in milliseconds of all processes together."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many jobs of each kind are run."""

    w1: int = 300
    w2: int = 20
    w4: int = 1000


@dataclass(slots=True)
class Bench:
    """Measures one side through its door."""

    door: Door
    pids: dict[str, int]
    sizes: Sizes
    found: Measures = field(default_factory=dict)
    by_process: dict[str, dict[str, float]] = field(default_factory=dict)

    @contextmanager
    def cpu(self, name: str, count: int) -> Iterator[None]:
        """Note the CPU per unit that the block costs."""
        with CpuMeter(self.pids) as meter:
            yield
        self.by_process[name] = {part: 1000 * spent / count for part, spent in meter.spent.items()}
        self.found[f"CPU, ms per {name}"] = 1000 * sum(meter.spent.values()) / count

    async def idle(self) -> None:
        """Do nothing for a while."""
        await asyncio.sleep(SETTLE_SECONDS)
        with CpuMeter(self.pids) as meter:
            await asyncio.sleep(IDLE_SECONDS)
        self.found["idle, % of a core"] = 100 * sum(meter.spent.values()) / IDLE_SECONDS
        self.by_process["idle s"] = {part: 100 * spent / IDLE_SECONDS for part, spent in meter.spent.items()}

    async def warm_up(self) -> None:
        """Let caches, pools and prepared statements fill."""
        await one_at_a_time(WARM_UP, lambda: self.door.run("echo_test", INPUTS))

    async def w1(self, when: str = "") -> None:
        """One job at a time."""
        with self.cpu(f"W1 job{when}", self.sizes.w1):
            seconds = await one_at_a_time(self.sizes.w1, lambda: self.door.run("echo_test", INPUTS))
        self.found[f"W1 p50{when}, ms"] = 1000 * percentile(seconds, 0.5)
        self.found[f"W1 p99{when}, ms"] = 1000 * percentile(seconds, 0.99)

    async def w2(self) -> None:
        """A chain at a time."""
        with self.cpu("W2 step", self.sizes.w2 * CHAIN_STEPS):
            chains = await one_at_a_time(self.sizes.w2, lambda: self.door.run("chain_10", INPUTS))
        self.found["W2, ms a step"] = 1000 * percentile(chains, 0.5) / CHAIN_STEPS

    async def w3(self) -> None:
        """Fan-outs, a small one first to warm up."""
        await self.door.run("fan_out_test", {"items": list(range(100))})
        for count in FAN_OUTS:
            with self.cpu(f"W3 task of {count:,}", count):
                seconds = await self.door.run("fan_out_test", {"items": list(range(count))})
            self.found[f"W3 of {count:,}, tasks/s"] = count / seconds

    async def w4(self, when: str = "") -> None:
        """Many jobs at once, submitted one by one."""
        with self.cpu(f"W4 job{when}", self.sizes.w4):
            seconds = await all_at_once(self.sizes.w4, IN_FLIGHT, self.door, "echo_test", INPUTS)
        self.found[f"W4 single{when}, jobs/s"] = self.sizes.w4 / seconds

    async def w4_batch(self) -> None:
        """Many jobs by few calls."""
        with self.cpu("W4 batch job", self.sizes.w4):
            seconds = await in_batches(self.sizes.w4, self.door, "echo_test", INPUTS)
        self.found["W4 batch, jobs/s"] = self.sizes.w4 / seconds


@asynccontextmanager
async def open_session(headers: dict[str, str]) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a client session that keeps enough connections for the whole load."""
    connector = aiohttp.TCPConnector(limit=2 * IN_FLIGHT)
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(headers=headers, connector=connector, timeout=timeout) as session:
        yield session


def stack_pids(stack: Stack) -> dict[str, int]:
    """Return the processes of a stack by name, the database too."""
    return {name: pid for name in ("postgres", *stack.shape.part_names) if (pid := stack.pid(name)) is not None}


@asynccontextmanager
async def engine_door(stack: Stack) -> AsyncIterator[Door]:
    """Yield the way through the balancer, with the credentials of gateway and operator."""
    keys = stack.credentials.keys
    async with open_session({CALLER_HEADER: keys["operator"], SERVICE_HEADER: keys["gateway"]}) as session:
        yield Door(session, f"{stack.urls.orchestrator}/api/v1", "?wait=30")


async def measure_engine(stack: Stack, sizes: Sizes) -> Bench:
    """Run everything on the engine."""
    async with engine_door(stack) as door:
        bench = Bench(door, stack_pids(stack), sizes)
        await bench.idle()
        await bench.warm_up()
        for step in (bench.w1, bench.w2, bench.w4, bench.w4_batch, bench.w3):
            await step()
        await bench.w1(AFTER)
        await bench.w4(AFTER)
    return bench


async def measure_skeleton(kind: Skeleton, pids: dict[str, int], port: int, sizes: Sizes) -> Bench:
    """Run what a skeleton can."""
    async with open_session({}) as session:
        bench = Bench(Door(session, f"http://{HOST}:{port}", kind.query), pids, sizes)
        await bench.warm_up()
        await bench.w1()
        await bench.w4()
        if kind.has_worker:
            await bench.w3()
    return bench


async def measure_peer(name: str, dsn: str, sizes: Sizes) -> Measures:
    """Run what a queue can."""
    async with measuring(PEERS[name], dsn) as rates:
        found = {"W4 single, jobs/s": await rates.single(sizes.w4), "W4 batch, jobs/s": await rates.batch(sizes.w4)}
        for count in FAN_OUTS:
            found[f"W3 of {count:,}, tasks/s"] = await rates.fan_out(count)
            found[f"{count:,} tasks without results, /s"] = await rates.batch(count)
    return found


def run(
    home: Path, sizes: Sizes, wanted: Callable[[str], bool], queue: QueueKind = QueueKind.POSTGRES
) -> tuple[dict[str, Measures], Bench]:
    """Start a stack of its own, measure every side, stop everything."""
    stack = Stack(home, ports={}, shape=Shape(queue=queue, overrides={"all": {"LOG_LEVEL": "WARNING"}}))
    stack.start()
    sides: dict[str, Measures] = {}
    try:
        engine = asyncio.run(measure_engine(stack, sizes))
        sides["engine"] = engine.found
        for name in filter(wanted, SKELETONS):
            with running_skeletons(stack, SKELETONS[name]) as (pids, port):
                pids["postgres"] = stack_pids(stack)["postgres"]
                sides[name] = asyncio.run(measure_skeleton(SKELETONS[name], pids, port, sizes)).found
        for name in filter(wanted, PEERS):
            with running_peer(stack, name) as dsn:
                sides[name] = asyncio.run(measure_peer(name, dsn, sizes))
    finally:
        stack.stop()
    return sides, engine


def main() -> None:
    """Run the bench that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, help="Folder of the stack; default: a temporary one.")
    for name in ("w1", "w2", "w4"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Sizes(), name))
    parser.add_argument("--queue", type=QueueKind, choices=QueueKind, default=QueueKind.POSTGRES)
    parser.add_argument("--only", action="append", help="A side to measure beside the engine; default: all.")
    parser.add_argument("--json", type=Path, help="Also write the numbers here, CPU by process too.")
    arguments = parser.parse_args()
    sizes = Sizes(arguments.w1, arguments.w2, arguments.w4)
    with tempfile.TemporaryDirectory(prefix="geodag-bench-") as folder:
        Path(folder).chmod(0o755)
        sides, engine = run(
            arguments.home or Path(folder),
            sizes,
            lambda side: arguments.only is None or side in arguments.only,
            arguments.queue,
        )
    print_table(sides)
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"sizes": asdict(sizes), "sides": sides, "cpu": engine.by_process}, indent=2)
        )


if __name__ == "__main__":
    main()
