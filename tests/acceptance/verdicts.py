"""What must hold of every execution, whatever was killed meanwhile."""

from collections import Counter

from tests.acceptance.platform import Platform


def check_applied_once(platform: Platform, before: int) -> None:
    """Compare the event log with what the handlers wrote outside the platform."""
    events = platform.rows(
        "SELECT event_type, job_id, node_id, task_id FROM dagapp.dag_job_events WHERE event_id > %s", before
    )
    lines = [line.split(" ", 1) for line in platform.journal.read_text().splitlines()]
    started = Counter(task for task, what in lines if what == "started")
    finished = {task for task, what in lines if what == "finished"}
    again = {task: times for task, times in started.items() if times > 1}
    assert not again, f"handlers ran twice for one attempt: {again}"

    applied = Counter(
        event["task_id"] for event in events if event["event_type"] in {"node_completed", "node_retrying"}
    )
    applied.pop(None, None)
    assert applied
    assert not {task: times for task, times in applied.items() if times > 1}
    completed = [event for event in events if event["event_type"] == "node_completed" and event["task_id"]]
    assert {event["task_id"] for event in completed} <= finished
    nodes = Counter((event["job_id"], event["node_id"]) for event in completed)
    assert max(nodes.values()) == 1
