"""Bad input is refused, or fails, with its code and field; nothing half-written stays anywhere."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.acceptance.platform import Platform, http
from tests.acceptance.rasters import geotiff, terrain

Json = dict[str, Any]
MISSING = object()
REFUSALS: Mapping[str, tuple[Json, int, str, str]] = {
    "a missing data type": ({"data_type": MISSING}, 422, "PARAMETER_MISSING", "data_type"),
    "a missing source": ({"source": MISSING}, 422, "PARAMETER_MISSING", "source"),
    "an unknown field": ({"colour": "red"}, 422, "PARAMETER_INVALID", "colour"),
    "an unknown option": ({"options": {"speed": 3}}, 422, "PARAMETER_INVALID", "options.speed"),
    "an unknown platform": ({"platform_id": "nobody"}, 403, "FORBIDDEN", "platform_id"),
    "another platform": ({"platform_id": "arcgis"}, 403, "FORBIDDEN", "platform_id"),
    "a label with a blank at its end": ({"version_label": "v1 "}, 422, "PARAMETER_INVALID", "version_label"),
    "a missing ref": ({"resource_id": MISSING}, 422, "PARAMETER_MISSING", "resource_id"),
    "a ref that is a number": ({"dataset_id": 7}, 422, "PARAMETER_INVALID", "platform_refs.dataset_id"),
    "another platform's source": (
        {"source": {"container_name": "bronze", "blob_name": "uploads/arcgis/x.tif"}},
        403,
        "FORBIDDEN",
        "source",
    ),
    "another zone's source": (
        {"source": {"container_name": "silver", "blob_name": "uploads/ddh/x.tif"}},
        403,
        "FORBIDDEN",
        "source",
    ),
    "a name that climbs": (
        {"source": {"container_name": "bronze", "blob_name": "uploads/ddh/../arcgis/x.tif"}},
        422,
        "PARAMETER_INVALID",
        "blob_name",
    ),
    "a missing file": (
        {"source": {"container_name": "bronze", "blob_name": "uploads/ddh/none.tif"}},
        422,
        "FILE_NOT_FOUND",
        "file",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_submit_is_refused_and_writes_nothing(platform: Platform, name: str) -> None:
    change, status, code, field = REFUSALS[name]
    source = platform.upload(geotiff(terrain(20, 20)), "good.tif")
    before = platform.snapshot()
    body: Json = {
        "platform_id": "ddh",
        "dataset_id": "refused",
        "resource_id": "r1",
        "version_label": "v1",
        "data_type": "raster",
        "source": source,
        **change,
    }
    body = {key: value for key, value in body.items() if value is not MISSING}
    answer = http("POST", f"{platform.gateway}/api/platform/submit", headers=platform.as_("submitter-ddh"), body=body)
    assert answer.problem == (status, code, field), answer.body
    assert answer.json["detail"]
    assert platform.snapshot() == before


@pytest.mark.parametrize("headers", ["nobody", "reader-ddh", "gateway"])
def test_a_submit_without_the_right_to_it_writes_nothing(platform: Platform, headers: str) -> None:
    source = platform.upload(geotiff(terrain(20, 20)), "good.tif")
    before = platform.snapshot()
    sent = {} if headers == "nobody" else platform.as_(headers)
    body: Json = {"platform_id": "ddh", "dataset_id": "x", "resource_id": "y", "data_type": "raster", "source": source}
    answer = http("POST", f"{platform.gateway}/api/platform/submit", headers=sent, body=body)
    assert answer.problem[:2] == ((403, "FORBIDDEN") if headers == "reader-ddh" else (401, "UNAUTHENTICATED"))
    assert platform.snapshot() == before


FAILURES: Mapping[str, tuple[bytes, str, str]] = {
    "text": (b"id,name\n1,this is no raster at all\n" * 20, "RASTER_UNREADABLE", "file"),
    "without-crs": (geotiff(terrain(64, 64), crs=None), "CRS_MISSING", "crs"),
    "truncated": (geotiff(terrain(200, 200))[:20_000], "RASTER_UNREADABLE", "file"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_bad_file_fails_its_request_and_leaves_nothing_to_publish(platform: Platform, name: str) -> None:
    content, code, field = FAILURES[name]
    source = platform.upload(content, f"{name}.tif")
    before = platform.snapshot()
    accepted = platform.submit(source, f"bad-{name}").json
    status = platform.finished(accepted["request_id"])
    assert status["state"] == "failed"
    assert [(error["code"], error["field"]) for error in status["errors"]] == [(code, field)]
    assert status["errors"][0]["user_fixable"]

    after = platform.snapshot()
    for kept in ("blobs", "pgstac.items", "pgstac.collections", "dagqueue.messages"):
        assert after[kept] == before[kept], kept
    assert platform.approve(accepted["asset_id"], 0).problem[:2] == (409, "INVALID_TRANSITION")
    assert http("GET", f"{platform.serving}/stac/{accepted['asset_id']}").status == 404
    live = "SELECT count(*) FROM dagapp.dag_attempts WHERE state IN ('queued', 'leased') AND job_id IN (SELECT job_id"
    assert platform.value(f"{live} FROM dagapp.platform_request_jobs WHERE request_id = %s)", status["request_id"]) == 0
    folders = [path for path in (platform.stack.home.root / "workers").glob("*/scratch/*") if path.is_dir()]
    assert not [folder for folder in folders if status["request_id"] in folder.name]


def test_a_file_without_crs_succeeds_once_the_partner_states_it(platform: Platform) -> None:
    content = geotiff(terrain(64, 64), crs=None)
    first = platform.accepted(content, "stated-crs")
    assert platform.finished(first["request_id"])["errors"][0]["code"] == "CRS_MISSING"
    second = platform.accepted(content, "stated-crs", options={"crs": "EPSG:4326"})
    assert (second["version_ordinal"], second["revision"]) == (0, 2)
    assert platform.finished(second["request_id"])["state"] == "completed"


def test_a_broken_workflow_file_is_listed_as_broken_and_the_others_run(platform: Platform) -> None:
    answer = http("GET", f"{platform.orchestrator}/api/v1/workflows", headers=platform.as_("operator"))
    assert answer.status == 200, answer.body
    text = answer.body.decode()
    assert "broken.yaml" in text
    assert "echo_test" in text
    job = platform.create_job("echo_test", {"message": "still here"})
    url = f"{platform.orchestrator}/api/v1/jobs/{job}?wait=20"
    assert http("GET", url, headers=platform.as_("operator")).json["status"] == "COMPLETED"
