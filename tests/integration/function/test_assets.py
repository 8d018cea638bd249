"""Lists of assets through the gateway: whose they are, what they are asked by, page by page."""

import asyncio
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from tests.integration.function.conftest import Platform


async def submitted(platform: Platform, resource: str, dataset: str = "D1") -> str:
    accepted = await platform.submit(platform_refs={"dataset_id": dataset, "resource_id": resource})
    await platform.end_job(accepted["request_id"])
    return str(accepted["asset_id"])


async def listed(platform: Platform, query: str = "", caller: str = "submitter") -> list[Any]:
    reply = await platform.call("GET", f"/api/assets{query}", caller)
    assert reply.status == 200, reply
    assert reply.headers["Cache-Control"] == "private, no-store"
    return [asset["asset_id"] for asset in reply.body["assets"]]


async def test_everybody_lists_what_he_may_know_of(platform: Platform) -> None:
    pending, approved = await submitted(platform, "a"), await submitted(platform, "b")
    path = f"/api/assets/{approved}/versions/0/approve"
    assert (await platform.call("POST", path, "reviewer", {"clearance_level": "ouo"})).status == 200
    seen = {
        caller: await listed(platform, caller=caller)
        for caller in ("submitter", "reader", "reviewer", "admin", "operator")
    }
    assert seen == {
        "submitter": [approved, pending],
        "reader": [approved],
        "reviewer": [approved, pending],
        "admin": [approved, pending],
        "operator": [],
    }
    assert await listed(platform, "?platform_id=arcgis") == []
    assert await listed(platform, "?published=true") == [approved]
    async with platform.orchestrator.context.pool.connection() as conn:
        await conn.execute("UPDATE dagapp.geospatial_assets SET platform_id = 'arcgis'")
    assert await listed(platform) == await listed(platform, "?platform_id=arcgis") == []
    assert await listed(platform, "?platform_id=arcgis", "reviewer") == [approved, pending]
    assert (await platform.call("GET", "/api/assets", None)).status == 401


async def test_assets_are_found_by_refs_and_read_page_by_page(platform: Platform) -> None:
    assets = [await submitted(platform, f"r{n}", f"D{n % 2}") for n in range(5)]
    assert await listed(platform, "?ref.dataset_id=D0") == [assets[4], assets[2], assets[0]]
    assert await listed(platform, "?ref.dataset_id=D1&ref.resource_id=r3") == [assets[3]]
    assert await listed(platform, "?ref.dataset_id=unknown") == []
    assert await listed(platform, "?data_type=vector") == []
    first = await platform.call("GET", "/api/assets?limit=3")
    rest = await platform.call("GET", f"/api/assets?limit=3&after={first.body['next_after']}")
    pages = [[asset["asset_id"] for asset in reply.body["assets"]] for reply in (first, rest)]
    assert pages == [assets[:1:-1], assets[1::-1]]
    assert rest.body["next_after"] is None
    assert first.body["assets"][0]["version_ordinals"] == [0]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("?limit=1000", "limit"),
        ("?after=abc", "after"),
        ("?colour=red", "colour"),
        ("?published=yes", "published"),
        ("?ref.dataset_id=", "ref.dataset_id"),
        ("?ref.dataset_id=%00", "ref.dataset_id"),
        ("?data_type=cube", "data_type"),
    ],
)
async def test_a_wrong_question_is_refused_by_name(standing: Platform, query: str, field: str) -> None:
    for caller in ("submitter", "operator"):
        reply = await standing.call("GET", f"/api/assets{query}", caller)
        assert (reply.status, reply.body["code"], reply.body["field"]) == (422, "PARAMETER_INVALID", field)


async def test_the_command_lists_assets_by_refs(platform: Platform) -> None:
    asset = await submitted(platform, "a")
    await submitted(platform, "b", "D2")
    env = {"GEODAG_GATEWAY_URL": platform.gateway, "GEODAG_API_KEY": "key-submitter"}
    words = ["assets", "--ref", "dataset_id=D1", "--json"]
    result = await asyncio.to_thread(CliRunner().invoke, app, words, env=env)
    assert [one["asset_id"] for one in json.loads(result.stdout)] == [asset]
