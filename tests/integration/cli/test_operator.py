"""What the operators' commands call, and what a wrong command line is told."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.commands.submit import WrongCommandLine
from cli.main import app
from tests.support.cli_peer import CliPeer

JOB = {"job_id": "j1", "status": "RUNNING", "run_no": 1, "priority": 5, "paused_at": None, "workflow_id": "w"}
PAUSED = {"kind": "paused", "detail": {"switches": ["all", "workflow:w"]}}
FAN_OUT = {"items": 9, "succeeded": 2, "failed": 1, "skipped": 0, "running": 0, "waiting": {"slot": 4}}
ANSWERS: dict[str, Any] = {
    "jobs": {"jobs": [JOB | {"waiting_for": PAUSED}]},
    "jobs/j1": JOB | {"progress": {"fraction": 0.5}},
    "jobs/j1/nodes": {
        "nodes": [
            {"node_id": "a", "status": "READY", "waiting_for": PAUSED},
            {"node_id": "each", "status": "RUNNING", "fan_out": FAN_OUT},
            {"node_id": "b", "status": "FAILED", "error": {"code": "BROKEN", "message": "it [/broke]"}},
            {"node_id": "c", "status": "SKIPPED", "skip_reason": "upstream_failed"},
        ]
    },
    "settings/pauses": {"switches": [{"switch": "all", "paused": True}]},
    "dead-letters": {"dead_letters": [{"dead_letter_id": 7, "classification": "unreadable"}]},
}
PLATFORM = {"platform_id": "ddh", "is_active": True, "review_days": 7}
DELIVERY = {"delivery_id": "d1", "platform_id": "ddh", "state": "expired", "last_status": 500}
LETTER = {"dead_letter_id": 7, "task_id": "t", "resolution": "replayed", "resolved_by": "op"}


class Peer(CliPeer):
    """A gateway's proxy that remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str, Any]] = []

    def reply(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        asked = path.removeprefix("/api/proxy/orchestrator/api/v1/")
        self.seen.append((method, asked, json.loads(body) if body else None))
        return 200, self._answer(asked)

    def _answer(self, path: str) -> Any:
        name = path.partition("?")[0].removeprefix("/api/status/")
        if name in ANSWERS:
            return ANSWERS[name]
        if name.startswith("commands/"):
            return {"command": name, "dry_run": True, "more": False, "jobs": [JOB | {"outcome": "would_apply"}]}
        if name.startswith("dead-letters/"):
            return LETTER
        if name.startswith("webhooks/"):
            return {"deliveries": [DELIVERY]} if name.endswith("deliveries") else DELIVERY
        if name.startswith("platforms"):
            return {"platforms": [PLATFORM]} if name == "platforms" else PLATFORM
        if name.startswith("settings/"):
            return {"switch": "all", "paused": True, "changed": True, "jobs": 1}
        return {"command": name.rpartition("/")[2], "state": "applied", "job": JOB}


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    peer = Peer()
    with peer.reached(monkeypatch):
        yield peer


def run(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(("words", "path", "body"), [
    ("cancel j1 --reason wrong", "jobs/j1/cancel", {"reason": "wrong"}),
    ("pause j1", "jobs/j1/pause", {}),
    ("resume j1", "jobs/j1/resume", {}),
    ("retry j1", "jobs/j1/retry", {}),
    ("priority 8 j1", "jobs/j1/priority", {"priority": 8}),
    ("priority interactive j1", "jobs/j1/priority", {"priority": "interactive"}),
    ("rerun j1", "jobs/j1/rerun", {}),
    ('rerun j1 a --params {"x":1}', "jobs/j1/nodes/a/rerun", {"params": {"x": 1}}),
    ("skip j1 a", "jobs/j1/nodes/a/skip", {}),
    ("gate j1 a approved --data {}", "jobs/j1/nodes/a/gate", {"decision": "approved", "data": {}}),
    ("window j1 a 64", "jobs/j1/nodes/a/window", {"max_concurrency": 64}),
    ("cancel j1 --dry-run", "jobs/j1/cancel", {"dry_run": True}),
    ("rerun j1 --dry-run", "jobs/j1/rerun", {"dry_run": True}),
    ("rerun j1 a --dry-run", "jobs/j1/nodes/a/rerun", {"dry_run": True}),
    ("skip j1 a --dry-run", "jobs/j1/nodes/a/skip", {"dry_run": True}),
    ("gate j1 a rejected --dry-run", "jobs/j1/nodes/a/gate", {"decision": "rejected", "dry_run": True}),
    ("window j1 a 64 --dry-run", "jobs/j1/nodes/a/window", {"max_concurrency": 64, "dry_run": True}),
])  # fmt: skip
def test_an_order_for_one_job_is_posted_and_its_state_shown(peer: Peer, words: str, path: str, body: Any) -> None:
    assert "applied" in run("job", *words.split())
    assert peer.seen == [("POST", path, body)]


def test_an_order_by_filter_says_what_is_meant(peer: Peer) -> None:
    words = "job retry --workflow w --error BROKEN --older-than 60 --status failed --dry-run --json"
    shown = run(*words.split())
    assert json.loads(shown)["jobs"][0]["outcome"] == "would_apply"
    wanted = {"workflow_id": "w", "status": "FAILED", "older_than_seconds": 60.0, "error_code": "BROKEN"}
    assert peer.seen == [
        ("POST", "commands/retry", {"filter": wanted, "args": {}, "limit": 100, "dry_run": True}),
    ]


def test_jobs_are_listed_and_shown_with_what_they_wait_for(peer: Peer) -> None:
    assert "paused" in run("job", "list", "--workflow", "w", "--status", "running")
    assert peer.seen[-1] == ("GET", "jobs?limit=20&status=RUNNING&workflow_id=w", None)
    run("jobs", "--workflow", "w")
    assert peer.seen[-1] == ("GET", "/api/status/jobs?limit=20&workflow_id=w", None)
    shown = run("job", "show", "j1")
    assert "paused switches=all,workflow:w" in shown
    assert "3/9 slot:4" in shown
    assert "BROKEN: it [/broke]" in shown
    assert "upstream_failed" in shown
    assert "0.5" in shown


@pytest.mark.parametrize(("words", "method", "path"), [
    ("pause --all", "PUT", "settings/pauses/all"),
    ("pause --workflow w", "PUT", "settings/pauses/workflow:w"),
    ("resume --queue q", "DELETE", "settings/pauses/queue:q"),
    ("pauses", "GET", "settings/pauses"),
    ("dead-letters list", "GET", "dead-letters?limit=50"),
    ("dead-letters replay 7", "POST", "dead-letters/7/replay"),
    ("dead-letters discard 7", "POST", "dead-letters/7/discard"),
    ("webhooks list --state expired", "GET", "webhooks/deliveries?state=expired&limit=50"),
    ("webhooks replay d1", "POST", "webhooks/deliveries/d1/replay"),
    ("platforms list", "GET", "platforms"),
])  # fmt: skip
def test_switches_letters_and_deliveries_have_their_words(peer: Peer, words: str, method: str, path: str) -> None:
    run(*words.split())
    assert [(seen[0], seen[1]) for seen in peer.seen] == [(method, path)]


def test_a_platform_is_changed_only_in_what_was_named(peer: Peer) -> None:
    assert "ddh" in run(*["platforms", "set", "ddh", "--off", "--max-open-requests", "5", "--reason", "noisy"])
    body = {"is_active": False, "max_open_requests": 5, "reason": "noisy"}
    assert peer.seen == [("PATCH", "platforms/ddh", body)]


@pytest.mark.parametrize(
    "words",
    ["platforms set ddh", "pause", "pause --all --queue q", "job cancel", "job cancel j1 --workflow w",
     "job rerun j1 a --params [1]", "job rerun j1 a --params {"],
)  # fmt: skip
def test_a_wrong_command_line_is_refused_before_anything_is_called(peer: Peer, words: str) -> None:
    with pytest.raises(WrongCommandLine):
        run(*words.split())
    assert peer.seen == []
