"""Everything that a history left: tables, recorded moves, what workers did, and what the event log tells of it."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.simulation.database import SimulatedDatabase
from bench.simulation.worker import Disk
from bench.simulation.workload import Workload
from core.statuses import JOB_FINAL, JobStatus, NodeStatus

Json = dict[str, Any]
TABLES = {
    "jobs": "SELECT * FROM dagapp.dag_jobs ORDER BY job_id",
    "nodes": "SELECT * FROM dagapp.dag_node_states ORDER BY job_id, node_id",
    "attempts": "SELECT * FROM dagapp.dag_attempts ORDER BY task_id",
    "results": "SELECT * FROM dagapp.dag_task_results ORDER BY task_id",
    "events": "SELECT *, xmin::text AS xact FROM dagapp.dag_job_events ORDER BY event_id",
    "slots": "SELECT * FROM dagapp.dag_slots",
    "orders": "SELECT * FROM dagapp.dag_commands WHERE processed_at IS NULL ORDER BY command_id",
    "fan_outs": "SELECT * FROM dagapp.dag_fan_outs ORDER BY job_id, node_id",
    "overruns": "SELECT * FROM sim.overruns",
    "moves": "SELECT *, xmin::text AS xact FROM sim.moves ORDER BY move_id",
    "ends": "SELECT * FROM sim.ends ORDER BY job_id, run_no",
    "effects": "SELECT * FROM sim.effects ORDER BY run_id",
}
"""`xact` is the transaction that wrote a row."""
ORDERS = frozenset({"job_retried", "job_rerun"})
"""Events of orders that begin another run."""
RESET = "node_reset"
ANEW = "anew"
"""Stands between the statuses of two lives: of a job that had ended, of a node, of a child that was made again."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the checks look at."""

    tables: Mapping[str, Sequence[Json]]
    disks: Sequence[Disk]
    workload: Workload

    @classmethod
    async def read(cls, database: SimulatedDatabase, disks: Sequence[Disk], workload: Workload) -> "Evidence":
        """Read what the database holds."""
        tables = {name: await database.rows(query) for name, query in TABLES.items()}
        return cls(tables, disks, workload)


def coverage(evidence: Evidence) -> Counter[str]:
    """Return how often the history came to the places where engines of this kind go wrong."""
    tables = evidence.tables
    found = Counter(f"result {row['disposition']}" for row in tables["results"])
    found.update(f"attempt {row['state']}" for row in tables["attempts"])
    found.update(f"claim {outcome}" for disk in evidence.disks for outcome in disk.refused)
    found["attempt sent again"] = sum(row["dispatch_no"] - 1 for row in tables["attempts"])
    found["job taken over"] = sum(row["owner_epoch"] - 1 for row in tables["jobs"])
    found["effect"] = len(tables["effects"])
    found.update(f"node {row['status']}" for row in tables["nodes"])
    found.update(f"fan-out of {min(row['item_count'], 2)}" for row in tables["fan_outs"])
    found["child"] = sum(row["parent_node_id"] is not None for row in tables["nodes"])
    found["slot waited for"] = sum(row["event_type"].endswith("slot_requested") for row in tables["events"])
    return found + _begun_anew(evidence)


def _begun_anew(evidence: Evidence) -> Counter[str]:
    moves = evidence.tables["moves"]
    ended = [move for move in moves if move["entity"] == "job" and move["source"] in JOB_FINAL]
    runs = sum(row["run_no"] - 1 for row in evidence.tables["jobs"])
    return Counter(
        {
            "job run again": runs,
            "job run again that had ended": len(ended),
            "node begun anew": sum(row["event_type"] == RESET for row in evidence.tables["events"]),
            "child made anew": sum(move["target"] is None for move in moves),
            "attempt of an earlier run taken back": sum(
                row["reason"] == "the node starts anew" for row in evidence.tables["attempts"]
            ),
        }
    )


def logged(evidence: Evidence) -> dict[tuple[str, str], list[str]]:
    """Return the statuses that the log gives jobs and nodes, in order."""
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    children: defaultdict[str, set[str]] = defaultdict(set)
    for node in evidence.tables["nodes"]:
        if node["parent_node_id"] is None:
            found["node", f"{node['job_id']}/{node['node_id']}"].append("PENDING")
    for event in evidence.tables["events"]:
        status, key = event["event_status"], f"{event['job_id']}/{event['node_id']}"
        if event["node_id"] is None and status in frozenset(JobStatus):
            statuses = found["job", event["job_id"]]
            if event["event_type"] in ORDERS and statuses[-1:] and statuses[-1] in JOB_FINAL:
                statuses.append(ANEW)
            statuses.append(status)
        elif status not in frozenset(NodeStatus):
            continue
        elif "children" in event["event_data"]:
            for first, last in event["event_data"]["children"]:
                for number in range(first, last + 1):
                    children[key].add(f"{key}__{number}")
                    found["node", f"{key}__{number}"].append(status)
        else:
            if event["event_type"] == RESET:
                for anew in (key, *children[key]):
                    found["node", anew].append(ANEW)
            found["node", key].append(status)
    return dict(found)


def moved(evidence: Evidence) -> dict[tuple[str, str], list[str]]:
    """Return the statuses that the rows of jobs and nodes had, in order."""
    resets = resets_of(evidence)
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for move in evidence.tables["moves"]:
        kind, key, source, target = move["entity"], move["key"], move["source"], move["target"]
        if kind == "attempt":
            continue
        again = source in JOB_FINAL if kind == "job" else source is not None and (key, move["xact"]) in resets
        if again or target is None:
            found[kind, key].append(ANEW)
        if target is not None:
            found[kind, key].append(target)
    return dict(found)


def resets_of(evidence: Evidence) -> frozenset[tuple[str, str]]:
    """Return which nodes (`job_id/node_id`) were reset in which transactions."""
    events = evidence.tables["events"]
    return frozenset(
        (f"{event['job_id']}/{event['node_id']}", event["xact"]) for event in events if event["event_type"] == RESET
    )
