"""Items as they leave: what the catalogue cannot keep is put back."""

from typing import Any

import pytest

from serving.documents import with_null_code


@pytest.mark.parametrize(
    ("properties", "shown"),
    [
        ({"proj:wkt2": "PROJCRS[…]"}, {"proj:code": None, "proj:wkt2": "PROJCRS[…]"}),
        ({"proj:projjson": {}, "proj:code": "EPSG:32633"}, {"proj:projjson": {}, "proj:code": "EPSG:32633"}),
        ({"title": "no raster"}, {"title": "no raster"}),
    ],
)
def test_a_crs_without_a_code_says_so(properties: dict[str, Any], shown: dict[str, Any]) -> None:
    item = {"id": "a", "properties": properties}
    assert with_null_code(item) == {"id": "a", "properties": shown}
