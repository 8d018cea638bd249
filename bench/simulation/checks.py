"""What must hold after every history, checked against tables, event log, recorded moves and what workers did."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

from bench.simulation.evidence import ANEW, RESET, Evidence, Json, logged, moved
from bench.simulation.model import predict, sources_of
from bench.simulation.runs import (
    attempts_are_numbered_through_all_runs,
    each_run_ended_once,
    jobs_ended_as_their_nodes,
    nodes_keep_nothing_of_earlier_runs,
    one_attempt_at_a_time,
    only_orders_leave_an_end,
    orders_start_anew_what_they_mean,
)
from core.statuses import (
    ATTEMPT_FINAL,
    ATTEMPT_TRANSITIONS,
    JOB_FINAL,
    JOB_TRANSITIONS,
    NODE_FINAL,
    NODE_TRANSITIONS,
    AttemptState,
    JobStatus,
    NodeStatus,
)
from core.wire import ResultDisposition

Check = Callable[[Evidence], Iterator[str]]


def violations(evidence: Evidence) -> list[str]:
    """Return every broken invariant."""
    return [f"{check.__name__}: {found}" for check in CHECKS for found in check(evidence)]


def every_job_ended(evidence: Evidence) -> Iterator[str]:
    """Each job is final, and so is each of its nodes."""
    for job in evidence.tables["jobs"]:
        if job["status"] not in JOB_FINAL:
            yield f"job {job['job_id']} is {job['status']}"
    for node in evidence.tables["nodes"]:
        if node["status"] not in NODE_FINAL:
            yield f"node {node['job_id']}/{node['node_id']} is {node['status']}"


def nothing_ran_twice(evidence: Evidence) -> Iterator[str]:
    """No attempt was started twice, and no side effect of one was made twice or after its lease had ended."""
    started = Counter(task for disk in evidence.disks for task in disk.started)
    yield from (f"{task} was started {times} times" for task, times in started.items() if times > 1)
    effects = Counter((row["task_id"], row["item"]) for row in evidence.tables["effects"])
    yield from (f"the effect of {task} was made {times} times" for task, times in effects.items() if times > 1)
    ended = {
        move["key"]: move["move_id"]
        for move in evidence.tables["moves"]
        if move["entity"] == "attempt" and move["target"] in ATTEMPT_FINAL
    }
    for effect in evidence.tables["effects"]:
        if ended.get(effect["task_id"], effect["seen_move"] + 1) <= effect["seen_move"]:
            yield f"the effect of {effect['task_id']} was made after its lease had ended"


def no_living_lease_was_lost(evidence: Evidence) -> Iterator[str]:
    """An attempt is given up for lost only when its lease, as it stands at that moment, has run out."""
    lost = {row["task_id"] for row in evidence.tables["attempts"] if row["reason"] == "worker_lost"}
    for move in evidence.tables["moves"]:
        left = move["lease_left"]
        expired = move["entity"] == "attempt" and move["target"] == AttemptState.EXPIRED and move["key"] in lost
        if expired and left is not None and left > timedelta(0):
            yield f"{move['key']} was given up with {left} of its lease left"


def results_match_the_log(evidence: Evidence) -> Iterator[str]:
    """What was applied is in the log once, and the log names nothing else."""
    applied = {row["task_id"]: row for row in evidence.tables["results"] if row["disposition"] == "applied"}
    completed = Counter(
        row["task_id"] for row in evidence.tables["events"] if row["event_type"] == "node_completed" and row["task_id"]
    )
    good = {task for task, row in applied.items() if row["status"] == "completed" and "__" not in row["node_id"]}
    for task in good ^ completed.keys():
        yield f"{task}: applied {task in good}, in the log {task in completed}"
    yield from (f"{task} completed {times} times" for task, times in completed.items() if times > 1)
    attempts = {row["task_id"]: row for row in evidence.tables["attempts"]}
    for task, row in applied.items():
        wanted = AttemptState.RELEASED if row["status"] == "released" else AttemptState.REPORTED
        if attempts[task]["state"] != wanted:
            yield f"a result of {task} was applied, and the attempt is {attempts[task]['state']}"
    for row in evidence.tables["results"]:
        if not row["processed"]:
            yield f"the result of {row['task_id']} is still in the inbox"
    for node in evidence.tables["nodes"]:
        author = (node["output"] or {}).get("by")
        if author is not None and author != node["task_id"]:
            yield f"{node['job_id']}/{node['node_id']} has the output of {author}, its attempt is {node['task_id']}"


def no_result_was_lost(evidence: Evidence) -> Iterator[str]:
    """Every result that a worker had was answered, and what was answered as taken is stored as it was."""
    stored = {row["task_id"]: row for row in evidence.tables["results"]}
    for disk in evidence.disks:
        yield from (f"the result of {task} was never answered" for task in disk.unanswered)
        for task, answer in disk.answers:
            if answer.disposition is ResultDisposition.REJECTED and "poison" not in str(answer.reason):
                result = disk.written.get(task)
                if result is None or result.output is not None or result.error is not None:
                    yield f"the result of {task} was rejected: {answer.reason}"
        for task, result in disk.written.items():
            if task in disk.unanswered:
                continue
            row = stored.get(task)
            if row is None:
                yield f"the result of {task} was answered and is not stored"
            elif row["status"] not in {result.status.value, "released"}:
                yield f"the result of {task} is stored as {row['status']}"


def nothing_leaked(evidence: Evidence) -> Iterator[str]:
    """No attempt is live, no slot is held and no order lies in an inbox when every job has ended."""
    for attempt in evidence.tables["attempts"]:
        if attempt["state"] not in ATTEMPT_FINAL:
            yield f"attempt {attempt['task_id']} is still {attempt['state']}"
    yield from (f"slot {row}" for row in evidence.tables["slots"])
    yield from (f"order {row}" for row in evidence.tables["orders"])


def statuses_moved_by_the_tables(evidence: Evidence) -> Iterator[str]:
    """Each event is one allowed move or begins anew, and rows went where the log says."""
    told = logged(evidence)
    for (kind, key), statuses in told.items():
        table: Any = JOB_TRANSITIONS if kind == "job" else NODE_TRANSITIONS
        status_type: Any = JobStatus if kind == "job" else NodeStatus
        for source, target in pairwise(statuses):
            if ANEW not in {source, target} and target != source and status_type(target) not in table[source]:
                yield f"{kind} {key} went from {source} to {target} in the log"
    for where, targets in moved(evidence).items():
        if not _is_part_of(targets, told.get(where, [])):
            yield f"{where[0]} {where[1]} went {targets}, the log says {told.get(where)}"
    for move in evidence.tables["moves"]:
        key, source, target = move["key"], move["source"], move["target"]
        if move["entity"] == "attempt" and source and target not in ATTEMPT_TRANSITIONS[AttemptState(source)]:
            yield f"attempt {key} went from {source} to {target}"


def the_log_replays(evidence: Evidence) -> Iterator[str]:
    """The last status in the log is the status of the row."""
    told = logged(evidence)
    rows = [(("job", job["job_id"]), job["status"]) for job in evidence.tables["jobs"]]
    rows += [(("node", f"{one['job_id']}/{one['node_id']}"), one["status"]) for one in evidence.tables["nodes"]]
    for where, status in rows:
        if told.get(where, [""])[-1] != status:
            yield f"{where[0]} {where[1]} is {status}, the log says {told.get(where)}"


def nothing_started_early(evidence: Evidence) -> Iterator[str]:
    """When a node becomes ready, every source of it has ended before in the log, and did not begin anew since."""
    workflows = {job["job_id"]: job["workflow_id"] for job in evidence.tables["jobs"]}
    ended: set[tuple[str, str]] = set()
    for event in evidence.tables["events"]:
        job_id, node_id = event["job_id"], event["node_id"]
        if node_id is None or job_id not in workflows:
            continue
        if "children" in event["event_data"]:
            continue
        if event["event_type"] == "node_ready" and "__" not in node_id:
            nodes = evidence.workload.definitions[workflows[job_id]]["nodes"]
            for source in sources_of(nodes, node_id):
                if (job_id, source) not in ended:
                    yield f"{job_id}/{node_id} became ready before {source} had ended"
        if event["event_status"] in NODE_FINAL:
            ended.add((job_id, node_id))
        elif event["event_type"] == RESET:
            ended.discard((job_id, node_id))


def certain_jobs_ended_as_the_model_says(evidence: Evidence) -> Iterator[str]:
    """Whatever went wrong or began anew, budgets that cannot run out lead to the one end that the language gives.

    Jobs that run for others may be cancelled with what they run for, and only then.
    """
    attempts = {row["task_id"]: row["state"] for row in evidence.tables["attempts"]}
    nodes: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for row in evidence.tables["nodes"]:
        reason = f" {row['skip_reason']}" if row["skip_reason"] else ""
        nodes[row["job_id"]][row["node_id"]] = row["status"] + reason
    for job in evidence.tables["jobs"]:
        if job["workflow_id"] not in evidence.workload.certain:
            continue
        definition = evidence.workload.definitions[job["workflow_id"]]
        if job["status"] == JobStatus.CANCELLED and attempts.get(job["parent_task_id"]) == AttemptState.REVOKED:
            continue
        expected = predict(definition, evidence.workload.plans[job["workflow_id"]])
        found = {key: nodes[job["job_id"]].get(key) for key in expected.nodes}
        if (found, job["status"]) != (dict(expected.nodes), expected.job):
            yield f"job {job['job_id']} ended {job['status']} {found}, the model says {expected}"
        if {one["node_id"] for one in job["warnings"]} != expected.warned:
            yield f"job {job['job_id']} has the warnings {job['warnings']}, the model says {expected.warned}"


def fan_outs_account_for_every_item(evidence: Evidence) -> Iterator[str]:
    """A fan-out is over when each item is, once in its last run; its fan_in gives the outputs that are there."""
    jobs = {job["job_id"]: job for job in evidence.tables["jobs"]}
    children: defaultdict[tuple[str, str], list[Json]] = defaultdict(list)
    nodes = {(row["job_id"], row["node_id"]): row for row in evidence.tables["nodes"]}
    for row in evidence.tables["nodes"]:
        if row["parent_node_id"]:
            children[row["job_id"], row["parent_node_id"]].append(row)
    known = {(row["job_id"], row["node_id"]) for row in evidence.tables["fan_outs"]}
    yield from (f"{key[0]}/{key[1]} has children and no row" for key in children.keys() - known)
    for fan_out in evidence.tables["fan_outs"]:
        key = (fan_out["job_id"], fan_out["node_id"])
        node, fan_in = nodes[key], nodes[key[0], f"{key[1]}in"]
        numbers = (fan_out["succeeded"], fan_out["failed"], fan_out["skipped"])
        where = f"{key[0]}/{key[1]} {node['status']} {numbers}"
        if fan_out["state"] != "done" or fan_out["active"] or sum(numbers) != fan_out["item_count"]:
            yield f"{where} is over with {fan_out}"
        good = sorted(one["at"] for child in children[key] for one in _outputs(child))
        if len(good) != fan_out["succeeded"] or len(set(good)) != len(good):
            yield f"{where} counted otherwise than its children, of which {good} succeeded"
        if node["status"] == NodeStatus.COMPLETED and fan_out["skipped"]:
            yield f"{where} left items out"
        if fan_in["status"] == NodeStatus.COMPLETED:
            given = [one["at"] for one in fan_in["output"]["results"]]
            if given != good or fan_in["output"]["succeeded"] != len(good):
                yield f"{where}: its fan_in gives {given}, {good} succeeded"
        job = jobs[key[0]]
        if job["workflow_id"] in evidence.workload.certain and node["status"] == NodeStatus.COMPLETED:
            items = evidence.workload.definitions[job["workflow_id"]]["inputs"][f"items_{key[1]}"]["default"]
            if good != [index for index, item in enumerate(items) if item["end"] == "good"]:
                yield f"{where}: {good} succeeded"


def _outputs(child: Json) -> Iterator[Json]:
    if child["outcomes"] is not None:
        yield from (one["output"] for one in child["outcomes"] if one["status"] == "completed")
    elif child["status"] == NodeStatus.COMPLETED:
        yield child["output"]


def slots_were_kept_to(evidence: Evidence) -> Iterator[str]:
    """Never had a key more holders than its limit."""
    yield from (f"{row['slot_key']} had {row['held']} holders of {row['most']}" for row in evidence.tables["overruns"])


CHECKS: Sequence[Check] = (
    every_job_ended,
    each_run_ended_once,
    nothing_ran_twice,
    no_living_lease_was_lost,
    results_match_the_log,
    no_result_was_lost,
    nothing_leaked,
    statuses_moved_by_the_tables,
    only_orders_leave_an_end,
    orders_start_anew_what_they_mean,
    one_attempt_at_a_time,
    attempts_are_numbered_through_all_runs,
    nodes_keep_nothing_of_earlier_runs,
    jobs_ended_as_their_nodes,
    the_log_replays,
    nothing_started_early,
    certain_jobs_ended_as_the_model_says,
    fan_outs_account_for_every_item,
    slots_were_kept_to,
)


def _is_part_of(part: Sequence[str], whole: Sequence[str]) -> bool:
    """Return whether `part` is a subsequence of `whole`."""
    rest = iter(whole)
    return all(one in rest for one in part)
