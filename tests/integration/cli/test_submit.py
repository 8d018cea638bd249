"""What `geodag submit` asks for and shows, against a server on loopback."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from cli.commands.submit import WrongCommandLine
from cli.errors import ProcessingFailed, Refused
from cli.main import app
from core.b2b import SubmitRequest
from tests.support.cli_peer import CliPeer

FINDING = {"code": "NODATA_REPLACED", "level": "warning", "field": "nodata", "from": 0, "to": 7, "message": "so it is"}
CHECKED = {
    "asset_id": "a", "version_ordinal": 0, "revision": 1, "verdict": "accept_with_fixes",
    "report": {"verdict": "accept_with_fixes", "errors": [], "findings": [FINDING]},
}  # fmt: skip
REFUSED = {"code": "CRS_MISSING", "field": "crs", "detail": "the file has no CRS", "status": 422}


class Peer(CliPeer):
    """A gateway that takes a file and remembers what was submitted."""

    def __init__(self) -> None:
        super().__init__()
        self.submitted: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.state = "completed"
        self.refuses = False

    def reply(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        self.asked.append(path)
        if path.endswith("/uploads"):
            return 201, {"upload_url": f"{self.url}/put", "container_name": "bronze", "blob_name": "a.tif"}
        if path.startswith("/api/platform/status/"):
            return 200, {"request_id": "r1", "state": self.state, "errors": []}
        if path.endswith("/submit"):
            self.submitted.append(json.loads(body))
            if self.refuses:
                return 422, REFUSED
            return (200, CHECKED) if self.submitted[-1].get("dry_run") else (202, {"request_id": "r1"})
        return 200, {}


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    peer = Peer()
    with peer.reached(monkeypatch):
        yield peer


@pytest.fixture
def raster(tmp_path: Path) -> Path:
    path = tmp_path / "a.tif"
    path.write_bytes(b"x")
    return path


def run(raster: Path, *words: str) -> Result:
    refs = ("--dataset", "d", "--resource", "r", "--version-label", "v1")
    return CliRunner().invoke(app, ["submit", str(raster), *refs, *words])


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("", {}),
        ("--crs EPSG:4326", {"crs": "EPSG:4326"}),
        ("--crs EPSG:4326 --override-crs", {"crs": "EPSG:4326", "override_crs": True}),
        ("--nodata -9999", {"nodata": -9999.0}),
        ("--nodata 0", {"nodata": 0.0}),
        ("--subdataset winds/u:4", {"subdataset": "winds/u:4"}),
        ("--variable t2m", {"subdataset": "t2m"}),
        ("--member b/c.tif", {"member": "b/c.tif"}),
        ("--target-crs EPSG:3857", {"target_crs": "EPSG:3857"}),
    ],
)
def test_options_go_into_the_body_as_the_platform_knows_them(
    peer: Peer, raster: Path, words: str, options: dict[str, Any]
) -> None:
    assert run(raster, *words.split()).exit_code == 0
    (body,) = peer.submitted
    assert body["options"] == options
    assert SubmitRequest.model_validate(body).dry_run is False


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_what_json_has_no_number_for_is_refused_before_the_upload(peer: Peer, raster: Path, value: str) -> None:
    assert isinstance(run(raster, "--nodata", value).exception, WrongCommandLine)
    assert peer.asked == []


@pytest.mark.parametrize("words", [[], ["--wait"]])
def test_a_dry_run_shows_the_report_and_waits_for_nothing(peer: Peer, raster: Path, words: list[str]) -> None:
    done = run(raster, "--dry-run", *words)
    assert done.exit_code == 0
    assert peer.submitted[0]["dry_run"] is True
    assert not [path for path in peer.asked if "status" in path]
    for part in ("a.tif: checked, not submitted", "Accepted with fixes", "NODATA_REPLACED", "0 → 7"):
        assert part in done.output


def test_a_dry_run_as_json_is_the_whole_answer(peer: Peer, raster: Path) -> None:
    assert json.loads(run(raster, "--dry-run", "--json").stdout) == CHECKED


def test_a_dry_run_that_is_refused_is_a_refusal(peer: Peer, raster: Path) -> None:
    peer.refuses = True
    refusal = run(raster, "--dry-run").exception
    assert isinstance(refusal, Refused)
    assert refusal.problem == REFUSED


def test_what_is_only_submitted_is_called_so(peer: Peer, raster: Path) -> None:
    assert "Submitted" in run(raster).stdout


@pytest.mark.parametrize(
    ("state", "heading"),
    [("completed", "Processed"), ("failed", "Processing failed"), ("cancelled", "Processing cancelled")],
)
def test_the_heading_says_what_became_of_it(peer: Peer, raster: Path, state: str, heading: str) -> None:
    peer.state = state
    done = run(raster, "--wait")
    assert done.stdout.splitlines()[0].strip() == heading
    assert isinstance(done.exception, ProcessingFailed) == (state != "completed")
