"""What the simulation says of jobs that were run again breaks when what a history left is changed a little."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from bench.simulation import runs
from bench.simulation.database import SimulatedDatabase
from bench.simulation.evidence import ORDERS, RESET, Evidence
from bench.simulation.faults import HARSH
from bench.simulation.history import Size, run_history
from bench.simulation.workload import Workload
from core.statuses import ATTEMPT_FINAL, JOB_FINAL
from repositories import roles
from tests.support.databases import Database

SEEDS = (14, *range(30))
"""The first one has what the changes need; others are tried when the engine takes other steps than it did."""
SIZE = Size((4, 6), (60.0, 100.0), anew=0.6)
Rows = list[dict[str, Any]]


@pytest.fixture
async def evidence(database: Database) -> AsyncIterator[Evidence]:
    """Return what a history left in which ended jobs and fan-outs were run again."""
    dsns = {role: database.conninfo(role) for role in (roles.ORCHESTRATOR, roles.WORKER)}
    async with SimulatedDatabase.connected(database.admin, dsns) as connected:
        for seed in SEEDS:
            assert (await run_history(seed, connected, profile=HARSH, size=SIZE)).violations == []
            found = await Evidence.read(connected, (), Workload.draw(Random(seed * 2 + 1)))
            if _has_everything(found):
                yield found
                return
    pytest.fail(f"no history of {len(SEEDS)} has all that is changed")


def _has_everything(evidence: Evidence) -> bool:
    try:
        for _, table, change in CHANGES:
            change(list(evidence.tables[table]))
    except StopIteration:
        return False
    return True


def _without(rows: Rows, found: Callable[[dict[str, Any]], bool]) -> Rows:
    """Return the rows but the first one that is meant."""
    gone = next(row for row in rows if found(row))
    return [row for row in rows if row is not gone]


def _with(rows: Rows, found: Callable[[dict[str, Any]], bool], **fields: Any) -> Rows:
    """Return the rows with other fields in the first one that is meant."""
    changed = next(row for row in rows if found(row))
    return [{**row, **fields} if row is changed else row for row in rows]


def _is_order(row: dict[str, Any]) -> bool:
    return bool(row["event_type"] in ORDERS)


def _is_reset(row: dict[str, Any]) -> bool:
    return bool(row["event_type"] == RESET)


def _is_gone_child(row: dict[str, Any]) -> bool:
    return row["target"] is None


def _is_ended_job_again(row: dict[str, Any]) -> bool:
    return bool(row["entity"] == "job" and row["source"] in JOB_FINAL)


def _without_an_end_of_attempt(rows: Rows) -> Rows:
    """Return moves in which an attempt of a node stays as it is while another one begins."""
    begun = {row["key"]: row["move_id"] for row in rows if row["entity"] == "attempt" and row["source"] is None}

    def is_followed(row: dict[str, Any]) -> bool:
        node, _, number = row["key"].rpartition("_")
        is_end = row["entity"] == "attempt" and row["target"] in ATTEMPT_FINAL
        return is_end and f"{node}_{int(number) + 1}" in begun

    return _without(rows, is_followed)


def _without_an_attempt(rows: Rows) -> Rows:
    """Return attempts of which one lacks that another one of its node followed."""
    numbers = {(row["job_id"], row["node_id"], row["attempt"]) for row in rows if "__" not in row["node_id"]}
    return _without(rows, lambda row: (row["job_id"], row["node_id"], row["attempt"] + 1) in numbers)


def _with_later_children(rows: Rows) -> Rows:
    return [{**row, "first_attempt": row["first_attempt"] + 9} for row in rows]


def _is_failed(row: dict[str, Any]) -> bool:
    return bool(row["status"] == "FAILED")


def _is_skipped(row: dict[str, Any]) -> bool:
    return bool(row["status"] == "SKIPPED")


def _is_completed(row: dict[str, Any]) -> bool:
    return bool(row["status"] == "COMPLETED")


CHANGES: list[tuple[Callable[[Evidence], Any], str, Callable[[Rows], Rows]]] = [
    (runs.each_run_ended_once, "ends", lambda rows: rows[1:]),
    (runs.each_run_ended_once, "ends", lambda rows: [*rows, {**rows[-1], "run_no": rows[-1]["run_no"] + 1}]),
    (runs.each_run_ended_once, "events", lambda rows: _without(rows, _is_order)),
    (runs.only_orders_leave_an_end, "events", lambda rows: _without(rows, _is_order)),
    (runs.only_orders_leave_an_end, "events", lambda rows: [row for row in rows if not _is_reset(row)]),
    (runs.only_orders_leave_an_end, "moves", lambda rows: _with(rows, _is_gone_child, xact="0")),
    (runs.only_orders_leave_an_end, "moves", lambda rows: _with(rows, _is_ended_job_again, run_no=1)),
    (runs.orders_start_anew_what_they_mean, "events", lambda rows: _without(rows, _is_order)),
    (runs.orders_start_anew_what_they_mean, "events", lambda rows: _without(rows, _is_reset)),
    (runs.orders_start_anew_what_they_mean, "events", lambda rows: _with(rows, _is_reset, xact="0")),
    (runs.one_attempt_at_a_time, "moves", _without_an_end_of_attempt),
    (runs.attempts_are_numbered_through_all_runs, "attempts", _without_an_attempt),
    (runs.attempts_are_numbered_through_all_runs, "fan_outs", _with_later_children),
    (runs.nodes_keep_nothing_of_earlier_runs, "nodes", lambda rows: _with(rows, _is_skipped, output={})),
    (runs.nodes_keep_nothing_of_earlier_runs, "nodes", lambda rows: _with(rows, _is_skipped, status="COMPLETED")),
    (runs.jobs_ended_as_their_nodes, "jobs", lambda rows: _with(rows, _is_failed, status="COMPLETED")),
    (runs.jobs_ended_as_their_nodes, "jobs", lambda rows: _with(rows, _is_completed, status="CANCELLED")),
]
"""Each law, what is changed that it looks at, and how."""


async def test_each_law_of_reruns_finds_what_breaks_it(evidence: Evidence) -> None:
    for number, (law, table, change) in enumerate(CHANGES):
        changed = replace(evidence, tables={**evidence.tables, table: change(list(evidence.tables[table]))})
        assert list(law(evidence)) == []
        assert list(law(changed)), f"{law.__name__} finds nothing in change {number} of {table}"
