"""From the catalogue back to what a partner asked for (specification 003 §13.8)."""

import re
from typing import Any

import pytest

from core.identity import Caller, Role
from repositories import pgstac
from repositories.database import transaction
from tests.support.business import Business

ARCGIS = Caller(subject="artur", roles=frozenset({Role.SUBMITTER}), platform_id="arcgis")


def traces(item: dict[str, Any] | None) -> dict[str, str]:
    assert item is not None
    return {name: value for name, value in item["properties"].items() if name.startswith("platform:")}


@pytest.mark.parametrize(
    "named",
    [
        {"version_label": "2025-01"},
        {
            "version_label": None,
            "platform_refs": {"dataset_id": "0038272", "resource_id": "shapefile", "version_id": "2025-01"},
        },
        {
            "version_label": None,
            "platform_refs": None,
            "dataset_id": "0038272",
            "resource_id": "shapefile",
            "version_id": "2025-01",
        },
    ],
    ids=["by label", "by ref", "flat"],
)
async def test_a_published_item_names_every_id_of_its_platform_and_its_request(
    business: Business, named: dict[str, Any]
) -> None:
    accepted = await business.approved(**named)
    assert traces(await business.catalogued(accepted)) == {
        "platform:platform_id": "ddh",
        "platform:dataset_id": "0038272",
        "platform:resource_id": "shapefile",
        "platform:version_id": "2025-01",
        "platform:request_id": accepted.request_id,
    }


async def test_a_name_with_slashes_gives_an_item_that_is_read_and_deleted(business: Business) -> None:
    """C07 of the cases: ids are made of ours, never of a partner's names."""
    refs = {"dataset_id": "region/2024/a", "resource_id": "../b c?d#e"}
    accepted = await business.approved(platform_refs=refs, level="public")
    found = await business.catalogued(accepted)
    assert found is not None
    assert re.fullmatch(r"[0-9a-f]{32}-v0", found["id"])
    assert found["properties"]["platform:dataset_id"] == "region/2024/a"
    await business.revoke(accepted)
    assert await business.catalogued(accepted) is None


async def test_a_resubmit_leads_to_its_own_request(business: Business) -> None:
    first = await business.processed()
    await business.reject(first)
    again = await business.approved()
    assert again.version_ordinal == first.version_ordinal
    assert traces(await business.catalogued(again))["platform:request_id"] == again.request_id != first.request_id


async def test_each_platform_s_version_goes_by_its_own_name(business: Business) -> None:
    business.put("arcgis/x.tif", b"pixels")
    accepted = await business.processed(
        ARCGIS,
        platform_id="arcgis",
        platform_refs={"item_id": "1", "layer_index": "0"},
        source={"container_name": "bronze", "blob_name": "arcgis/x.tif"},
    )
    await business.approve(accepted)
    async with transaction(business.pool) as conn:
        item = await pgstac.read_item(conn, "arcgis-raster", f"{accepted.asset_id}-v0")
    assert traces(item) == {
        "platform:platform_id": "arcgis",
        "platform:item_id": "1",
        "platform:layer_index": "0",
        "platform:version": "V1",
        "platform:request_id": accepted.request_id,
    }
