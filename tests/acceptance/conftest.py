"""One platform of real processes for all acceptance tests of a session: its parts are killed, it is not rebuilt."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.stack.cluster import LOCAL_CONFIG
from cli.stack.layout import REPOSITORY, BlobsKind, Shape
from cli.stack.stack import Stack
from tests.acceptance.platform import Platform
from tests.support import spec_workflows
from tests.support.adapters import BLOBS, IDENTITY, QUEUE
from tests.support.folders import open_to_others
from tests.support.order import begin_with

LEASE_SECONDS = 6.0
THRESHOLD_SECONDS = 7.0
"""Above the 5 s after which PostgreSQL ends the transaction of a stopped process, as the 15 s of production are."""
TOKEN_SECONDS = 60.0
"""Replaced after half of that: a test meets the end of several."""
DATABASE = {**LOCAL_CONFIG, "fsync": "off", "full_page_writes": "off"}
"""Commits still wait for their WAL to reach the kernel, so a killed server loses none; the machine must not crash."""
CANARY_WORKFLOW, CANARY_NODE = "canary_ingest", "canary_3f9a1c"
"""A raster ingest whose nodes have names that stand nowhere else."""
SMALL_TILES = "small_tiles"
"""A tiled raster ingest that cuts everything, into tiles of 512 pixels."""
NARROW_FAN_OUT, NARROW_WINDOW = "narrow_fan_out", 50
LARGE_ABOVE_MB = 500 if BLOBS is BlobsKind.FOLDERS else 100
"""Where the second workflow of the specification begins to cut; a far storage sends each task all of these bytes."""
BROKEN_WORKFLOW = "workflow_id: broken\nnodes: [this is not a mapping\n"


LONGEST = ("test_up", "test_phases", "test_raster_cases", "test_tiles_survive", "test_tiled", "test_bad_input")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest."""
    begin_with(items, [f"tests/acceptance/{name}.py" for name in LONGEST])


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """Yield the folder of the platform."""
    with open_to_others("acceptance") as folder:
        yield folder


@pytest.fixture(scope="session")
def platform(home: Path) -> Iterator[Platform]:
    """Yield a running platform: two orchestrators, two workers of each size, shortened lease and threshold."""
    workflows = shutil.copytree(REPOSITORY / "workflows", home / "workflows")
    (workflows / "broken.yaml").write_text(BROKEN_WORKFLOW)
    (workflows / "canary.yaml").write_text(canary_workflow((workflows / "raster_ingest.yaml").read_text()))
    (workflows / "small_tiles.yaml").write_text(small_tiles_workflow((workflows / "raster_tiled.yaml").read_text()))
    (workflows / "narrow_fan_out.yaml").write_text(narrow_workflow((workflows / "fan_out_test.yaml").read_text()))
    (workflows / "raster_processing.yaml").write_text(spec_workflows.structure())
    (workflows / "raster_tiled_processing.yaml").write_text(spec_workflows.tiled(LARGE_ABOVE_MB))
    journal = home / "journal.txt"
    overrides = hurried(journal)
    overrides["orchestrator"]["WORKFLOWS_DIR"] = str(workflows)
    overrides["all"] = {"BLOB_SIGNATURE_SECONDS": "60"}
    shape = Shape(
        light=2,
        heavy=2,
        queue=QUEUE,
        blobs=BLOBS,
        identity=IDENTITY,
        token_seconds=TOKEN_SECONDS,
        overrides=overrides,
    )
    stack = Stack(home / "stack", ports={}, shape=shape, database_config=DATABASE)
    stack.start()
    yield Platform(stack, journal)
    stack.stop()


def hurried(journal: Path) -> dict[str, dict[str, str]]:
    """Return the settings of parts that notice early who is gone, and whose handlers write to a journal."""
    return {
        "orchestrator": {
            "LEASE_SECONDS": str(LEASE_SECONDS),
            "SOURCE_ALLOW_LOOPBACK": "true",
            "ORCHESTRATOR_HEARTBEAT_SECONDS": "1",
            "ORCHESTRATOR_THRESHOLD_SECONDS": str(THRESHOLD_SECONDS),
        },
        "worker": {
            "WORKER_JOURNAL_FILE": str(journal),
            "WORKER_HEARTBEAT_SECONDS": "1.5",
            "SOURCE_ALLOW_LOOPBACK": "true",
        },
    }


def narrow_workflow(fan_out_test: str) -> str:
    """Return the fan-out of the tests with a small window."""
    renamed = fan_out_test.replace("workflow_id: fan_out_test", f"workflow_id: {NARROW_FAN_OUT}")
    return renamed.replace("max_concurrency: 512", f"max_concurrency: {NARROW_WINDOW}")


def canary_workflow(text: str) -> str:
    """Return the ingest under another name, its nodes fetch and create_cog with the canary in theirs."""
    text = text.replace("workflow_id: raster_ingest", f"workflow_id: {CANARY_WORKFLOW}")
    for node in ("fetch", "create_cog"):
        text = re.sub(rf"(?<![.\w]){node}\b|(?<=nodes\.){node}\b", f"{CANARY_NODE}_{node}", text)
    return text


def small_tiles_workflow(text: str) -> str:
    """Return the tiled ingest under another name, with other defaults."""
    text = text.replace("workflow_id: raster_tiled", f"workflow_id: {SMALL_TILES}")
    text = text.replace("tile_pixels: {type: integer,", "tile_pixels: {type: integer, default: 512,")
    return text.replace("default: auto", "default: tiled")


@pytest.fixture(autouse=True)
def whole(request: pytest.FixtureRequest) -> None:
    """Let no test begin while a part that an earlier one killed is still starting."""
    if "platform" in request.fixturenames:
        running: Platform = request.getfixturevalue("platform")
        running.stack.wait_ready(60)
