"""The page of a report over real HTTP: who sees it, who sees pictures in it, and what may run in it: nothing."""

import re

import pytest
from psycopg.types.json import Jsonb

from core.models.business import ApprovalState, Clearance, ProcessingState
from tests.support.business import FOREIGNER, READER, REVIEWER, SUBMITTER, key_of
from tests.support.serving_world import ServingWorld, VersionSeed

ASSET = "e" * 32
PATH = f"/report/{ASSET}?version="
EVIL = '"><script>alert(1)</script>.tif'
REPORT = {
    "verdict": "accept_with_fixes",
    "findings": [
        {"code": "SIDECAR_USED", "level": "info", "field": "sidecar", "message": EVIL, "from": None, "to": EVIL}
    ],
    "raster": {"member": EVIL},
    "steps": [EVIL],
}


@pytest.fixture(scope="module")
def seeded(world: ServingWorld) -> ServingWorld:
    """Return a world with an approved, a pending and a failed version of an internal asset."""
    versions = {
        0: VersionSeed(blob_path="silver/dem.tif"),
        1: VersionSeed(ApprovalState.PENDING_REVIEW, blob_path="silver/dem.tif"),
        2: VersionSeed(ApprovalState.PENDING_REVIEW, ProcessingState.FAILED),
    }
    world.add_asset(ASSET, versions, clearance=Clearance.OUO)
    change = "UPDATE dagapp.asset_versions SET report = %s, title = %s WHERE asset_id = %s AND version_ordinal < 2"
    world.execute(change, Jsonb(REPORT), EVIL, ASSET)
    error = {"code": "CRS_MISSING", "message": "no CRS", "field": "crs", "user_fixable": True, "node_id": "validate"}
    world.execute("UPDATE dagapp.asset_versions SET error = %s WHERE asset_id = %s AND version_ordinal = 2",
                  Jsonb(error), ASSET)  # fmt: skip
    return world


@pytest.mark.parametrize(
    ("caller", "sees", "with_pictures"),
    [
        (None, (), ()),
        (FOREIGNER, (), ()),
        (READER, (0,), (0,)),
        (SUBMITTER, (0, 1, 2), ()),
        (REVIEWER, (0, 1, 2), (0, 1)),
    ],
)
def test_who_sees_the_status_sees_the_report_and_who_sees_pixels_the_pictures(
    seeded: ServingWorld, caller: object, sees: tuple[int, ...], with_pictures: tuple[int, ...]
) -> None:
    key = None if caller is None else key_of(caller)  # type: ignore[arg-type]
    answers = [seeded.get(f"{PATH}{ordinal}", key) for ordinal in range(4)]
    assert [answer.status for answer in answers] == [200 if n in sees else 404 for n in range(4)]
    assert tuple(n for n, answer in enumerate(answers) if b"data:image/png" in answer.body) == with_pictures


def test_nothing_runs_in_the_page_and_nobody_keeps_it(seeded: ServingWorld) -> None:
    answer = seeded.get(f"{PATH}1", key_of(REVIEWER))
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; img-src data:;")
    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == (
        "private, no-store",
        "nosniff",
    )
    page = answer.body.decode()
    assert re.findall(r"<script|onerror=|href=|src=\"(?!data:image/png;base64,)", page) == []
    assert page.count("&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;.tif") >= 4


def test_a_failed_version_shows_why(seeded: ServingWorld) -> None:
    page = seeded.get(f"{PATH}2", key_of(SUBMITTER)).body.decode()
    assert "Rejected" in page
    assert "CRS_MISSING" in page
    assert "validate" not in page.split("<main>")[1]
