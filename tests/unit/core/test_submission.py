"""What a submit's body may say, and how each refusal names its field."""

from typing import Any

import pytest

from core import ids
from core.b2b import parse, parse_body
from core.b2b_assets import ApproveRequest, CommentRequest, RejectRequest, RevokeRequest, VersionAddress
from core.errors import CallerError, Forbidden, ParameterInvalid, PayloadTooLarge
from core.identity import Caller, Role
from core.models.business import Platform
from core.submission import check_blob_name, own_platform, parse_submission, platform_id_of

DDH = Platform.model_validate(
    {
        "platform_id": "ddh",
        "display_name": "Data Hub",
        "required_refs": ["dataset_id", "resource_id"],
        "optional_refs": ["theme"],
        "version_ref": "version_id",
        "allowed_sources": [{"container": "bronze", "prefix": "ddh/"}, {"url_prefix": "https://data.example/"}],
        "allowed_workflows": ["raster_tiled"],
        "collection_prefix": "ddh-",
        "created_at": "2026-01-01T00:00:00Z",
    }
)


def body(**changes: Any) -> dict[str, Any]:
    """Return a good body with some fields changed; None removes one."""
    good: dict[str, Any] = {
        "platform_id": "ddh",
        "platform_refs": {"dataset_id": "0038272", "resource_id": "shapefile"},
        "version_label": "V1",
        "data_type": "raster",
        "source": {"container_name": "bronze", "blob_name": "ddh/dem.tif"},
    }
    return {k: v for k, v in (good | changes).items() if v is not None}


def refusal(sent: dict[str, Any], header_key: str | None = None) -> tuple[str, str | None]:
    """Return code and field of the refusal of a body."""
    with pytest.raises(CallerError) as refused:
        parse_submission(sent, DDH, header_key)
    return refused.value.detail.code, refused.value.detail.field


def test_stored_values_of_jobs_are_no_source_whatever_a_platform_may_read() -> None:
    everything = DDH.model_copy(update={"allowed_sources": [{"container": "silver"}]})
    for name, allowed in (("payloads/job/values/x.json", False), ("a/payloads/x.tif", True)):
        sent = body(source={"container_name": "silver", "blob_name": name})
        if allowed:
            assert parse_submission(sent, everything).source.name == name
        else:
            with pytest.raises(Forbidden):
                parse_submission(sent, everything)


def test_the_asset_id_of_the_specification_is_reproduced() -> None:
    assert parse_submission(body(), DDH).asset_id == "a9234e9e7b1ae7c5151568522b54db33"
    assert ids.asset_id("ddh", {"resource_id": "shapefile", "dataset_id": "0038272"}) == (
        "a9234e9e7b1ae7c5151568522b54db33"
    )


def test_neither_label_nor_optional_refs_change_the_asset() -> None:
    refs = {"dataset_id": "0038272", "resource_id": "shapefile", "theme": "relief", "version_id": "V9"}
    found = parse_submission(body(platform_refs=refs, version_label=None), DDH)
    assert (found.asset_id, found.version_label) == ("a9234e9e7b1ae7c5151568522b54db33", "V9")
    assert found.properties["platform:theme"] == "relief"


def test_refs_may_stand_flat_beside_the_other_fields() -> None:
    flat = body(platform_refs=None, dataset_id="0038272", resource_id="shapefile", version_id="V1", version_label=None)
    assert parse_submission(flat, DDH).asset_id == "a9234e9e7b1ae7c5151568522b54db33"
    assert parse_submission(flat, DDH).version_label == "V1"


def test_what_is_left_out_gets_its_default() -> None:
    found = parse_submission(body(), DDH)
    assert (found.title, found.collection_id, found.workflow_id) == ("dem.tif", "ddh-raster", "raster_tiled")
    assert (found.request.access_level, found.request.priority, found.options) == ("ouo", 5, {})


@pytest.mark.parametrize("field", ["version_label", "data_type", "source"])
def test_a_missing_field_is_named(field: str) -> None:
    assert refusal(body(**{field: None})) == ("PARAMETER_MISSING", field)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"platform_refs": {"dataset_id": "1"}}, "platform_refs.resource_id"),
        ({"platform_refs": None, "dataset_id": "1"}, "resource_id"),
        ({"platform_refs": None}, "dataset_id"),
        ({"source": {"blob_name": "ddh/a.tif"}}, "container_name"),
        ({"source": {"container_name": "bronze"}}, "blob_name"),
        ({"source": {}}, "blob_name"),
        ({"options": {"start_datetime": "2020-01-01T00:00:00Z"}}, "options.end_datetime"),
    ],
)
def test_a_missing_part_is_named(changes: dict[str, Any], field: str) -> None:
    assert refusal(body(**changes)) == ("PARAMETER_MISSING", field)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"colour": "red"}, "colour"),
        ({"job_id": "x"}, "job_id"),
        ({"platform_refs": {"dataset_id": "1", "resource_id": "2", "extra": "3"}}, "platform_refs.extra"),
        ({"platform_refs": {"dataset_id": 38272, "resource_id": "2"}}, "platform_refs.dataset_id"),
        ({"platform_refs": {"dataset_id": "", "resource_id": "2"}}, "platform_refs.dataset_id"),
        ({"platform_refs": {"dataset_id": "x" * 257, "resource_id": "2"}}, "platform_refs.dataset_id"),
        ({"platform_refs": {"dataset_id": "a\x00", "resource_id": "2"}}, "platform_refs.dataset_id"),
        ({"platform_refs": {"dataset_id": "a\x85", "resource_id": "2"}}, "platform_refs.dataset_id"),
        ({"platform_refs": {"dataset_id": "e\u0301", "resource_id": "2"}}, "platform_refs.dataset_id"),
        ({"platform_refs": {"dataset_id": "\ud800", "resource_id": "2"}}, "platform_refs.dataset_id"),
        ({"platform_refs": ["1"]}, "platform_refs"),
        ({"dataset_id": "1"}, "dataset_id"),
        ({"version_label": ""}, "version_label"),
        ({"version_label": 1}, "version_label"),
        ({"data_type": "point cloud"}, "data_type"),
        ({"title": "two\nlines"}, "title"),
        ({"description": "nul\x00"}, "description"),
        ({"tags": "one"}, "tags"),
        ({"tags": [1]}, "tags.0"),
        ({"tags": ["t"] * 51}, "tags"),
        ({"access_level": "uncleared"}, "access_level"),
        ({"previous_version_ordinal": -1}, "previous_version_ordinal"),
        ({"previous_version_ordinal": True}, "previous_version_ordinal"),
        ({"previous_version_ordinal": 10**400}, "previous_version_ordinal"),
        ({"priority": 11}, "priority"),
        ({"dry_run": "yes"}, "dry_run"),
        ({"idempotency_key": "with space"}, "idempotency_key"),
        ({"callback_url": "ftp://host/x"}, "callback_url"),
        ({"callback_url": "https://user:secret@host/x"}, "callback_url"),
        ({"callback_url": "https://host/x?sig=secret"}, "callback_url"),
        ({"options": {"nodata": "none"}}, "options.nodata"),
        ({"options": {"datetime": "yesterday"}}, "options.datetime"),
        ({"options": {"datetime": "2020-01-01T00:00:00"}}, "options.datetime"),
        ({"options": {"layer": "roads"}}, "options.layer"),
        ({"options": {"colour": 1}}, "options.colour"),
        ({"options": {"collection_id": "ddh-../x"}}, "options.collection_id"),
        ({"options": {"variable": "a", "subdataset": "b"}}, "options.variable"),
        (
            {"options": {"start_datetime": "2021-01-01T00:00:00Z", "end_datetime": "2020-01-01T00:00:00Z"}},
            "options.start_datetime",
        ),
        ({"source": {"container_name": "bronze", "blob_name": "ddh/a", "blob_names": ["ddh/a"]}}, "source"),
        ({"source": {"container_name": "bronze", "url": "https://data.example/a.tif"}}, "source"),
        ({"source": {"container_name": "bronze", "blob_names": ["ddh/a", "ddh/b"]}}, "blob_names"),
        ({"source": {"container_name": "bronze", "blob_name": 7}}, "blob_name"),
        ({"source": {"container_name": "bronze", "blob_name": "ddh/a", "sas": "x"}}, "sas"),
    ],
)
def test_a_wrong_or_unknown_field_is_named(changes: dict[str, Any], field: str) -> None:
    assert refusal(body(**changes)) == ("PARAMETER_INVALID", field)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"source": {"container_name": "silver", "blob_name": "ddh/a.tif"}}, "source"),
        ({"source": {"container_name": "bronze", "blob_name": "arcgis/a.tif"}}, "source"),
        ({"source": {"container_name": "bronze", "blob_name": "ddhx/a.tif"}}, "source"),
        ({"source": {"url": "https://data.example/a.tif"}}, "source"),
        ({"workflow_id": "echo_test"}, "workflow_id"),
        ({"data_type": "vector"}, "data_type"),
        ({"options": {"collection_id": "arcgis-x"}}, "options.collection_id"),
    ],
)
def test_what_belongs_to_others_is_forbidden(changes: dict[str, Any], field: str) -> None:
    assert refusal(body(**changes)) == ("FORBIDDEN", field)


def test_all_problems_are_named_in_the_message() -> None:
    with pytest.raises(CallerError, match=r"data_type is missing \(also: priority, tags\)"):
        parse_submission(body(data_type=None, tags=1, priority=0), DDH)


def test_label_and_version_ref_must_agree() -> None:
    refs = {"dataset_id": "1", "resource_id": "2", "version_id": "V2"}
    assert refusal(body(platform_refs=refs)) == ("PARAMETER_INVALID", "version_label")
    assert parse_submission(body(platform_refs=refs, version_label="V2"), DDH).version_label == "V2"


def test_one_blob_may_also_come_as_a_list() -> None:
    source = {"container_name": "bronze", "blob_names": ["ddh/a.tif"]}
    assert str(parse_submission(body(source=source), DDH).source) == "bronze/ddh/a.tif"


def test_variable_is_another_name_of_subdataset() -> None:
    assert parse_submission(body(options={"variable": "t2m"}), DDH).options == {"subdataset": "t2m"}


@pytest.mark.parametrize("name", ["a.tif", "ddh/ä ö/x.tif", "a/..b/c", "x" * 1024, "100%25.tif"])
def test_a_plain_blob_name_passes_unchanged(name: str) -> None:
    assert check_blob_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 1025,
        "/a",
        "a//b",
        "a/",
        "./a",
        "a/../b",
        "..",
        "../x.tif",  # D53
        "a/../../x.tif",
        "/abs.tif",
        "a\\b",
        "a\x00",
        "a\nb",
        "a.",
        "e\u0301.tif",
        "\ud800",
    ],
)
def test_a_blob_name_that_could_mean_something_else_is_refused(name: str) -> None:
    with pytest.raises(ParameterInvalid) as refused:
        check_blob_name(name)
    assert refused.value.detail.field == "blob_name"
    str(refused.value).encode()


@pytest.mark.parametrize(
    ("header", "in_body", "key"), [("k1", None, "k1"), (None, "k2", "k2"), ("k3", "k3", "k3"), (None, None, None)]
)
def test_the_idempotency_key_comes_from_header_or_body(
    header: str | None, in_body: str | None, key: str | None
) -> None:
    assert parse_submission(body(idempotency_key=in_body), DDH, header).idempotency_key == key


@pytest.mark.parametrize(("header", "in_body"), [("a", "b"), ("", None), ("a b", None), ("ä", None), ("x" * 256, None)])
def test_a_bad_idempotency_key_is_refused(header: str, in_body: str | None) -> None:
    assert refusal(body(idempotency_key=in_body), header) == ("PARAMETER_INVALID", "idempotency_key")


def test_the_body_hash_ignores_the_key_and_the_order_of_fields() -> None:
    one = parse_submission(body(idempotency_key="a"), DDH).body_hash
    same = parse_submission(dict(reversed(body().items())), DDH, "b").body_hash
    other = parse_submission(body(title="x"), DDH).body_hash
    assert one == same != other


@pytest.mark.parametrize(
    ("sent", "code"),
    [({}, "PARAMETER_MISSING"), ({"platform_id": 7}, "PARAMETER_INVALID"), ({"platform_id": ""}, "PARAMETER_INVALID")],
)
def test_a_body_without_a_platform_is_refused(sent: dict[str, Any], code: str) -> None:
    with pytest.raises(CallerError) as refused:
        platform_id_of(sent)
    assert (refused.value.detail.code, refused.value.detail.field) == (code, "platform_id")


def submitter(platform: str | None) -> Caller:
    return Caller(subject="sue", roles=frozenset({Role.SUBMITTER}), platform_id=platform)


def test_an_unknown_or_inactive_platform_is_refused_by_name() -> None:
    inactive = DDH.model_copy(update={"is_active": False})
    for row in (None, inactive):
        with pytest.raises(ParameterInvalid) as refused:
            own_platform(row, "ddh", submitter("ddh"))
        assert refused.value.detail.field == "platform_id"


@pytest.mark.parametrize("platform", ["arcgis", None])
def test_a_caller_speaks_for_no_other_platform(platform: str | None) -> None:
    with pytest.raises(Forbidden) as refused:
        own_platform(DDH, "ddh", submitter(platform))
    assert refused.value.detail.field == "platform_id"


@pytest.mark.parametrize(
    "raw",
    [b"", b"[1]", b'"x"', b"{", b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":1e999}', b"\xff\xfe", b"[" * 100_000],
)
def test_a_body_that_is_no_plain_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(ParameterInvalid) as refused:
        parse_body(raw)
    assert refused.value.detail.field == "body"


def test_a_body_has_a_limit() -> None:
    with pytest.raises(PayloadTooLarge, match="at most 1048576"):
        parse_body(b" " * 1_048_577)


def test_the_reviewer_never_comes_from_the_body() -> None:
    for model in (ApproveRequest, RejectRequest):
        with pytest.raises(CallerError) as refused:
            parse(model, {"reason": "fine", "reviewer": "somebody"})
        assert refused.value.detail.field == "reviewer"


def test_a_rejection_needs_a_reason() -> None:
    for sent in ({}, {"reason": ""}, {"reason": None}):
        with pytest.raises(CallerError) as refused:
            parse(RejectRequest, sent)
        assert refused.value.detail.field == "reason"


@pytest.mark.parametrize("asset", ["A" * 32, "a" * 31, "a" * 32 + "\n", "../../../etc/passwd"])
def test_an_alias_takes_only_real_asset_ids(asset: str) -> None:
    with pytest.raises(CallerError) as refused:
        parse(VersionAddress, {"asset_id": asset, "version_ordinal": 0})
    assert refused.value.detail.field == "asset_id"


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\u00a0"])
def test_a_reason_or_comment_says_something(text: str) -> None:
    for model, field in ((RejectRequest, "reason"), (RevokeRequest, "reason"), (CommentRequest, "text")):
        with pytest.raises(CallerError) as refused:
            parse(model, {field: text})
        assert refused.value.detail.field == field
