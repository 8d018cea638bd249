"""Every kind of raster that partners really send, with inputs of its kind, through the three handlers of the path.

Where RASTER_CASES names a folder that `make_cases.py` wrote, its cases run as well.
"""

import os
from pathlib import Path

import pytest

from tests.support.raster_cases import everything
from tests.support.raster_cases.case import Case, read_manifest
from tests.support.raster_cases.in_process import run
from tests.support.raster_cases.verdicts import judge
from tests.support.raster_path import RasterPath

FOLDER = os.environ.get("RASTER_CASES")
FOREIGN = {f"manifest-{case.id}": case for case in (read_manifest(Path(FOLDER)) if FOLDER else ())}


@pytest.fixture
def raster(tmp_path: Path) -> RasterPath:
    """Return the handlers over an empty folder."""
    return RasterPath(tmp_path)


def check(raster: RasterPath, case: Case) -> None:
    """Run a case, and again with the options that make it acceptable where it names some."""
    judge(run(raster, case))
    if "rerun_with_submit" in case.checks:
        again = run(raster, case, **case.checks["rerun_with_submit"])
        assert again.error is None
        assert again.warnings == set()


@pytest.mark.parametrize("name", [*everything.names(), *FOREIGN])
def test_a_raster_of_each_kind_comes_out_right(raster: RasterPath, name: str) -> None:
    folder = raster.folder / "delivered"
    folder.mkdir()
    check(raster, FOREIGN.get(name) or everything.build(name, folder))
