"""What must hold of jobs that were retried or run again: an order does what it says, once, and nothing else."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from bench.simulation.evidence import ORDERS, RESET, Evidence, Json, resets_of
from bench.simulation.model import sources_of
from bench.simulation.operator import ONLY_RUN
from core.statuses import ATTEMPT_FINAL, JOB_FINAL, NODE_FINAL, JobStatus, NodeStatus


def each_run_ended_once(evidence: Evidence) -> Iterator[str]:
    """What hangs on the end of a job ran once for each run that came to one, with its status, and for no other."""
    expected: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    runs: Counter[str] = Counter()
    for event in evidence.tables["events"]:
        if event["event_type"] in ORDERS:
            runs[event["job_id"]] += 1
        elif event["node_id"] is None and event["event_status"] in JOB_FINAL:
            expected[event["job_id"]].append((runs[event["job_id"]] + 1, event["event_status"]))
    noted: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for end in evidence.tables["ends"]:
        noted[end["job_id"]].append((end["run_no"], end["status"]))
    for job in evidence.tables["jobs"]:
        ends = noted[job["job_id"]]
        if ends != expected[job["job_id"]]:
            yield f"job {job['job_id']} has the ends {ends}, the log says {expected[job['job_id']]}"
        if ends[-1:] != [(job["run_no"], job["status"])]:
            yield f"job {job['job_id']} is {job['status']} in run {job['run_no']}, its ends are {ends}"


def only_orders_leave_an_end(evidence: Evidence) -> Iterator[str]:
    """A row leaves a final status, or goes, only in the transaction of an order that says so; an order is one run."""
    events = evidence.tables["events"]
    orders = Counter((event["job_id"], event["xact"]) for event in events if event["event_type"] in ORDERS)
    resets = resets_of(evidence)
    runs: dict[str, int] = {}
    for move in evidence.tables["moves"]:
        kind, key, source, target = move["entity"], move["key"], move["source"], move["target"]
        if kind == "node":
            owner = key.rpartition("__")[0] if target is None else key
            left = target is None or source in NODE_FINAL or (source is not None and target == NodeStatus.PENDING)
            if left and (owner, move["xact"]) not in resets:
                yield f"node {key} left {source} for {target}, and nothing reset {owner}"
        elif target is None or (kind == "attempt" and source in ATTEMPT_FINAL):
            yield f"{kind} {key} left {source} for {target}"
        elif kind == "job":
            begun = 0 if source is None else move["run_no"] - runs[key]
            ordered = orders[key, move["xact"]]
            if begun != ordered or (source in JOB_FINAL and not begun):
                yield f"job {key} left {source} for {target} and began {begun} runs by {ordered} orders"
            runs[key] = move["run_no"]


def orders_start_anew_what_they_mean(evidence: Evidence) -> Iterator[str]:
    """An order resets what it means and what follows, as far as that has begun; nothing else resets anything."""
    jobs = {job["job_id"]: job for job in evidence.tables["jobs"]}
    events = sorted(evidence.tables["events"], key=lambda event: str(event["job_id"]))
    for job_id, of_job in groupby(events, key=lambda event: event["job_id"]):
        if (job := jobs.get(job_id)) is not None:
            nodes = evidence.workload.definitions[job["workflow_id"]]["nodes"]
            yield from (f"job {job_id}: {problem}" for problem in _orders_of(job, nodes, list(of_job)))


def _orders_of(job: Json, nodes: Json, events: Sequence[Json]) -> Iterator[str]:
    statuses = dict.fromkeys(nodes, "PENDING")
    due: set[tuple[str, str]] = set()
    run_no = 1
    for event in events:
        node_id, data = event["node_id"], event["event_data"]
        if event["event_type"] in ORDERS:
            run_no += 1
            yield from _misread(job, event, run_no)
            wanted = {key for key in _with_followers(nodes, _meant(event, statuses)) if statuses[key] != "PENDING"}
            if due or not wanted or wanted != set(data["nodes"]):
                yield f"run {run_no} names {data['nodes']}, meant are {wanted}, not reset before it {due}"
            due = {(key, event["xact"]) for key in data["nodes"]}
        elif event["event_type"] == RESET:
            if (node_id, event["xact"]) not in due:
                yield f"{node_id} was reset by no order"
            due.discard((node_id, event["xact"]))
            statuses[node_id] = "PENDING"
        elif node_id in nodes and "children" not in data and event["event_status"] in frozenset(NodeStatus):
            skipped = event["event_status"] == NodeStatus.SKIPPED
            statuses[node_id] = f"SKIPPED {data.get('reason')}" if skipped else event["event_status"]
    if due or run_no != job["run_no"]:
        yield f"it is in run {job['run_no']} after {run_no - 1} orders, not reset are {due}"


def _misread(job: Json, event: Json, run_no: int) -> Iterator[str]:
    data = event["event_data"]
    if job["parent_task_id"] is not None:
        yield f"an order began run {run_no}, and it runs for {job['parent_task_id']}"
    if data["run_no"] != run_no:
        yield f"run {run_no} began as run {data['run_no']}"
    if data["reason"].startswith(ONLY_RUN) and data["reason"] != f"{ONLY_RUN}{run_no - 1}":
        yield f"run {run_no} began by an order for {data['reason']}"


def _meant(event: Json, statuses: Mapping[str, str]) -> set[str]:
    if event["event_type"] == "job_rerun":
        return {event["event_data"]["node_id"]}
    return {key for key, one in statuses.items() if one in {"FAILED", "CANCELLED", "SKIPPED upstream_failed"}}


def _with_followers(nodes: Json, roots: Iterable[str]) -> set[str]:
    found: set[str] = set()
    more = set(roots)
    while more:
        found |= more
        more = {key for key in nodes if key not in found and found.intersection(sources_of(nodes, key))}
    return found


def one_attempt_at_a_time(evidence: Evidence) -> Iterator[str]:
    """A node has never two attempts that may report, whatever its runs."""
    nodes = {row["task_id"]: (row["job_id"], row["node_id"]) for row in evidence.tables["attempts"]}
    live: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    moves = [move for move in evidence.tables["moves"] if move["entity"] == "attempt"]
    for _, together in groupby(moves, key=lambda move: move["xact"]):
        begun = []
        for move in together:
            node = nodes[move["key"]]
            if move["target"] in ATTEMPT_FINAL:
                live[node].discard(move["key"])
            else:
                live[node].add(move["key"])
                begun.append(node)
        yield from (f"{node} has {sorted(live[node])}" for node in begun if len(live[node]) > 1)


def attempts_are_numbered_through_all_runs(evidence: Evidence) -> Iterator[str]:
    """Numbers of attempts go on without gaps; of the children of a fan-out, behind those of its earlier runs."""
    numbers: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for row in evidence.tables["attempts"]:
        numbers[row["job_id"], row["node_id"]].add(row["attempt"])
    first = {(row["job_id"], row["node_id"]): row["first_attempt"] for row in evidence.tables["fan_outs"]}
    for node in evidence.tables["nodes"]:
        key, parent = (node["job_id"], node["node_id"]), (node["job_id"], node["parent_node_id"])
        begin, end = first.get(parent, 0), node["attempt"]
        missing = set(range(begin, end)) - numbers[key]
        if key in first or not numbers[key]:
            missing.clear()  # a fan-out counts for its children
        elif node["status"] == NodeStatus.CANCELLED and node["parent_node_id"] is not None:
            missing.discard(end - 1)  # cancelled by the evaluation that was about to send it
        if missing or any(number >= end for number in numbers[key]):
            yield f"{key} has the attempts {sorted(numbers[key])}, expected are {begin} to {end - 1}"
        if node["task_id"] is not None and (node["attempt"] <= begin or not node["task_id"].endswith(f"_{end - 1}")):
            yield f"{key} has the attempt {node['task_id']}, its numbers are {begin} to {end - 1}"


def nodes_keep_nothing_of_earlier_runs(evidence: Evidence) -> Iterator[str]:
    """A node that was skipped has done nothing in its last run, and only such a node has a reason for it."""
    for node in evidence.tables["nodes"]:
        where, skipped = f"{node['job_id']}/{node['node_id']}", node["status"] == NodeStatus.SKIPPED
        left = [name for name in ("output", "error", "task_id", "started_at") if node[name] is not None]
        if skipped and left:
            yield f"{where} was skipped and has {', '.join(left)}"
        if skipped != (node["skip_reason"] is not None):
            yield f"{where} is {node['status']} for {node['skip_reason']}"


def jobs_ended_as_their_nodes(evidence: Evidence) -> Iterator[str]:
    """A failure that counts fails its job; what was cancelled and not begun anew leaves it cancelled.

    So does a cancel that comes with the last result: then every node has ended by itself.
    """
    nodes: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for row in evidence.tables["nodes"]:
        if row["parent_node_id"] is None:
            nodes[row["job_id"]][row["node_id"]] = row["status"]
    by_order = _cancelled_last(evidence)
    for job in evidence.tables["jobs"]:
        definition = evidence.workload.definitions[job["workflow_id"]]["nodes"]
        ends = nodes[job["job_id"]]
        failed = any(one == "FAILED" and not definition[key].get("best_effort") for key, one in ends.items())
        cancelled = "CANCELLED" in ends.values()
        expected = JobStatus.FAILED if failed else JobStatus.CANCELLED if cancelled else JobStatus.COMPLETED
        taken_back = job["status"] == JobStatus.CANCELLED and job["job_id"] in by_order
        if job["status"] != expected and not taken_back:
            yield f"job {job['job_id']} is {job['status']}, by its nodes it is {expected}"


def _cancelled_last(evidence: Evidence) -> set[str]:
    """Return the jobs whose last run an order cancelled."""
    last = {
        event["job_id"]: event["event_type"]
        for event in evidence.tables["events"]
        if event["event_type"] in {"job_cancelled", *ORDERS}
    }
    return {job_id for job_id, event_type in last.items() if event_type == "job_cancelled"}


def _of_type(evidence: Evidence, event_type: str) -> Iterator[Json]:
    return (event for event in evidence.tables["events"] if event["event_type"] == event_type)
