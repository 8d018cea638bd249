"""The example of the language's own page, with everything in it but the slot of the job, which is not supported yet."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.dag.catalogue import WorkflowCatalogue, load_folder
from core.dag.definition import Workflow
from core.dag.drawing import mermaid, svg
from core.dag.lint import lint
from core.dag.nodes import Backoff, FanOutNode, GateNode, WorkflowNode
from core.dag.problems import Report
from core.dag.rehearsal import Rehearsed, rehearse
from core.dag.scenario import read_scenario
from core.dag.yaml_source import read_yaml
from core.handler_models import AnyOutput, AnyParams
from core.handlers_catalog import CATALOG, HandlerSpec
from core.ids import canonical_json
from core.statuses import JobStatus

TEXT = Path(__file__).with_name("raster_tiled.yaml").read_text(encoding="utf-8")
NAMES = (*CATALOG, "raster.generate_tiling_scheme", "raster.process_tile")
ANY: Mapping[str, HandlerSpec] = {
    name: replace(CATALOG["echo"], name=name, params=AnyParams, output=AnyOutput) for name in NAMES
}
FRAME = """\
workflow_id: {name}
version: {version}
inputs: {{path: {{}}}}
nodes: {{start: {{type: start, next: end}}, end: {{type: end}}}}
"""


@pytest.fixture(scope="module")
def folder() -> WorkflowCatalogue:
    """Return the example beside what it names: its reverse and its child."""
    files = {
        "raster_tiled.yaml": TEXT,
        "unpublish_raster.yaml": FRAME.format(name="unpublish_raster", version=1),
        "publish_notice.yaml": FRAME.format(name="publish_notice", version=3),
    }
    catalogue = load_folder(files, catalog=ANY)
    assert catalogue.broken == ()
    return catalogue


@pytest.fixture(scope="module")
def example(folder: WorkflowCatalogue) -> Workflow:
    """Return the example."""
    return folder.get("raster_tiled")


def test_the_whole_example_loads_as_it_is_written(example: Workflow) -> None:
    assert (example.version, example.reversed_by, example.deadline_seconds) == (2, "unpublish_raster", 86400)
    assert set(example.graph.incoming["finalize"]) == {"merge", "direct"}
    policy = example.retry_policies["validate"]
    assert (policy.max_retries, policy.backoff, policy.delays_seconds) == (5, Backoff.SCHEDULE, (30, 120, 600, 3600))
    tiles, hold, notify = (example.nodes[node_id] for node_id in ("tiles", "hold", "notify"))
    assert isinstance(tiles, FanOutNode)
    assert (tiles.max_concurrency, tiles.batch_size, tiles.tolerate.percent) == (16, 8, 1)
    assert isinstance(hold, GateNode)
    assert hold.expires_after_seconds == 1209600
    assert isinstance(notify, WorkflowNode)
    assert (notify.workflow_id, notify.version) == ("publish_notice", 3)


def test_lint_points_at_the_output_that_a_bypassed_node_does_not_have(example: Workflow) -> None:
    report = Report("raster_tiled.yaml", read_yaml(TEXT))
    lint(example, report)
    assert [str(problem).split(":")[1] for problem in report.problems] == [
        str(1 + TEXT.splitlines().index('  blob_path: "{{ nodes.finalize.output.blob_path }}"'))
    ]


def test_every_node_is_in_both_pictures(example: Workflow) -> None:
    for picture in (mermaid(example), svg(example)):
        assert all(node_id in picture for node_id in example.nodes)


def run(folder: WorkflowCatalogue, example: Workflow, **scenario: Any) -> Rehearsed:
    """Rehearse the example with the inputs it needs."""
    inputs = {"blob_name": "...", "collection_id": "c", **scenario.pop("inputs", {})}
    supposed = read_scenario(canonical_json({"inputs": inputs, **scenario}), "s.json")
    workflows = {one.definition_hash: one for one in folder.workflows.values()}
    return rehearse(example, supposed, workflows=workflows, catalog=ANY)


BLOB = {"seconds": 60, "output": {"blob_path": "silver/x.tif"}}


def test_a_small_raster_goes_directly(folder: WorkflowCatalogue, example: Workflow) -> None:
    tasks = {
        "validate": {"output": {"file_size_mb": 100}},
        "direct": BLOB,
        "finalize": {"output": {"blob_path": "{{ params.cog }}"}},
    }
    result = run(folder, example, tasks=tasks, gates={"hold": {"after_seconds": 3600}})
    assert (result.job.status, result.job.outputs) == (JobStatus.COMPLETED, {"blob_path": "silver/x.tif"})
    assert (result.nodes["tiles"].status, result.nodes["tiles"].skip_reason) == ("SKIPPED", "not_taken")
    assert result.seconds == 1 + 60 + 1 + 1 + 3600


def test_a_large_raster_is_tiled_and_one_tile_in_a_hundred_may_fail(
    folder: WorkflowCatalogue, example: Workflow
) -> None:
    tasks = {
        "validate": {"output": {"file_size_mb": 501}},
        "make_tiles": {"output": {"tile_list": list(range(100))}},
        "tiles": {"output": {"tile": "{{ params.tile }}"}},
        "finalize": {"output": {"blob_path": "{{ params.cog | length | string }}"}},
    }
    scenario = {"tasks": tasks, "gates": {"hold": {}}}
    bad = {"error": {"code": "BAD_TILE"}}
    result = run(folder, example, **scenario, items={"tiles": {"7": bad}})
    assert (result.job.status, result.job.outputs) == (JobStatus.COMPLETED, {"blob_path": "99"})
    result = run(folder, example, **scenario, items={"tiles": {"7": bad, "8": bad}})
    assert result.job.status is JobStatus.FAILED
    assert result.nodes["tiles"].status == "FAILED"


def test_the_deadline_of_the_job_comes_before_the_end_of_a_gate_that_nobody_decides(
    folder: WorkflowCatalogue, example: Workflow
) -> None:
    tasks = {"validate": {"output": {"file_size_mb": 1}}, "direct": BLOB, "finalize": BLOB}
    result = run(folder, example, tasks=tasks)
    assert (result.job.error or {})["code"] == "JOB_DEADLINE"
