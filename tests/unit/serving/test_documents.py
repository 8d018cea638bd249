"""Items as they leave: what the catalogue cannot keep is put back."""

from typing import Any

import pytest

from serving.documents import with_nulls

NOON = {"datetime": "2024-05-01T12:00:00Z"}
YEAR = {"start_datetime": "2023-01-01T00:00:00Z", "end_datetime": "2023-12-31T23:59:59Z"}


@pytest.mark.parametrize(
    ("properties", "shown"),
    [
        ({**NOON, "proj:wkt2": "PROJCRS[…]"}, {**NOON, "proj:code": None, "proj:wkt2": "PROJCRS[…]"}),
        ({**NOON, "proj:projjson": {}, "proj:code": "EPSG:1"}, {**NOON, "proj:projjson": {}, "proj:code": "EPSG:1"}),
        ({**NOON, "title": "no raster"}, {**NOON, "title": "no raster"}),
        (YEAR, {**YEAR, "datetime": None}),
    ],
)
def test_what_has_no_code_or_no_instant_says_so(properties: dict[str, Any], shown: dict[str, Any]) -> None:
    assert with_nulls({"id": "a", "properties": properties}) == {"id": "a", "properties": shown}
