"""What the operators' commands call, and what a wrong command line is told."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.commands.submit import WrongCommandLine
from cli.commands.up import warn_of_broken
from cli.errors import Refused
from cli.main import app
from cli.output import HARMFUL
from tests.support.cli_peer import CliPeer

JOB = {"job_id": "j1", "status": "RUNNING", "run_no": 1, "priority": 5, "paused_at": None, "workflow_id": "w"}
PAUSED = {"kind": "paused", "detail": {"switches": ["all", "workflow:w"]}}
FAN_OUT = {
    "max_concurrency": 4,
    "items": 9,
    "succeeded": 2,
    "failed": 1,
    "skipped": 2,
    "running": 0,
    "waiting": {"slot": 4},
}
ANSWERS: dict[str, Any] = {
    "jobs": {"jobs": [JOB | {"waiting_for": PAUSED}], "next_after": None},
    "jobs/j1": JOB | {"progress": {"fraction": 0.5}},
    "jobs/j1/nodes": {
        "nodes": [
            {"node_id": "a", "status": "READY", "waiting_for": PAUSED},
            {"node_id": "each", "status": "RUNNING", "fan_out": FAN_OUT},
            {"node_id": "b", "status": "FAILED", "error": {"code": "BROKEN", "message": "it [/broke]"}},
            {"node_id": "c", "status": "SKIPPED", "skip_reason": "upstream_failed"},
        ]
    },
    "workflows": {"workflows": [], "broken": []},
    "settings/pauses": {"switches": [{"switch": "all", "paused": True}]},
    "dead-letters": {"dead_letters": [{"dead_letter_id": 7, "classification": "unreadable"}]},
}
PLATFORM = {"platform_id": "ddh", "is_active": True, "review_days": 7}
DELIVERY = {"delivery_id": "d1", "platform_id": "ddh", "state": "expired", "last_status": 500}
LISTS = (
    "jobs", "events", "entries", "limits", "switches", "nodes", "dead_letters", "deliveries", "platforms", "reviews",
    "assets", "versions", "comments", "decisions", "rows", "items", "holders", "line",
)  # fmt: skip
ROW_FIELDS = (
    "job_id", "workflow_id", "status", "created_at", "completed_at", "node_id", "event_type", "event_status",
    "slot_key", "set_by", "switch", "updated_by", "reason", "action", "actor", "actor_role", "asset_id",
    "platform_id", "run_no", "priority", "paused_at", "dead_letter_id", "task_id", "resolution", "resolved_by",
    "delivery_id", "state", "title", "message", "command", "code", "outcome", "display_name", "request_id",
    "approval_state", "processing_state", "comment", "author", "text",
)  # fmt: skip
LETTER = {"dead_letter_id": 7, "task_id": "t", "resolution": "replayed", "resolved_by": "op"}


class Peer(CliPeer):
    """A gateway's proxy that remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str, Any]] = []

    def reply(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        asked = path.removeprefix("/api/proxy/orchestrator/api/v1/")
        self.seen.append((method, asked, json.loads(body) if body else None))
        return 200, self._answer(method, asked)

    def _answer(self, method: str, path: str) -> Any:
        name = path.partition("?")[0].removeprefix("/api/status/")
        if (method, name) == ("POST", "jobs"):
            return {"job_id": "j2", "status": "RUNNING", "existing": False}
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


class Hostile(CliPeer):
    """A platform in which every text of data wants something of the terminal."""

    def reply(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        nasty = "a\x1b[2J\x07[/red]\x9b2J\u202e\nbegun"
        row: dict[str, Any] = dict.fromkeys(ROW_FIELDS, nasty) | {"age_seconds": 5, "decisions": [], "changed": True}
        row |= {"waiting_for": {"kind": nasty, "detail": {nasty: nasty}}, "error": {"code": nasty, "message": nasty}}
        row |= {name: {nasty: nasty} for name in ("event_data", "before", "progress")}
        row |= {"fan_out": FAN_OUT | {"waiting": {nasty: 1}}, "next_after": None}
        row |= {"cancelled": {"by": nasty, "reason": nasty, "at": nasty}, "held": 2, "waiting": 2}
        lists = {name: [row] for name in LISTS}
        return 200, row | lists | {
            "limit": row,
            "job": row,
            "errors": [row],
            "more": False,
            "report": None,
            "next_after": None,
        }


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
    ("rerun j1 --run-no 3", "jobs/j1/rerun", {"run_no": 3}),
    ("rerun j1 a --run-no 3", "jobs/j1/nodes/a/rerun", {"run_no": 3}),
    ('rerun j1 a --params {"x":1}', "jobs/j1/nodes/a/rerun", {"params": {"x": 1}}),
    ("rerun j1 --only-unsuccessful", "jobs/j1/rerun", {"only_unsuccessful": True}),
    ("rerun j1 a --only-unsuccessful", "jobs/j1/nodes/a/rerun", {"only_unsuccessful": True}),
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


def ended(status: str) -> dict[str, Any]:
    return JOB | {"status": status, "outputs": {"x": 1}, "error": {"code": "BROKEN"}}


def test_a_job_is_started_with_inputs_of_a_file_and_of_the_command_line(peer: Peer, tmp_path: Path) -> None:
    file = tmp_path / "inputs.json"
    file.write_text('{"a": 1, "b": {"c": [2]}}', encoding="utf-8")
    words = ["--inputs", str(file), "--input", "a=5", "--input", 'd="5"', "--input", "e=x = y", "--version", "2"]
    shown = run("job", "run", "w", *words, "--priority", "8", "--rerun")
    assert "j2" in shown
    body = {"inputs": {"a": 5, "b": {"c": [2]}, "d": "5", "e": "x = y"}, "version": 2, "priority": 8}
    assert peer.seen == [("POST", "jobs?rerun=true", {"workflow_id": "w"} | body)]


@pytest.mark.parametrize("word", ["NaN", "-Infinity", "[NaN]", "{a: 1}", '{"a": 1', ""])
def test_an_input_that_is_not_json_is_a_text(peer: Peer, word: str) -> None:
    run("job", "run", "w", "--input", f"v={word}")
    assert peer.seen[0][2]["inputs"] == {"v": word}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ('{"a": 1, "a": 2}', "--input v: the key 'a' appears twice in an object"),
        ('[{"b": {"a": 1, "a": 1}}]', "--input v: the key 'a' appears twice in an object"),
        ("[" + "1" * 5000 + "]", "--input v has a number with too many digits"),
        ("-1e999", "--input v is -inf, which is not a JSON number"),
        ('{"a": [1e400]}', "--input v.a[0] is inf, which is not a JSON number"),
        ('"\\ud800"', "--input v contains half of a surrogate pair"),
        ("caf\udce9", "--input v contains half of a surrogate pair"),
        ("[" * 102 + "]" * 102, "is nested deeper than 100 levels"),
    ],
)
def test_an_input_that_is_json_and_cannot_be_read_is_no_text(peer: Peer, value: str, problem: str) -> None:
    with pytest.raises(WrongCommandLine, match=re.escape(problem)):
        run("job", "run", "w", "--input", f"v={value}")
    assert peer.seen == []


@pytest.mark.parametrize("text", ['{"v": 1e999}', '{"v": NaN}', '{"\\udc00": 1}'])
def test_an_object_that_cannot_be_sent_is_refused(peer: Peer, tmp_path: Path, text: str) -> None:
    (tmp_path / "inputs.json").write_text(text, encoding="utf-8")
    for words in (["run", "w", "--inputs", str(tmp_path / "inputs.json")], ["rerun", "j", "a", "--params", text]):
        with pytest.raises(WrongCommandLine, match=r"is inf,|is nan,|half of a surrogate pair"):
            run("job", *words)
    assert peer.seen == []


@pytest.mark.parametrize(("status", "code"), [("COMPLETED", 0), ("FAILED", 4), ("CANCELLED", 4)])
def test_whoever_waits_for_a_job_is_told_how_it_ended(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, status: str, code: int
) -> None:
    monkeypatch.setitem(ANSWERS, "jobs/j2", ended(status))
    done = CliRunner().invoke(app, ["job", "run", "w", "--inputs", "-", "--wait"], input="{}")
    assert status in done.stdout
    assert peer.seen[1:] == [("GET", "jobs/j2?wait=20", None)]
    assert getattr(done.exception, "exit_code", 0) == code


@pytest.mark.parametrize(("status", "more", "hint"), [
    ("COMPLETED", "", "the workflow deduplicates, and this job had ended. `geodag job rerun j2`"),
    ("FAILED", "", "--rerun starts it"),
    ("FAILED", " --idempotency-key k", "the key was used before, and its job had ended. `geodag job rerun j2`"),
])  # fmt: skip
def test_whoever_waits_for_a_job_that_had_ended_is_told_that_nothing_ran(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, status: str, more: str, hint: str
) -> None:
    monkeypatch.setitem(ANSWERS, "jobs/j2", ended(status) | {"job_id": "j2"})
    there = {"job_id": "j2", "status": status, "existing": True}
    monkeypatch.setattr(peer, "_answer", lambda method, path: there if method == "POST" else ANSWERS["jobs/j2"])
    done = CliRunner().invoke(app, f"job run w --wait{more}".split())
    assert "Was there" in done.stdout
    assert "Nothing ran now" in done.stdout
    assert hint in done.stdout
    done = CliRunner().invoke(app, ["job", "run", "w", "--wait", "--json"])
    assert json.loads(done.stdout)["existing"] is True
    there["status"] = "RUNNING"
    assert "Ended" in CliRunner().invoke(app, ["job", "run", "w", "--wait"]).stdout


@pytest.mark.parametrize("word", ["--quiet", "-q"])
def test_a_script_gets_the_id_of_its_job_alone(peer: Peer, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    done = CliRunner().invoke(app, ["job", "run", "w", word])
    assert (done.stdout, done.exit_code) == ("j2\n", 0)
    for status, code in (("COMPLETED", 0), ("FAILED", 4)):
        monkeypatch.setitem(ANSWERS, "jobs/j2", ended(status) | {"job_id": "j2"})
        done = CliRunner().invoke(app, ["job", "run", "w", word, "--wait"])
        assert (done.stdout, getattr(done.exception, "exit_code", 0)) == ("j2\n", code)
    there = {"job_id": "j2", "status": "FAILED", "existing": True}
    monkeypatch.setattr(peer, "_answer", lambda method, path: there if method == "POST" else ANSWERS["jobs/j2"])
    assert CliRunner().invoke(app, ["job", "run", "w", word, "--wait"]).stdout == "j2\n"


def test_who_waits_for_a_job_is_told_once_what_it_waits_for(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = ANSWERS["jobs/j1"] | {"job_id": "j2", "waiting_for": PAUSED}
    looks = [waits, waits, ended("COMPLETED")]
    answer = peer._answer
    monkeypatch.setattr(peer, "_answer", lambda *asked: looks.pop(0) if asked[0] == "GET" else answer(*asked))
    done = CliRunner().invoke(app, ["job", "run", "w", "--wait", "--json"])
    assert done.stderr.count("j2 waits: paused") == 1
    assert json.loads(done.stdout)["status"] == "COMPLETED"


@pytest.mark.parametrize(("order", "args"), [("retry", {}), ("rerun --only-unsuccessful", {"only_unsuccessful": True})])
def test_an_order_by_filter_says_what_is_meant(peer: Peer, order: str, args: dict[str, Any]) -> None:
    words = f"job {order} --workflow w --error BROKEN --older-than 60 --status failed --dry-run --json"
    shown = run(*words.split())
    assert json.loads(shown)["jobs"][0]["outcome"] == "would_apply"
    wanted = {"workflow_id": "w", "status": "FAILED", "older_than_seconds": 60.0, "error_code": "BROKEN"}
    assert peer.seen == [
        ("POST", f"commands/{order.split()[0]}", {"filter": wanted, "args": args, "limit": 100, "dry_run": True}),
    ]


def test_the_workflows_of_a_platform_are_listed_with_those_that_are_broken(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"workflow_id": "w", "version": 2, "name": "Wide", "description": "It widens."}
    broken = {"file": "x.yaml", "error": "x.yaml:5: no"}
    monkeypatch.setitem(ANSWERS, "workflows", {"workflows": [found], "broken": [broken]})
    shown = run("workflow", "list")
    assert "It widens." in shown
    assert "x.yaml is broken: x.yaml:5: no" in shown


@pytest.mark.parametrize(("words", "told"), [
    ("job cancel --workflow w --older-than 60", "No job matches workflow=w, older-than=60.0"),
    ("job retry --error X --status failed --request r", "No job matches status=FAILED, request=r, error=X"),
    ("job list --workflow w --status running", "No job matches workflow=w, status=RUNNING"),
    ("jobs --status failed", "No job matches status=FAILED"),
    ("job list", "There are no jobs"),
])  # fmt: skip
def test_a_filter_that_means_no_job_says_so_with_its_words(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, words: str, told: str
) -> None:
    nothing = {"jobs": [], "more": False, "next_after": None}
    monkeypatch.setattr(peer, "_answer", lambda method, path: nothing)
    assert run(*words.split()) == told + "\n"


@pytest.mark.parametrize(("words", "path"), [("job list", "jobs"), ("jobs", "/api/status/jobs")])
def test_a_long_list_of_jobs_is_asked_for_page_by_page(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, words: str, path: str
) -> None:
    pages = [{"jobs": [JOB] * 1000, "next_after": "c1"}, {"jobs": [JOB] * 1000, "next_after": "c2"}]
    monkeypatch.setattr(peer, "_answer", lambda method, path: pages.pop(0))
    assert len(json.loads(run(*words.split(), "--limit", "1500", "--json"))) == 1500
    assert [asked for _, asked, _ in peer.seen] == [f"{path}?limit=1000", f"{path}?limit=1000&after=c1"]


def test_all_events_are_shown_of_a_job_and_of_a_request_however_old(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, "lookup", {"jobs": [JOB]})
    monkeypatch.setitem(ANSWERS, "job/j1/events", {"events": [{"event_type": "node_ready"}], "next_after": None})
    assert "node_ready" in run("events", "the-request")
    assert [path for _, path, _ in peer.seen] == [
        "/api/status/lookup?request_id=the-request",
        "/api/status/job/j1/events?limit=1000",
    ]


def test_an_orchestrator_of_the_build_before_is_understood(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ANSWERS, "jobs", {"jobs": [JOB]})
    fan_out = {name: value for name, value in FAN_OUT.items() if name != "max_concurrency"}
    nodes = {"nodes": [{"node_id": "each", "status": "RUNNING", "fan_out": fan_out}]}
    monkeypatch.setitem(ANSWERS, "jobs/j1/nodes", nodes)
    assert "j1" in run("job", "list")
    assert "3/9 undone:2,slot:4 " in run("job", "show", "j1")


def test_jobs_are_listed_and_shown_with_what_they_wait_for(peer: Peer) -> None:
    assert "paused" in run("job", "list", "--workflow", "w", "--status", "running")
    assert peer.seen[-1] == ("GET", "jobs?limit=20&status=RUNNING&workflow_id=w", None)
    run("jobs", "--workflow", "w")
    assert peer.seen[-1] == ("GET", "/api/status/jobs?limit=20&workflow_id=w", None)
    shown = run("job", "show", "j1")
    assert "paused switches=all,workflow:w" in shown
    assert "3/9 undone:2,max_concurrency:4,slot:4" in shown
    assert "BROKEN: it [/broke]" in shown
    assert "upstream_failed" in shown
    assert "0.5" in shown


def test_a_cancelled_job_says_by_whom_and_why_and_which_nodes_went_with_it(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    end, earlier = "2026-01-01T00:00:09Z", "2026-01-01T00:00:05Z"
    cancelled = {"by": "ada", "reason": "wrong file", "at": end}
    monkeypatch.setitem(ANSWERS, "jobs/j1", ended("CANCELLED") | {"completed_at": end, "cancelled": cancelled})
    gone = {"max_concurrency": 4, "items": 8, "succeeded": 0, "failed": 0, "skipped": 8, "running": 0, "waiting": {}}
    nodes = [
        {"node_id": "each", "status": "CANCELLED", "completed_at": end, "fan_out": gone},
        {"node_id": "a", "status": "CANCELLED", "completed_at": earlier},
    ]
    monkeypatch.setitem(ANSWERS, "jobs/j1/nodes", {"nodes": nodes})
    shown = run("job", "show", "j1")
    assert f"by ada at {end}: wrong file" in shown
    assert "0/8 undone:8 " in shown
    assert "cancelled with the job" in shown
    assert "cancelled: another node failed" in shown


def test_the_items_of_a_fan_out_are_listed_page_by_page_and_the_job_says_how(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = {"code": "BROKEN", "message": "no such band"}
    child = {"node_id": "each__0", "status": "FAILED", "attempt": 2, "error": error}
    first = {"nodes": [child] * 200, "next_after": "c1"}
    rest = [first, {"nodes": [child], "next_after": None}]
    with monkeypatch.context() as patch:
        patch.setattr(peer, "_answer", lambda method, path: rest.pop(0))
        shown = run(*["job", "children", "j1", "each", "--status", "failed", "--limit", "300"])
    assert shown.count("BROKEN: no such band") == 201
    path = "jobs/j1/nodes/each/children?limit=200&status=FAILED"
    assert [asked for _, asked, _ in peer.seen] == [path, f"{path}&after=c1"]
    failed = JOB | {"status": "FAILED", "error": {"code": "FAN_OUT_FAILED", "message": "3", "node_id": "each"}}
    monkeypatch.setitem(ANSWERS, "jobs/j1", failed)
    assert "geodag job children j1 each --status FAILED" in run("job", "show", "j1")
    late = {"nodes": [{"node_id": "each", "status": "CANCELLED", "fan_out": FAN_OUT | {"failed": 0}}]}
    monkeypatch.setitem(ANSWERS, "jobs/j1/nodes", late)
    assert "geodag job children" not in run("job", "show", "j1")


def test_a_node_is_shown_with_its_output(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    node = {"node_id": "a", "status": "COMPLETED", "output": {"heights": [1, 2]}, "error": None}
    monkeypatch.setitem(ANSWERS, "jobs/j1/nodes/a", node)
    assert '{"heights": [1, 2]}' in run("job", "node", "j1", "a")
    assert json.loads(run("job", "node", "j1", "a", "--json")) == node
    monkeypatch.setitem(ANSWERS, "jobs/j1/nodes/a/output", [1, 2, 3])
    assert json.loads(run("job", "node", "j1", "a", "--output")) == [1, 2, 3]


def test_large_outputs_of_a_job_are_told_and_printed_alone(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = {"blob": "values/j1/x.json", "sha256": "0" * 64, "size_bytes": 123_456}
    monkeypatch.setitem(ANSWERS, "jobs/j1", ANSWERS["jobs/j1"] | {"outputs": None, "outputs_ref": stored})
    monkeypatch.setitem(ANSWERS, "jobs/j1/outputs", {"results": [1, 2]})
    assert "123456 bytes; geodag job show j1 --outputs" in run("job", "show", "j1")
    assert json.loads(run("job", "show", "j1", "--outputs")) == {"results": [1, 2]}


def test_a_changed_window_is_shown(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    node = {"node_id": "each", "status": "RUNNING", "fan_out": FAN_OUT}
    answer = {"command": "window", "state": "applied", "job": JOB, "node": node}
    monkeypatch.setitem(ANSWERS, "jobs/j1/nodes/each/window", answer)
    assert "max_concurrency │ 4 " in run("job", "window", "j1", "each", "4")


@pytest.mark.parametrize("words", ["job cancel ..", "job cancel .", "job show ..", "job skip .. n", "job skip j .."])
def test_a_name_that_would_mean_another_address_is_not_sent(peer: Peer, words: str) -> None:
    with pytest.raises(Refused, match="names of nothing"):
        run(*words.split())
    assert [path for _, path, _ in peer.seen if not path.startswith("/api/status/lookup?")] == []


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


@pytest.mark.parametrize(("word", "changed", "told"), [
    ("pause", True, "Paused"), ("pause", False, "Was paused already"),
    ("resume", True, "Resumed"), ("resume", False, "Was not paused"),
])  # fmt: skip
def test_a_switch_that_was_like_that_before_says_so(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, word: str, changed: bool, told: str
) -> None:
    answer = {"switch": "all", "paused": word == "pause", "changed": changed, "jobs": 0}
    monkeypatch.setitem(ANSWERS, "settings/pauses/all", answer)
    assert told in run(word, "--all")


def test_a_limit_that_nobody_asked_for_yet_and_the_reason_of_a_change_are_told(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = {"slot_key": "global:x", "limit": 3, "set_by": "op", "held": 0, "waiting": 0, "asked": None}
    monkeypatch.setitem(ANSWERS, "settings/limits/by-key", {"limit": limit})
    assert "Nobody has asked for a slot of this key yet" in run("limits", "global:x", "3", "--reason", "night")
    assert (peer.seen[-1][0], peer.seen[-1][2]) == ("PUT", {"limit": 3, "reason": "night"})
    limit["asked"] = 2
    assert "Nobody" not in run("limits", "global:x", "3")
    assert "Nobody" not in run("limits", "global:x", "--unset", "--reason", "day")
    assert (peer.seen[-1][0], peer.seen[-1][2]) == ("DELETE", {"reason": "day"})
    states = {"before": {"slot_key": "global:x", "limit": 2}, "after": {"slot_key": "global:x", "limit": 3}}
    who = {"created_at": "2026-01-01T00:00:00Z", "action": "limit_set", "actor": "op", "actor_role": "operator"}
    monkeypatch.setitem(ANSWERS, "/api/admin/audit", {"entries": [{**who, **states, "reason": "night"}]})
    shown = run("audit")
    assert "│ global:x " in shown
    assert "limit: 2 → 3" in shown


def test_who_holds_a_slot_and_who_waits_are_tables_where_there_is_anybody(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = {"slot_key": "global:x/y", "limit": 2, "set_by": None, "held": 1, "waiting": 150, "asked": 2}
    slot = {"job_id": "j1", "node_id": None, "workflow_id": "w", "priority": 5, "requested_at": "2026-01-01T00:00:00Z"}
    waits = [{**slot, "job_id": f"j{number}", "granted_at": None} for number in range(2, 102)]
    answer = {"limit": limit, "holders": [{**slot, "granted_at": "2026-01-01T00:00:01Z"}], "line": waits}
    monkeypatch.setitem(ANSWERS, "settings/limits/by-key", answer)
    shown = run("limits", "global:x/y")
    assert [(seen[0], seen[1]) for seen in peer.seen] == [("GET", "settings/limits/by-key?key=global:x/y")]
    assert "Held by, the oldest first " in shown
    assert "Waiting, the next first: 100 of 150 " in shown
    assert shown.count("granted_at") == 1
    answer |= {"holders": [], "line": []}
    assert "Held" not in (shown := run("limits", "global:x/y"))
    assert "Waiting" not in shown


def test_the_reason_of_a_switch_is_shown_with_it_and_in_the_audit(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    switch = {"switch": "all", "paused": True, "updated_by": "op", "reason": "disk full"}
    monkeypatch.setitem(ANSWERS, "settings/pauses", {"switches": [switch]})
    assert "disk full" in run("pauses")
    states = {"before": {"switch": "all", "paused": False}, "after": {"switch": "all", "paused": True}}
    who = {"created_at": "2026-01-01T00:00:00Z", "action": "paused", "actor": "op", "actor_role": "operator"}
    monkeypatch.setitem(ANSWERS, "/api/admin/audit", {"entries": [{**who, **states, "reason": "disk full"}]})
    shown = run("audit")
    assert "│ all " in shown
    assert "paused: False → True" in shown


def test_whoever_starts_the_platform_is_told_of_broken_workflow_files(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    warn_of_broken(tmp_path)  # the peer knows none
    assert capsys.readouterr().err == ""
    found = {"file": "x.yaml", "error": "x.yaml:5: node a: next names 'b'\nx.yaml:7: more"}
    monkeypatch.setitem(ANSWERS, "workflows", {"workflows": [], "broken": [found]})
    warn_of_broken(tmp_path)
    assert "broken workflow files: 1;" in (told := capsys.readouterr().err)
    assert "  x.yaml:5: node a: next names 'b'\n" in told


def test_a_platform_is_changed_only_in_what_was_named(peer: Peer) -> None:
    assert "ddh" in run(*["platforms", "set", "ddh", "--off", "--max-open-requests", "5", "--reason", "noisy"])
    body = {"is_active": False, "max_open_requests": 5, "reason": "noisy"}
    assert peer.seen == [("PATCH", "platforms/ddh", body)]


@pytest.mark.parametrize("words", [
    "jobs", "events j1", "audit", "limits", "limits k", "limits k 3", "pauses", "pause --all", "resume --all",
    "job list", "job show j1", "job node j1 a", "job children j1 a",
    "job cancel j1", "job cancel --workflow w", "dead-letters list", "dead-letters replay 7",
    "webhooks list", "webhooks replay d1", "platforms list", "platforms set ddh --off", "reviews", "assets",
    "versions a", "status r", "comments a 0", "version a 0",
])  # fmt: skip
@pytest.mark.parametrize("as_json", [False, True])
def test_no_answer_commands_the_terminal(monkeypatch: pytest.MonkeyPatch, words: str, as_json: bool) -> None:
    hostile = Hostile()
    with hostile.reached(monkeypatch):
        shown = run(*words.split(), *(["--json"] if as_json else []))
    assert "x1b" in shown or "u001b" in shown
    assert HARMFUL.sub("", shown.replace("\n", "")) == shown.replace("\n", "")
    assert not any(line.startswith("begun") for line in shown.splitlines())


@pytest.mark.parametrize(
    "words",
    ["platforms set ddh", "pause", "pause --all --queue q", "job cancel", "job cancel j1 --workflow w",
     "job rerun j1 a --params [1]", "job rerun j1 a --params {", "job priority j1 9",
     "job rerun", "job rerun j1 a --workflow w", "job priority 11 j1", "job priority urgent j1",
     "job run w --input a",
     "job run w --input a=1 --input b=2 --input a=3",
     "job run w --inputs /no/such/file",
     "job run w --idempotency-key ü",
     "job run w --quiet --json"],
)  # fmt: skip
def test_a_wrong_command_line_is_refused_before_anything_is_called(peer: Peer, words: str) -> None:
    with pytest.raises(WrongCommandLine):
        run(*words.split())
    assert peer.seen == []
