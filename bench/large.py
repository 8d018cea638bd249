"""Shows what large fan-outs cost: time, memory of the orchestrators, and whether a result costs the same to the end.

Runs fan-outs of echo tasks on an embedded stack, each beginning with the submit and ending with the job. Of each it
prints tasks a second, how much the larger orchestrator grew, and the CPU of orchestrators and PostgreSQL per task in
each third of the job.

    python -m bench.large [--home FOLDER] [--run CHILDREN:WINDOW ...]
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psutil
import psycopg
from psycopg.conninfo import make_conninfo
from rich.console import Console
from rich.table import Table

from bench.engine import engine_door, stack_pids
from bench.measures import Door, cpu_seconds
from cli.stack.layout import DATABASE, Shape
from cli.stack.stack import Stack

RUNS = ("1000:512", "10000:512", "100000:64")
LOOK_SECONDS = 0.5
MIB = 1 << 20
WORKFLOW = """
workflow_id: fan_{window}
name: Echo in a window of {window}
version: 1
inputs: {{items: {{type: array}}}}
outputs: {{count: "{{{{ nodes.join.output.count }}}}"}}
nodes:
  start: {{type: start, next: many}}
  many:
    type: fan_out
    source: "{{{{ inputs.items }}}}"
    max_concurrency: {window}
    task: {{handler: echo, params: {{item: "{{{{ item }}}}", index: "{{{{ index }}}}"}}, timeout_seconds: 60}}
    next: join
  join: {{type: fan_in, next: end}}
  end: {{type: end}}
"""


@dataclass(frozen=True, slots=True)
class Moment:
    """What was seen at one look."""

    seconds: float
    settled: int
    cpu: float
    memory: int


@dataclass
class Watch:
    """Looks at processes and at the fan-out's row until the job ends."""

    dsn: str
    pids: Sequence[int]
    postgres: int
    moments: list[Moment] = field(default_factory=list)

    def memory(self) -> list[int]:
        """Return the resident bytes of each orchestrator."""
        return [psutil.Process(pid).memory_info().rss for pid in self.pids]

    def look(self, conn: psycopg.Connection, began: float, before: Sequence[int]) -> None:
        """Note a moment; the fan-out is the newest one."""
        row = conn.execute(
            "SELECT succeeded + failed FROM dagapp.dag_fan_outs WHERE created_at >= to_timestamp(%s)"
            " ORDER BY created_at DESC LIMIT 1",
            (began,),
        ).fetchone()
        cpu = sum(cpu_seconds(pid) for pid in (*self.pids, self.postgres))
        grown = max(now - then for now, then in zip(self.memory(), before, strict=True))
        self.moments.append(Moment(time.time() - began, row[0] if row else 0, cpu, grown))

    def costs(self, children: int) -> list[float]:
        """Return milliseconds of CPU per task of each third."""
        edges = [min(self.moments, key=lambda one: abs(one.settled - share * children / 3)) for share in range(4)]
        return [
            1000 * (later.cpu - earlier.cpu) / max(later.settled - earlier.settled, 1)
            for earlier, later in pairwise(edges)
        ]


async def run_one(stack: Stack, door: Door, children: int, window: int) -> list[str]:
    """Run one fan-out and return its row of the table."""
    pids = stack_pids(stack)
    watch = Watch(_dsn(stack), [pids[name] for name in stack.shape.orchestrator_names], pids["postgres"])
    before, began = watch.memory(), time.time()
    with psycopg.connect(watch.dsn, autocommit=True) as conn:
        watch.look(conn, began, before)
        job = asyncio.create_task(door.run(f"fan_{window}", {"items": list(range(children))}))
        while not job.done():
            await asyncio.wait({job}, timeout=LOOK_SECONDS)
            watch.look(conn, began, before)
    seconds, costs = await job, watch.costs(children)
    grown = max(moment.memory for moment in watch.moments)
    return [
        f"{children:,}",
        str(window),
        f"{seconds:.1f}",
        f"{children / seconds:,.0f}",
        f"{grown / MIB:.0f}",
        " ".join(f"{cost:.2f}" for cost in costs),
    ]


def _dsn(stack: Stack) -> str:
    return make_conninfo(stack.cluster.admin_conninfo(), dbname=DATABASE)


async def run_all(stack: Stack, runs: Sequence[tuple[int, int]]) -> list[list[str]]:
    """Warm up, then run each."""
    async with engine_door(stack) as door:
        for _, window in runs:
            await door.run(f"fan_{window}", {"items": list(range(500))})
        return [await run_one(stack, door, children, window) for children, window in runs]


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, help="Folder of the stack; default: a temporary one.")
    parser.add_argument("--run", action="append", metavar="CHILDREN:WINDOW", help=f"Default: {' '.join(RUNS)}")
    arguments = parser.parse_args()
    runs = [(int(children), int(window)) for children, _, window in (r.partition(":") for r in arguments.run or RUNS)]
    with tempfile.TemporaryDirectory(prefix="geodag-bench-") as folder:
        Path(folder).chmod(0o755)
        workflows = Path(folder, "workflows")
        workflows.mkdir()
        for window in {window for _, window in runs}:
            (workflows / f"fan_{window}.yaml").write_text(WORKFLOW.format(window=window))
        overrides = {"all": {"LOG_LEVEL": "WARNING"}, "orchestrator": {"WORKFLOWS_DIR": str(workflows)}}
        stack = Stack(arguments.home or Path(folder, "home"), ports={}, shape=Shape(overrides=overrides))
        stack.start()
        try:
            rows = asyncio.run(run_all(stack, runs))
        finally:
            stack.stop()
    table = Table("tasks", "window", "seconds", "tasks/s", "growth, MiB", "CPU, ms a task by thirds")
    for row in rows:
        table.add_row(*row)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
