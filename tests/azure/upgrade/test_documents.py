"""What a task of one build writes, a task of the build beside it reads: in an upgrade each may run on either."""

import itertools
import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import pytest

from cli.stack.layout import REPOSITORY, THIS_BUILD, Build
from tests.support.raster_path import RasterPath, stack

Json = dict[str, Any]
PROGRAM: Final = REPOSITORY / "tests" / "azure" / "upgrade" / "documents.py"
SIZE: Final = 600
ABOUT: Final = {"collection_id": "c", "item_id": "a-v0", "title": "A raster", "version_label": "v1"}
MADE: Final = {**ABOUT, "href": "http://127.0.0.1/a", "output_prefix": "silver/a/0/r1", "options": {}}


class Workers:
    """Runs tasks, each by another build than the one before."""

    def __init__(self, processes: Sequence[subprocess.Popen[str]]) -> None:
        self._processes = itertools.cycle(processes)

    def run(self, handler: str, **params: Any) -> Json:
        """Run a task and return its output."""
        return self.run_each(handler, [params])[0]

    def run_each(self, handler: str, params: Sequence[Json]) -> list[Json]:
        """Run tasks, all by the same build."""
        process = next(self._processes)
        return [_asked(process, {"handler": handler, "params": one}) for one in params]


def _asked(process: subprocess.Popen[str], task: Json) -> Json:
    to, back = _pipe(process.stdin), _pipe(process.stdout)
    to.write(json.dumps(task) + "\n")
    to.flush()
    answer = json.loads(back.readline())
    assert "output" in answer, (task["handler"], answer)
    output: Json = answer["output"]
    return output


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


@contextmanager
def _process(build: Build, folder: Path) -> Iterator[subprocess.Popen[str]]:
    folder.mkdir()
    command = (build.python, "-c", PROGRAM.read_text(encoding="utf-8"), str(folder))
    with subprocess.Popen(command, cwd=build.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        _pipe(process.stdin).close()


@pytest.fixture(params=["this one begins", "the one before begins"])
def workers(request: pytest.FixtureRequest, previous: Build, tmp_path: Path) -> Iterator[Workers]:
    """Return workers of both builds."""
    with _process(THIS_BUILD, tmp_path / "this") as this, _process(previous, tmp_path / "previous") as before:
        yield Workers((this, before) if request.param == "this one begins" else (before, this))


@pytest.mark.parametrize("bands", [3, 4])
def test_a_raster_becomes_a_version_by_both_builds(workers: Workers, tmp_path: Path, bands: int) -> None:
    source = str(RasterPath(tmp_path).write(stack(bands, 64, 48), photometric="RGB"))
    checked = workers.run("raster.validate", source=source)
    prefix = {"options": {}, "output_prefix": "silver/a/0/r1"}
    made = workers.run("raster.create_cog", source=source, raster=checked["raster"], **prefix)
    item = workers.run(
        "raster.stac_register_item", cog=made["blob_path"], cog_facts=made, raster=checked["raster"], **MADE
    )
    assert item["stac_item_id"] == "a-v0"


def test_tiles_become_a_version_by_both_builds(workers: Workers, tmp_path: Path) -> None:
    source = str(RasterPath(tmp_path).write(stack(3, SIZE, SIZE), photometric="RGB"))
    checked = workers.run("raster.validate", source=source)
    common = {"source": source, "options": {}}
    scheme = workers.run("raster.generate_tiling_scheme", raster=checked["raster"], tile_pixels=512, **common)
    common |= {"grid": scheme["grid"], "raster": scheme.get("raster", checked["raster"])}
    common |= {"content_hash": checked["content_hash"], "output_prefix": "silver/a/0/r1"}
    tiles = workers.run_each("raster.process_tile", [{**common, "tile": tile} for tile in scheme["tile_list"]])
    assert len(tiles) == 4
    item = workers.run("raster.stac_register_item", tiles=tiles, grid=scheme["grid"], raster=checked["raster"], **MADE)
    assert item["stac_item_id"] == "a-v0"


def test_files_become_a_version_by_both_builds(workers: Workers, tmp_path: Path) -> None:
    raster = RasterPath(tmp_path)
    sources = [str(raster.write(stack(3, 64, 48), f"{name}.tif", photometric="RGB")) for name in "ab"]
    results = workers.run_each("raster.validate", [{"source": source} for source in sources])
    found = workers.run(
        "raster.check_collection", sources=sources, checked={"results": results, "failures": []}, tolerate_files=0
    )
    common = {"grid": found["grid"], "options": {}, "output_prefix": "silver/a/0/r1"}
    files = [{"source": one["source"], "file": one, **common} for one in found["files"]]
    tiles = workers.run_each("raster.process_file", files)
    item = workers.run(
        "raster.stac_register_item",
        tiles=tiles,
        grid=found["grid"],
        raster=found["files"][0]["raster"],
        collection={"verdicts": found["verdicts"], "findings": found["findings"]},
        **MADE,
    )
    assert item["stac_item_id"] == "a-v0"
