"""What a submit of a raster starts takes the way that the estimate of its validation names."""

from pathlib import Path
from typing import Any

import pytest

from core.dag.catalogue import load_folder
from core.dag.definition import Workflow
from core.dag.rehearsal import Rehearsed, rehearse
from core.dag.scenario import read_scenario
from core.ids import canonical_json
from core.statuses import JobStatus
from core.submission import INGEST_WORKFLOWS

FOLDER = Path(__file__).parents[4] / "workflows"
INPUTS: dict[str, Any] = {
    "asset_id": "a", "version_ordinal": 0, "revision": 1, "request_id": "r", "platform_id": "ddh", "source": "bronze/a",
    "version_label": "v1", "title": "t", "collection_id": "c", "collection_title": "c", "item_id": "a-v0",
    "href": "http://127.0.0.1/a", "output_prefix": "silver/a",
}  # fmt: skip


@pytest.fixture(scope="module")
def ingest() -> Workflow:
    """Return the workflow that a submit of a raster starts."""
    return load_folder({path.name: path.read_text() for path in FOLDER.glob("*.yaml")}).get(INGEST_WORKFLOWS["raster"])


def run(ingest: Workflow, route: str, inputs: dict[str, Any], **tasks: Any) -> Rehearsed:
    """Rehearse an ingest whose validation estimates this route."""
    found = {"content_hash": "c" * 64, "raster": {}, "report": {}, "estimate": {"route": route}}
    made = {"blob_path": "silver/a/cog.tif"}
    register = {"route": "{{ params.tiles is none }}", "blob_path": "x", "sha256": "x", "size_bytes": 1}
    named = ("stac_item_id", "stac_collection_id", "stac_item", "render", "report", "tiles_path")
    tile = {
        "tile": {},
        "blob_path": "{{ params.source }}",
        "sha256": "x",
        "size_bytes": 1,
        "coarse_path": "x",
        "tallies_path": "x",
    }
    supposed = {
        "raster.process_tile": {"output": tile},
        "validate": {"output": found},
        "create_cog": {"output": made},
        "make_tiles": {"output": {"grid": {}, "tile_list": [{"row": 0}, {"row": 1}], "tile_count": 2, "raster": {}}},
        "finalize": {"output": register | dict.fromkeys(named, "x")},
    }
    scenario = {"inputs": INPUTS | inputs, "tasks": supposed | tasks}
    return rehearse(ingest, read_scenario(canonical_json(scenario), "scenario.json"))


@pytest.mark.parametrize(
    ("estimated", "inputs", "tiled"),
    [
        ("tiled", {}, True),
        ("direct", {}, False),
        ("direct", {"route": "tiled"}, True),
        ("tiled", {"route": "direct"}, False),
    ],
)
def test_large_rasters_are_cut_by_themselves(
    ingest: Workflow, estimated: str, inputs: dict[str, Any], tiled: bool
) -> None:
    result = run(ingest, estimated, inputs)
    assert result.job.status is JobStatus.COMPLETED, result.job.error
    ways = {node_id: str(result.nodes[node_id].status) for node_id in ("create_cog", "tiles", "merge")}
    cut, whole = ("COMPLETED", "SKIPPED") if tiled else ("SKIPPED", "COMPLETED")
    assert ways == {"create_cog": whole, "tiles": cut, "merge": cut}
    assert result.nodes["finalize"].output["route"] is not tiled


@pytest.mark.parametrize(
    ("route", "node"), [("direct", "create_cog"), ("tiled", "tiles"), ("direct", "ensure_collection")]
)
def test_nothing_is_registered_when_a_part_of_it_failed(ingest: Workflow, route: str, node: str) -> None:
    handler = "raster.process_tile" if node == "tiles" else node
    result = run(ingest, route, {}, **{handler: {"error": {"code": "BROKEN"}}})
    assert (result.job.status, str(result.nodes["finalize"].status)) == (JobStatus.FAILED, "SKIPPED")


def test_tiles_read_what_left_an_archive(ingest: Workflow) -> None:
    made = {"grid": {}, "tile_list": [{"row": 0}], "tile_count": 1, "raster": {}}
    for unpacked, read in ((None, "bronze/a"), ("silver/a/t/source.tif", "silver/a/t/source.tif")):
        result = run(ingest, "tiled", {}, make_tiles={"output": made | {"unpacked": unpacked}})
        output: Any = result.nodes["merge"].output
        assert [tile["blob_path"] for tile in output["results"]] == [read]
