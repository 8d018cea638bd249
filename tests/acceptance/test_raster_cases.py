"""Every raster case through the real pipeline: submitted all at once, approved, and judged by what is published.

Where RASTER_CASES names a folder that `make_cases.py` wrote, its cases run as well.
"""

import os
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.stack.layout import BlobsKind
from tests.acceptance.platform import Answer, Json, Platform, http
from tests.support.adapters import BLOBS
from tests.support.raster_cases import everything
from tests.support.raster_cases.case import Case, read_manifest
from tests.support.raster_cases.seen import Seen
from tests.support.raster_cases.verdicts import judge

EACH_KIND = [name for name in everything.names() if "." not in name]
"""The case of each kind; others of its kind run through the handlers in tests/integration/handlers."""
COUNT = len(EACH_KIND) if BLOBS is BlobsKind.FOLDERS else 20
ALONE = [EACH_KIND[number * len(EACH_KIND) // COUNT] for number in range(COUNT)]
"""Where another storage holds the files, some of all parts of the list: the rules are the same there."""
FOLDER = os.environ.get("RASTER_CASES")
FOREIGN = {f"manifest-{case.id}": case for case in (read_manifest(Path(FOLDER)) if FOLDER else ())}


@pytest.fixture(scope="module")
def published(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Seen]:
    """Submit all cases, then let each be seen by its name once it is through."""
    folder = tmp_path_factory.mktemp("cases")
    submitted = {name: _submit(platform, _written(folder, name)) for name in (*ALONE, *FOREIGN)}

    def see(name: str) -> Seen:
        case, answer = submitted[name]
        if answer.status != 202:
            return Seen(case, error={"classification": "permanent", **answer.json, "message": answer.json["detail"]})
        return _seen(platform, case, answer.json, folder / f"{name}.cog.tif")

    return see


def _written(folder: Path, name: str) -> Case:
    if name in FOREIGN:
        return replace(FOREIGN[name], id=name)
    own = folder / name
    own.mkdir()
    return everything.build(name, own)


def _submit(platform: Platform, case: Case) -> tuple[Case, Answer]:
    """Upload a case, with its sidecars in one archive, and submit it."""
    content, filename = case.source.read_bytes(), case.source.name
    beside = [path for path in case.source.parent.iterdir() if path.name.startswith(case.source.stem)]
    if len(beside) > 1:
        packed = case.source.parent / "packed.zip"
        with zipfile.ZipFile(packed, "w") as archive:
            for path in beside:
                archive.write(path, path.name)
        content, filename = packed.read_bytes(), "packed.zip"
    options = {"datetime": "2024-05-01T10:00:00Z", **case.submit}
    source = platform.upload(content, filename)
    return case, platform.submit(source, f"case-{case.id.lower()}", options=options)


def _seen(platform: Platform, case: Case, accepted: Json, target: Path) -> Seen:
    asset = accepted["asset_id"]
    status = platform.finished(accepted["request_id"], 120)
    if status["state"] == "failed":
        left = [name for name in platform.blob_names() if name.startswith("silver/") and asset in name]
        return Seen(case, error=status["errors"][0], left_behind=tuple(left))
    assert platform.approve(asset, 0).status == 200
    target.write_bytes(_body(f"{platform.serving}/download/{asset}"))
    item = http("GET", f"{platform.serving}/stac/{asset}").json
    report = platform.value("SELECT report FROM dagapp.asset_versions WHERE asset_id = %s", asset)
    assert report["verdict"] == ("accept_with_fixes" if case.outcome == "accept_warn" else "accept")
    assert {w["code"] for w in status["warnings"]} == {f["code"] for f in report["findings"] if f["level"] == "warning"}
    return Seen(case, findings=tuple(report["findings"]), cog=target, item=item)


def _body(url: str) -> bytes:
    answer = http("GET", url)
    assert answer.status == 200, answer.body[:500]
    return answer.body


@pytest.mark.parametrize("name", [*ALONE, *FOREIGN])
def test_a_case_is_published_or_refused_as_it_should_be(published: Callable[[str], Seen], name: str) -> None:
    judge(published(name))


def test_a_raster_without_crs_is_taken_once_the_submit_states_it(platform: Platform, tmp_path: Path) -> None:
    case = _written(tmp_path, "A01")
    again: dict[str, Any] = case.checks["rerun_with_submit"]
    source = platform.upload(case.source.read_bytes(), case.source.name)
    answer = platform.submit(source, "case-a01-again", options=again)
    status = platform.finished(answer.json["request_id"])
    assert status["state"] == "completed", status
    assert re.fullmatch(r"[0-9a-z-]+", answer.json["asset_id"])
