import pytest

from core.errors import ParameterInvalid
from core.ports import BlobRef
from repositories.blob_names import check_name

GOOD = ["a", "a/b.tif", "ünïcode/日本.tif", "a b/c..d.tif", "x" * 1024, ".hidden", "a%2Fb", "C:/x"]
BAD = [
    "",
    "x" * 1025,
    "/leading",
    "a//b",
    "a/",
    "a/./b",
    "a/../b",
    "..",
    "a\\b",
    "a\x00b",
    "a\nb",
    "a\x7fb",
    "a\x85b",
    "trailing.",
    "u\u0308mlaut.tif",
    "a\ud800b",
    "a/.uploading-1/b",
]


@pytest.mark.parametrize("name", GOOD)
def test_a_name_within_the_rules_is_taken(name: str) -> None:
    assert check_name(BlobRef("bronze", name)).name == name


@pytest.mark.parametrize("name", BAD)
def test_a_name_outside_the_rules_is_refused_on_blob_name(name: str) -> None:
    with pytest.raises(ParameterInvalid) as caught:
        check_name(BlobRef("bronze", name))
    assert caught.value.detail.field == "blob_name"
    caught.value.detail.model_dump_json()


@pytest.mark.parametrize("container", ["", "gold", "..", "BRONZE", "bronze/x"])
def test_a_container_that_is_no_zone_is_refused(container: str) -> None:
    with pytest.raises(ParameterInvalid):
        check_name(BlobRef(container, "a"))
