"""URLs as sources: what may be one, what a platform may name, and what is kept of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import Forbidden, GeodagError, ParameterInvalid
from core.sources import UrlSource, check_allowed, parse_url

SECRET = "sig=SECRET-aa11"
ALLOWED = [{"container": "bronze", "prefix": "ddh/"}, {"url": "https://data.example.org/exports/"}]


def test_the_query_is_taken_off_byte_for_byte_and_shown_nowhere() -> None:
    for query in ("sig=ab%2Bcd%2Fef%3D&se=2026", "sig=ab+cd/ef=", "a=1?b=2"):
        found = parse_url(f"https://data.example.org/exports/dem.tif?{query}")
        assert (found.url, found.query) == ("https://data.example.org/exports/dem.tif", query)
        assert query not in repr(found) + str(found)
    assert parse_url("https://data.example.org/a.tif").query is None


@pytest.mark.parametrize(
    "url",
    [
        "/vsicurl/http://127.0.0.1:9/x",  # D51
        "/vsicurl?header_file=/etc/hostname&url=http://127.0.0.1:9/x",
        "file:///etc/passwd",
        "ftp://data.example.org/a",
        "data.example.org/a",
        "https:///a",
        "https://[::1/a",
        "https://user:SECRET-aa11@data.example.org/a",
        "https://data.example.org/a#SECRET-aa11",
        "https://data.example.org/a?x#SECRET-aa11",
        "https://data.example.org",
        "https://data.example.org/",
        "https://data.example.org/exports/../private/a",
        "https://data.example.org/exports/%2e%2e/private/a",
        "https://data.example.org/exports/..%2fprivate/a",
        "https://data.example.org/exports/a%5cb",
        "https://data.example.org//exports/a",
        "https://data.example.org/a b",
        "https://data.example.org/a\r\nX: y",
        "https://data.example.org/ä",
        "https://data.example.org/a?" + "x" * 5000,
        "https://data.example.org/" + "x" * 3000,
        "https://data.example.org:99999/a",
    ],
)
def test_what_is_no_url_of_one_file_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(ParameterInvalid) as refused:
        parse_url(f"{url}&{SECRET}" if "?" in url else url)
    assert refused.value.detail.field == "source"
    assert "SECRET" not in refused.value.detail.model_dump_json()


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("https://data.example.org/exports/dem.tif", True),
        ("https://data.example.org:443/exports/a/dem.tif", True),
        ("https://DATA.example.org./exports/dem.tif", True),
        ("http://data.example.org/exports/dem.tif", False),
        ("https://data.example.org:8443/exports/dem.tif", False),
        ("https://data.example.org/exportsx/dem.tif", False),
        ("https://data.example.org/private/dem.tif", False),
        ("https://data.example.org.evil.test/exports/dem.tif", False),
        ("https://evil.test/data.example.org/exports/dem.tif", False),
    ],
)
def test_only_the_hosts_and_prefixes_of_the_registry_may_be_named(url: str, good: bool) -> None:
    source = parse_url(url)
    if good:
        check_allowed(source, "ddh", ALLOWED)
        return
    with pytest.raises(Forbidden) as refused:
        check_allowed(source, "ddh", ALLOWED)
    assert (refused.value.detail.field, refused.value.detail.code) == ("source", "FORBIDDEN")


def test_a_platform_without_urls_in_its_registry_row_may_name_none() -> None:
    with pytest.raises(Forbidden):
        check_allowed(parse_url("https://data.example.org/a"), "ddh", ALLOWED[:1])


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://h.example/a/dem%20v2.tif", "dem_v2.tif"),
        ("https://h.example/a/%C3%A4.tif", "tif"),
        ("https://h.example/.hidden", "hidden"),
        ("https://h.example/%20", "file"),
        ("https://h.example/" + "x" * 500 + ".tif", "x" * 116 + ".tif"),
    ],
)
def test_the_copy_has_a_plain_name(url: str, name: str) -> None:
    assert parse_url(url).file_name == name


@given(st.text(max_size=60))
def test_whatever_is_sent_is_a_source_or_a_refusal(text: str) -> None:
    try:
        found: UrlSource | GeodagError = parse_url(f"https://h.example/{text}")
    except GeodagError as error:
        found = error
    assert found.file_name.isascii() if isinstance(found, UrlSource) else found.detail.field == "source"
