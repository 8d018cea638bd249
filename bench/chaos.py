"""Hurts a real stack under mixed load for minutes, then says what was lost and what was done twice.

    python -m bench.chaos --minutes 30 [--rate 4] [--seed 1] [--json FILE]

Random SIGKILL and SIGSTOP of orchestrators and workers, SIGKILL of PostgreSQL, messages deleted from and doubled in the
queue. A witness outside the platform (`WORKER_JOURNAL_FILE`) counts how often each attempt's handler was started.
Exit status 1 when a job was lost, did not end, or was done twice.
"""

import argparse
import http.client
import json
import random
import signal
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from bench.measures import percentile
from cli.stack.cluster import LOCAL_CONFIG
from cli.stack.layout import DATABASE, Shape
from cli.stack.stack import Stack
from core.identity import CALLER_HEADER, SERVICE_HEADER

Json = dict[str, Any]
LEASE_SECONDS = 6.0
THRESHOLD_SECONDS = 7.0
SUBMITTERS = 6
CALL_SECONDS = 5.0
QUIET_SECONDS = 330.0
"""No message is deleted in the last minutes: one that is lost is sent again after 300 s."""
END_SECONDS = 900.0
SETTINGS = {
    "orchestrator": {
        "LEASE_SECONDS": str(LEASE_SECONDS),
        "ORCHESTRATOR_HEARTBEAT_SECONDS": "1",
        "ORCHESTRATOR_THRESHOLD_SECONDS": str(THRESHOLD_SECONDS),
        "LOG_LEVEL": "WARNING",
    },
    "worker": {"WORKER_HEARTBEAT_SECONDS": "1.5", "LOG_LEVEL": "WARNING"},
}
ACTIONS = {
    "kill orchestrator": 3,
    "kill worker": 4,
    "stop orchestrator": 3,
    "stop worker": 3,
    "kill postgres": 1,
    "delete": 2,
    "double": 3,
}
"""With weights."""
DELETE = """
DELETE FROM dagqueue.messages WHERE message_id IN (
    SELECT message_id FROM dagqueue.messages WHERE locked_until IS NULL ORDER BY random() LIMIT 3)
"""
DOUBLE = """
INSERT INTO dagqueue.messages (message_id, queue, priority, task_id, body)
SELECT message_id || '.again', queue, priority, task_id, body FROM dagqueue.messages ORDER BY random() LIMIT 10
ON CONFLICT DO NOTHING
"""
UNFINISHED = "SELECT count(*) AS n FROM dagapp.dag_jobs WHERE status IN ('PENDING', 'RUNNING')"


@dataclass
class Figures:
    """What was done to the platform, and what came of it."""

    minutes: float = 0.0
    accepted: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    hurt: Counter[str] = field(default_factory=Counter)
    takeover_seconds: list[float] = field(default_factory=list)
    attempts: int = 0
    attempts_lost: int = 0
    results_superseded: int = 0
    sent_again: int = 0
    problems: list[str] = field(default_factory=list)


def kind_of_job(number: int) -> tuple[str, Json]:
    """Return workflow and inputs of one of the mixed jobs."""
    return (
        ("echo_test", {"message": f"m{number}"}),
        ("retry_test", {"failure_rate": 0.2, "message": f"m{number}"}),
        ("sleep_test", {"seconds": 1.0 + number % 4}),
        ("echo_test", {"message": f"m{number}"}),
        ("chain_10", {"message": f"m{number}"}),
        ("sub_workflow_test", {"message": f"m{number}"}),
        ("multi_phase", {"phases": 3, "seconds_per_phase": 0.5}),
    )[number % 7]


class Chaos:
    """One stack, its load and what hurts it."""

    def __init__(self, stack: Stack, journal: Path, seed: int, rate: float) -> None:
        self.figures = Figures()
        self._stack = stack
        self._journal = journal
        self._chance = random.Random(seed)
        self._rate = rate
        self._over = threading.Event()
        self._answered: list[str] = []
        self._stopped: set[str] = set()

    def run(self, minutes: float) -> Figures:
        """Load and hurt, let everything come to its end, and judge."""
        began, until = time.monotonic(), time.monotonic() + 60 * minutes
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            loads = [pool.submit(self._load, first) for first in range(SUBMITTERS)]
            try:
                while time.monotonic() < until:
                    self._hurt(until)
            finally:
                self._over.set()
                self._resume_all()
            for load in loads:
                load.result()
        self._wait("every job ended", lambda: self._value(UNFINISHED) == 0, END_SECONDS)
        self.figures.minutes = round((time.monotonic() - began) / 60, 1)
        self._judge()
        return self.figures

    def _load(self, number: int) -> None:
        while not self._over.wait(SUBMITTERS / self._rate):
            self._submit(number)
            number += SUBMITTERS

    def _submit(self, number: int) -> None:
        """Create one job; a submit without an answer is sent again, as a client would."""
        workflow_id, inputs = kind_of_job(number)
        keys = self._stack.credentials.keys
        request = urllib.request.Request(
            f"{self._stack.urls.orchestrator}/api/v1/jobs",
            json.dumps({"workflow_id": workflow_id, "inputs": inputs}).encode(),
            {"Content-Type": "application/json", CALLER_HEADER: keys["operator"], SERVICE_HEADER: keys["gateway"]},
        )
        while True:
            try:
                with urllib.request.urlopen(request, timeout=CALL_SECONDS) as answer:
                    self._answered.append(json.load(answer)["job_id"])
                    return
            except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError):
                time.sleep(0.3)

    def _hurt(self, until: float) -> None:
        """Do one thing and wait a little."""
        orchestrators, workers = list(self._stack.shape.orchestrator_names), list(self._stack.shape.worker_names)
        chance = self._chance
        action = chance.choices(
            [
                "kill orchestrator",
                "kill worker",
                "stop orchestrator",
                "stop worker",
                "kill postgres",
                "delete",
                "double",
            ],
            [3, 4, 3, 3, 1, 2, 3],
        )[0]
        try:
            match action.split():
                case ["kill", "orchestrator"]:
                    self._silence(chance.choice(orchestrators), signal.SIGKILL)
                case ["kill", "worker"]:
                    self._send(chance.choice(workers), signal.SIGKILL)
                case ["stop", "orchestrator"]:
                    self._silence(chance.choice(orchestrators), signal.SIGSTOP)
                case ["stop", "worker"]:
                    self._stop_for(chance.choice(workers), chance.uniform(1, 2.5 * LEASE_SECONDS))
                case ["kill", "postgres"]:
                    self._stack.kill("postgres")
                case ["delete"] if until - time.monotonic() > QUIET_SECONDS:
                    self.figures.hurt["messages deleted"] += self._execute(DELETE)
                case ["double"]:
                    self.figures.hurt["messages doubled"] += self._execute(DOUBLE)
            self.figures.hurt[action] += 1
        except (psycopg.OperationalError, ProcessLookupError):
            self.figures.hurt["not possible then"] += 1
        time.sleep(chance.uniform(1, 10))

    def _send(self, part: str, number: signal.Signals) -> None:
        self._stopped.discard(part)
        self._stack.kill(part, number)

    def _silence(self, part: str, number: signal.Signals) -> None:
        """Kill or stop an orchestrator and measure how long its jobs stay its own; a stopped one goes on later."""
        rows = self._rows(
            "SELECT owner_id FROM dagapp.dag_orchestrators WHERE pid = %s ORDER BY started_at DESC LIMIT 1",
            self._stack.pid(part),
        )
        owner = rows[0]["owner_id"] if rows else None
        jobs = f"{UNFINISHED} AND owner_id = %s"
        busy = owner is not None and self._value(jobs, owner) > 0
        self._stack.kill(part, number)
        began = time.monotonic()
        try:
            if busy and self._wait("takeover", lambda: self._value(jobs, owner) == 0, 60, every=0.1):
                self.figures.takeover_seconds.append(round(time.monotonic() - began, 1))
        finally:
            if number == signal.SIGSTOP:
                self._stack.kill(part, signal.SIGCONT)

    def _stop_for(self, part: str, seconds: float) -> None:
        self._stack.kill(part, signal.SIGSTOP)
        self._stopped.add(part)
        time.sleep(seconds)
        self._resume_all()

    def _resume_all(self) -> None:
        for part in sorted(self._stopped):
            self._stack.kill(part, signal.SIGCONT)
        self._stopped.clear()

    def _judge(self) -> None:
        """Compare what was accepted, what the tables and the log say, and what the witness saw."""
        figures = self.figures
        figures.accepted = len(set(self._answered))
        jobs = self._rows("SELECT job_id, workflow_id, status FROM dagapp.dag_jobs")
        figures.ended.update(row["status"] for row in jobs)
        lost = set(self._answered) - {row["job_id"] for row in jobs}
        self._note(lost, "accepted jobs are not there")
        self._note([row for row in jobs if row["status"] in {"PENDING", "RUNNING"}], "jobs did not end")
        lines = [line.split(" ", 1) for line in self._journal.read_text().splitlines()]
        started = Counter(task for task, what in lines if what == "started")
        finished = {task for task, what in lines if what == "finished"}
        self._note([task for task, times in started.items() if times > 1], "attempts were started twice")
        completed = Counter(
            (row["job_id"], row["node_id"], row["task_id"])
            for row in self._rows(
                "SELECT e.job_id, e.node_id, e.task_id FROM dagapp.dag_job_events AS e"
                " JOIN dagapp.dag_attempts AS a ON a.task_id = e.task_id AND a.worker_id IS NOT NULL"
                " WHERE e.event_type = 'node_completed'"
            )
        )
        nodes = Counter(key[:2] for key in completed.elements())
        self._note([key for key, times in nodes.items() if times > 1], "nodes completed twice")
        self._note({key[2] for key in completed} - finished, "attempts completed without having run to their end")
        live = "SELECT task_id FROM dagapp.dag_attempts WHERE state IN ('queued', 'parked', 'leased')"
        self._note([row["task_id"] for row in self._rows(live)], "attempts are left over")
        counts = "SELECT count(*) AS n FROM dagapp.dag_attempts"
        figures.attempts = self._value(counts)
        figures.attempts_lost = self._value(f"{counts} WHERE state = 'expired'")
        figures.sent_again = self._value("SELECT coalesce(sum(dispatch_no - 1), 0)::int AS n FROM dagapp.dag_attempts")
        superseded = "SELECT count(*) AS n FROM dagapp.dag_task_results WHERE disposition = 'superseded'"
        figures.results_superseded = self._value(superseded)

    def _note(self, found: Any, what: str) -> None:
        if found:
            self.figures.problems.append(f"{len(found)} {what}: {sorted(map(str, found))[:5]}")

    def _wait(self, what: str, condition: Callable[[], bool], seconds: float, every: float = 0.5) -> bool:
        """Wait for a condition, also while the database is away; what does not come is a problem."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if condition():
                    return True
            except psycopg.OperationalError:
                time.sleep(0.2)
            time.sleep(every)
        self.figures.problems.append(f"not within {seconds:g} s: {what}")
        return False

    def _rows(self, query: str, *values: object) -> list[Json]:
        dsn = self._stack.cluster.admin_conninfo(DATABASE)
        with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as conn:
            return conn.execute(query.encode(), values).fetchall()

    def _value(self, query: str, *values: object) -> int:
        return int(self._rows(query, *values)[0]["n"])

    def _execute(self, statement: str) -> int:
        with psycopg.connect(self._stack.cluster.admin_conninfo(DATABASE), autocommit=True) as conn:
            return conn.execute(statement.encode()).rowcount


def main() -> int:
    """Run the chaos that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=4.0, help="Jobs per second.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="Also write the figures here.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="geodag-chaos-") as folder:
        Path(folder).chmod(0o755)
        journal = Path(folder) / "journal.txt"
        overrides = {**SETTINGS, "worker": {**SETTINGS["worker"], "WORKER_JOURNAL_FILE": str(journal)}}
        shape = Shape(light=2, heavy=1, overrides=overrides)
        config = {**LOCAL_CONFIG, "fsync": "off", "full_page_writes": "off"}
        stack = Stack(Path(folder) / "stack", ports={}, shape=shape, database_config=config)
        stack.start()
        try:
            figures = Chaos(stack, journal, arguments.seed, arguments.rate).run(arguments.minutes)
        finally:
            stack.stop()
    _print(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(vars(figures), indent=2))
    return 1 if figures.problems else 0


def _print(figures: Figures) -> None:
    for name, value in vars(figures).items():
        if name != "takeover_seconds":
            print(f"{name}: {dict(value) if isinstance(value, dict) else value}")
    times = figures.takeover_seconds
    if times:
        middle, worst = percentile(times, 0.5), max(times)
        print(f"takeovers: {len(times)}, seconds p50 {middle:.1f}, worst {worst:.1f}")


if __name__ == "__main__":
    sys.exit(main())
