"""`geodag workflow` on files, as an author runs it."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from cli.commands.workflow import app
from cli.errors import JobNotCompleted
from cli.output import HARMFUL
from core.dag.catalogue import BrokenFile, WorkflowCatalogue, load_folder
from core.dag.loader import load_workflow
from core.errors import NotFound
from core.handlers_catalog import CATALOG
from services.shelf import Shelf

SHIPPED = Path(__file__).parents[3] / "workflows"
GOOD = """\
workflow_id: demo
version: "1.0"
nodes:
  start: {type: start, next: say}
  say: {handler: echo, next: end}
  end: {type: end}
"""
CARELESS = GOOD.replace("next: end}", "best_effort: true, next: end}").replace(
    "nodes:", 'outputs: {said: "{{ nodes.say.output }}"}\nnodes:'
)


def run(*words: str | Path) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, [str(word) for word in words])


def written(folder: Path, name: str, text: str) -> Path:
    """Write a file."""
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_lint_shows_the_canonical_form_of_a_good_file(tmp_path: Path) -> None:
    file = written(tmp_path, "demo.yaml", GOOD)
    result = run("lint", file)
    assert result.exit_code == 0
    document = result.stdout.removeprefix("---\n")
    assert load_workflow(document, "again").definition_hash == load_workflow(GOOD, "demo").definition_hash
    assert "version: 1\n" in document
    assert "type: task" in document


def test_lint_shows_every_problem_with_its_line_and_fails(tmp_path: Path) -> None:
    bad = GOOD.replace("next: end}", "next: nowhere}").replace("handler: echo", "handler: ehco")
    result = run("lint", written(tmp_path, "bad.yaml", bad), written(tmp_path, "careless.yaml", CARELESS))
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert [line.removeprefix(str(tmp_path)).split(": ")[0] for line in lines[:4]] == [
        "/bad.yaml:5",
        "/bad.yaml:5",
        "/careless.yaml:3",
        "---",
    ]
    assert ": advice: node say may have no output here" in lines[2]
    assert "2 problems and 1 piece of advice in 2 files" in str(result.exception)


def test_the_canonical_form_of_texts_with_control_sequences_is_the_same_workflow(tmp_path: Path) -> None:
    text = GOOD.replace("handler: echo", 'handler: echo, params: {a: "\\e[2J\\u202ex"}, description: "\\u200ey"')
    result = run("lint", written(tmp_path, "demo.yaml", text))
    assert result.exit_code == 0
    assert HARMFUL.sub("", result.stdout.replace("\n", "")) == result.stdout.replace("\n", "")
    document = result.stdout.removeprefix("---\n")
    assert load_workflow(document, "again").definition_hash == load_workflow(text, "demo").definition_hash


def test_advice_alone_is_no_failure_unless_it_is_asked_for(tmp_path: Path) -> None:
    file = written(tmp_path, "careless.yaml", CARELESS)
    result = run("lint", file)
    assert result.exit_code == 0
    assert "advice: node say may have no output here" in result.stdout
    assert "---\nworkflow_id: demo" in result.stdout
    assert run("lint", file, "--strict").exit_code == 1
    assert run("lint", written(tmp_path, "good.yaml", GOOD), "--strict").exit_code == 0
    answer = json.loads(run("lint", file, "--json").stdout)
    assert (answer["problems"], len(answer["workflows"])) == ([], 1)
    (advice,) = answer["advice"]
    assert (advice["line"], advice["message"][:12]) == (3, "node say may")


def test_lint_of_a_folder_checks_its_files_against_each_other(tmp_path: Path) -> None:
    written(tmp_path, "a.yaml", GOOD)
    written(tmp_path, "b.yaml", GOOD.replace("next: say", "next: say, description: other"))
    written(tmp_path, "c.yaml", GOOD.replace("demo", "lonely\nreversed_by: nobody"))
    written(tmp_path, "notes.txt", "no workflow")
    result = run("lint", tmp_path, "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert [row["file"].removeprefix(str(tmp_path)) for row in answer["problems"]] == ["/b.yaml", "/c.yaml"]
    first, second = answer["problems"]
    assert first["message"].startswith("demo version 1 has other content")
    assert [one["workflow_id"] for one in answer["workflows"]] == ["demo"]
    assert (second["line"], second["message"]) == (2, "reversed_by names 'nobody', which is not a workflow")


GREETS = """\
workflow_id: mine
version: 1
nodes:
  start: {type: start, next: greet}
  greet: {type: workflow, workflow_id: greeting_twice, inputs: {message: hi}, next: end}
  end: {type: end}
"""


def messages_of(*words: str | Path) -> list[str]:
    """Return the problems that lint finds, each with the name of its file."""
    result = run("lint", *words, "--json")
    rows = json.loads(result.stdout)["problems"]
    assert result.exit_code == (1 if rows else 0)
    return [f"{Path(row['file']).name}:{row['line']}: {row['message']}" for row in rows]


def test_lint_finds_children_among_the_workflows_of_the_checkout(tmp_path: Path) -> None:
    file = written(tmp_path, "mine.yaml", GREETS.replace("mine\n", "mine\nreversed_by: echo_test\n"))
    assert messages_of(tmp_path) == messages_of(file) == messages_of(file, SHIPPED) == []
    written(tmp_path, "mine.yaml", GREETS.replace("message: hi", "message: hi, massage: ho"))
    (wrong,) = messages_of(tmp_path)
    assert wrong == (
        "mine.yaml:5: workflow greeting_twice has no input 'massage'; it has message; did you mean message?"
    )
    assert messages_of(file) == [wrong]
    written(tmp_path, "mine.yaml", GREETS.replace("greeting_twice", "greeting_twise"))
    assert messages_of(tmp_path) == [
        "mine.yaml:5: there is no usable workflow 'greeting_twise'; did you mean greeting_twice?"
    ]


def test_lint_checks_files_and_folders_together(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    parent = written(tmp_path, "parent.yaml", GREETS.replace("greeting_twice, inputs: {message: hi}", "demo"))
    child = written(tmp_path / "below", "child.yaml", GOOD)
    assert messages_of(parent, child) == messages_of(parent, child.parent) == []
    assert messages_of(tmp_path, child) == messages_of(tmp_path, child.parent) == []
    other = written(tmp_path, "other.yaml", GOOD.replace("next: say", "next: say, description: other"))
    (clash,) = messages_of(child, other)
    assert clash.startswith("other.yaml:1: demo version 1 has other content in ")
    other.unlink()
    assert messages_of(parent) == []
    needless = written(tmp_path, "needless.yaml", GOOD.replace("demo", "needless"))
    (unknown,) = messages_of(tmp_path)
    assert unknown == "parent.yaml:5: there is no usable workflow 'demo'"
    assert messages_of(parent, needless) == [unknown]


def test_lint_of_one_file_says_nothing_of_what_may_be_elsewhere_but_what_is_known_must_fit(tmp_path: Path) -> None:
    both = GREETS.replace("mine\n", "mine\nreversed_by: nobody\n").replace("next: greet}", "next: [greet, more]}")
    both = both.replace("  end:", "  more: {type: workflow, workflow_id: unknown, next: end}\n  end:")
    file = written(tmp_path, "mine.yaml", both)
    assert messages_of(file) == []
    assert len(messages_of(tmp_path)) == 2
    written(tmp_path, "mine.yaml", both.replace("message: hi", "message: hi, massage: ho"))
    (wrong,) = messages_of(file)
    assert "has no input 'massage'" in wrong
    assert messages_of(written(tmp_path, "self.yaml", GREETS.replace("greeting_twice", "mine"))) == []


@pytest.mark.parametrize(
    "text",
    [GREETS.replace("greeting_twice", "mine"), GREETS.replace("greeting_twice", "gone"), GREETS.replace("end}", "x}")],
)
def test_lint_shows_what_is_wrong_where_the_remedy_of_a_broken_workflow_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    written(tmp_path, "mine.yaml", text)
    shelf = Shelf(load_folder({"mine.yaml": text}), {"mine.yaml": text})
    with pytest.raises(NotFound) as told:
        shelf.get("mine")
    command, _, where = str(told.value.detail.remediation).removeprefix("`geodag workflow ").partition("`")
    assert where == " in the folder of the workflows shows every problem."
    monkeypatch.chdir(tmp_path)
    (broken,) = shelf.catalogue.broken
    assert set(broken.error.splitlines()) <= set(run(*command.split()).stdout.splitlines())


def test_no_remedy_names_lint_for_what_only_the_database_shows() -> None:
    catalogue = WorkflowCatalogue({}, (BrokenFile("demo.yaml", "demo.yaml: stored otherwise", stored=True),))
    with pytest.raises(NotFound) as told:
        Shelf(catalogue, {"demo.yaml": GOOD}).get("demo")
    assert "a new version" in (remedy := str(told.value.detail.remediation))
    assert "geodag workflow lint" not in remedy


def test_lint_meets_the_conflicts_with_the_checkout_that_up_would_meet(tmp_path: Path) -> None:
    text = (SHIPPED / "echo_test.yaml").read_text(encoding="utf-8")
    changed = f"{text}on_failure: cancel\n"
    file = written(tmp_path, "a.yaml", changed)
    (clash,) = messages_of(tmp_path)
    assert clash == f"a.yaml:1: echo_test version 1 has other content in {SHIPPED / 'echo_test.yaml'}"
    assert messages_of(file) == [clash]
    file.unlink()
    written(tmp_path, "echo_test.yaml", changed)
    written(tmp_path, "copy.yaml", changed)
    assert messages_of(tmp_path) == []


def test_lint_does_not_tell_what_is_wrong_with_files_of_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.commands.workflow.REPOSITORY", tmp_path / "checkout")
    own = tmp_path / "own"
    own.mkdir()
    written(own, "mine.yaml", GREETS.replace("greeting_twice, inputs: {message: hi}", "demo"))
    assert messages_of(own) == ["mine.yaml:5: there is no usable workflow 'demo'"]
    (tmp_path / "checkout" / "workflows").mkdir(parents=True)
    written(tmp_path / "checkout" / "workflows", "demo.yaml", GOOD)
    written(tmp_path / "checkout" / "workflows", "bad.yaml", "no: workflow")
    assert messages_of(own) == []


def test_the_workflows_of_this_build_have_no_problem() -> None:
    result = run("lint", SHIPPED, "--no-canonical")
    assert (result.exit_code, result.stdout) == (0, "")


def test_graph_prints_mermaid_and_svg() -> None:
    result = run("graph", SHIPPED / "hello_world.yaml")
    assert result.stdout.startswith("flowchart TD\n")
    result = run("graph", SHIPPED / "hello_world.yaml", "--format", "svg")
    assert ElementTree.fromstring(result.stdout).tag == "{http://www.w3.org/2000/svg}svg"


def test_graph_of_a_bad_file_says_what_is_wrong(tmp_path: Path) -> None:
    result = run("graph", written(tmp_path, "bad.yaml", GOOD.replace("next: end}", "next: nowhere}")))
    assert result.exit_code == 1
    assert "'nowhere', which is not a node" in str(result.exception)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_bytes(b"name: x\n\xff\xfe")
    assert "bad.yaml:2: the byte 0xff is not UTF-8" in run("lint", tmp_path / "bad.yaml").stdout


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    large = written(tmp_path, "large.yaml", GOOD + "#" * 2**20)
    assert "large.yaml:1: the file has more than 1,048,576 characters" in run("lint", large).stdout
    assert "more than 1,048,576" in str(
        run("simulate", written(tmp_path, "w.yaml", GOOD), "--scenario", large).exception
    )


def test_handlers_are_listed_with_what_they_do() -> None:
    shown = run("handlers").stdout
    assert all(name in shown for name in CATALOG)
    rows = json.loads(run("handlers", "--json").stdout)
    assert [row["name"] for row in rows] == list(CATALOG)
    assert all(row["description"] for row in rows)


def test_a_handler_is_shown_with_its_params_its_output_and_their_objects() -> None:
    shown = run("handlers", "raster.create_cog").stdout
    for words in ("output_prefix", "container/prefix", "RasterOptions", "target_crs", "Output", "sha256"):
        assert words in shown
    answer = json.loads(run("handlers", "raster.create_cog", "--json").stdout)
    assert "source" in answer["params"]["properties"]
    assert "blob_path" in answer["output"]["properties"]
    assert "whatever else" in run("handlers", "echo").stdout
    assert "there is no handler 'ehco'" in str(run("handlers", "ehco").exception)


def test_schema_prints_the_published_schema() -> None:
    published = SHIPPED.parent / "docs" / "workflow.schema.json"
    assert json.loads(run("schema").stdout) == json.loads(published.read_text(encoding="utf-8"))


GATED = GOOD.replace("next: end}", "next: hold}") + "  hold: {type: gate, next: end}\n"


def test_simulate_tells_what_happens_and_when(tmp_path: Path) -> None:
    scenario = written(tmp_path, "s.yaml", "tasks: {say: {seconds: 5}}\ngates: {hold: {after_seconds: 60}}\n")
    result = run("simulate", written(tmp_path, "demo.yaml", GATED), "--scenario", scenario)
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["0.0", "s", "say", "node_started", "attempt=0"] in lines
    assert ["65.0", "s", "hold", "node_completed", "decision=approved", "actor=somebody", "data={}"] in lines
    assert lines[-1] == ["COMPLETED", "after", "65", "s"]


def test_simulate_says_what_a_job_waits_for_when_nothing_more_would_happen(tmp_path: Path) -> None:
    result = run("simulate", written(tmp_path, "demo.yaml", GATED))
    assert isinstance(result.exception, JobNotCompleted)
    assert "hold is WAITING: gate\n" in result.stdout
    assert "end is PENDING: dependency open=hold\n" in result.stdout
    waiting = json.loads(run("simulate", tmp_path / "demo.yaml", "--json").stdout)["nodes"]["end"]["waiting_for"]
    assert waiting == {"kind": "dependency", "detail": {"open": ["hold"]}}


def test_simulate_of_a_shipped_workflow_without_a_scenario_says_what_to_write_into_one(tmp_path: Path) -> None:
    file = SHIPPED / "hello_world.yaml"
    (hint,) = (line for line in run("simulate", file).stdout.splitlines() if line.startswith("hint: "))
    scenario = written(tmp_path, "s.yaml", hint.rpartition("--scenario: ")[2].replace("…", "hello"))
    result = run("simulate", file, "--scenario", scenario)
    assert (result.exit_code, "hint: " in result.stdout) == (0, False)


def test_simulate_shows_reasons_and_messages_whole_and_cuts_other_values(tmp_path: Path) -> None:
    reason, message, data = "r" * 300, "m" * 300, "d" * 300
    scenario = {
        "tasks": {"say": {"seconds": 5, "error": {"message": message}}},
        "commands": [{"kind": "pause", "reason": reason}, {"kind": "resume", "after_seconds": 9}],
    }
    file = written(tmp_path, "demo.yaml", GATED)
    shown = run("simulate", file, "--scenario", written(tmp_path, "s.json", json.dumps(scenario))).stdout
    assert f"reason={reason}\n" in shown
    assert f"message={message}" in shown
    scenario = {"gates": {"hold": {"data": {"k": data}}}}
    shown = run("simulate", file, "--scenario", written(tmp_path, "s.json", json.dumps(scenario))).stdout
    assert f'data={{"k": "{"d" * 113}…' in shown


def test_the_scenario_of_the_page_runs_on_the_workflow_of_the_page(tmp_path: Path) -> None:
    page = (SHIPPED.parent / "docs" / "workflow-language.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (workflow,) = (block for block in blocks if block.startswith("workflow_id:"))
    (scenario,) = (block for block in blocks if block.startswith("inputs:"))
    file = written(tmp_path, "thumbnails.yaml", workflow)
    assert run("lint", "--strict", file).exit_code == 0
    answer = json.loads(run("simulate", file, "--scenario", written(tmp_path, "s.yaml", scenario), "--json").stdout)
    assert answer["status"] == "COMPLETED"
    assert answer["outputs"]["images"] == [{"path": "out/a.tif"}, {}]
    events = {one["event"] for one in answer["timeline"]}
    assert "command_refused" not in events
    assert {"job_paused", "job_resumed", "attempt_expired", "node_completed"} <= events


def test_the_order_on_a_node_that_the_page_shows_skips_it(tmp_path: Path) -> None:
    page = (SHIPPED.parent / "docs" / "workflow-language.md").read_text(encoding="utf-8")
    (order,) = re.findall(r"`(\{kind: skip, .*?)`", page)
    file = written(tmp_path, "demo.yaml", GATED)
    scenario = written(tmp_path, "s.yaml", f"commands: [{order}]")
    answer = json.loads(run("simulate", file, "--scenario", scenario, "--json").stdout)
    assert answer["nodes"]["hold"]["skip_reason"] == "bypassed"


def test_simulate_gives_programs_everything(tmp_path: Path) -> None:
    scenario = written(tmp_path, "s.json", '{"tasks": {"echo": {"error": {"code": "BAD"}}}}')
    answer = json.loads(run("simulate", written(tmp_path, "a.yaml", GOOD), "--scenario", scenario, "--json").stdout)
    assert (answer["status"], answer["error"]["code"], answer["nodes"]["say"]["status"]) == ("FAILED", "BAD", "FAILED")
    assert answer["timeline"][-1]["event"] == "job_failed"


def test_simulate_supposes_child_jobs_like_tasks(tmp_path: Path) -> None:
    parent = GOOD.replace("demo", "parent").replace("handler: echo", "type: workflow, workflow_id: demo")
    written(tmp_path, "child.yaml", GOOD)
    file = written(tmp_path, "parent.yaml", parent)
    scenario = written(tmp_path, "s.json", '{"tasks": {"say": {"seconds": 9, "output": {"x": 1}}}}')
    result = run("simulate", file, "--scenario", scenario)
    assert "COMPLETED after 9 s" in result.stdout
    (tmp_path / "child.yaml").unlink()
    assert "there is no usable workflow 'demo'" in str(run("simulate", file).exception)


@pytest.mark.parametrize(
    ("scenario", "problem"), [("inputs: {x: 1}", "is not an input"), ("tasks: 5", "s.yaml:1: tasks")]
)
def test_simulate_refuses_a_scenario_that_does_not_fit(tmp_path: Path, scenario: str, problem: str) -> None:
    file = written(tmp_path, "demo.yaml", GOOD)
    assert problem in str(run("simulate", file, "--scenario", written(tmp_path, "s.yaml", scenario)).exception)


@pytest.mark.parametrize("command", ["lint", "graph", "handlers", "schema", "simulate"])
def test_every_command_explains_itself(command: str) -> None:
    assert run(command, "--help").exit_code == 0


def test_simulate_finds_children_in_the_checkout_too(tmp_path: Path) -> None:
    answer = json.loads(run("simulate", written(tmp_path, "mine.yaml", GREETS), "--json").stdout)
    assert (answer["status"], answer["nodes"]["greet"]["status"]) == ("COMPLETED", "COMPLETED")
