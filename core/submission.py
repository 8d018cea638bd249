"""From a submit's body and its platform's registry row to something that can be stored. Pure.

Order of the checks: who may (platform), shape (fields), identity (refs and label), reach (source, workflow,
collection). Each refusal names its field.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from core import b2b, ids
from core.errors import Conflict, Forbidden, ParameterInvalid, ParameterMissing
from core.handler_models import RasterOptions
from core.identity import Caller
from core.models.business import Platform
from core.payloads import is_payload
from core.ports import BlobRef
from core.sources import UrlSource, check_allowed, parse_url
from core.texts import is_clean, is_name
from core.wording import json_kind, readable

Json = dict[str, Any]

INGEST_WORKFLOWS: Final[Mapping[str, str]] = {"raster": "raster_tiled", "vector": "vector_ingest"}
VALIDATE_WORKFLOWS: Final[Mapping[str, str]] = {"raster": "raster_inspect", "vector": "vector_validate"}
RASTER_OPTIONS: Final = frozenset(RasterOptions.model_fields)
VECTOR_OPTIONS: Final = frozenset({"crs", "override_crs", "layer", "x", "y", "wkt", "encoding", "split_geometries"})
_ALWAYS: Final = frozenset({"collection_id"})
COLLECTION_WORKFLOW: Final = "raster_collection"
"""The workflow that makes one version of several files."""
_OF_COLLECTIONS: Final = frozenset({"tolerate_files", "resolution_tolerance"})
_NOT_OF_COLLECTIONS: Final = ("target_crs", "member", "subdataset")
"""Options that say something about one file, or would move files off their common grid."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A submit that passed every check that needs no database and no blob."""

    request: b2b.SubmitRequest
    asset_id: str
    identity_refs: Mapping[str, str]
    other_refs: Mapping[str, str]
    version_label: str
    source: BlobRef | UrlSource
    workflow_id: str
    collection_id: str
    options: Json
    """Options as the workflow's handlers take them."""
    idempotency_key: str | None
    body_hash: str
    """Of everything but the idempotency key and the credential of a URL."""
    body: Json
    """What was sent, without the credential of a URL."""
    version_ref: str
    """The platform's own name for what we call a version label."""
    files: tuple[BlobRef, ...] = ()
    """All files of a collection, `source` the first of them; empty otherwise."""
    tolerances: Mapping[str, Any] = field(default_factory=dict)
    """What a collection forgives, as its workflow takes it."""

    @property
    def title(self) -> str:
        """The submit's title, or the original file name."""
        if self.request.title:
            return self.request.title
        if isinstance(self.source, UrlSource):
            return self.source.file_name
        name = self.source.name.rpartition("/")[2]
        return name if len(self.files) < 2 else f"{name} and {len(self.files) - 1} more"

    @property
    def properties(self) -> dict[str, str]:
        """Traceability of specification 003 §13.8, but for the request id."""
        refs = {**self.identity_refs, **self.other_refs, self.version_ref: self.version_label}
        return {"platform:platform_id": self.request.platform_id} | {f"platform:{k}": v for k, v in refs.items()}


def platform_id_of(body: Mapping[str, Any]) -> str:
    """Return the platform a body speaks for.

    Raises:
        ParameterMissing, ParameterInvalid: there is none, or it can be none.
    """
    if "platform_id" not in body:
        raise ParameterMissing("platform_id is missing", field="platform_id")
    platform_id = body["platform_id"]
    if not isinstance(platform_id, str):
        kind = json_kind(platform_id)
        raise ParameterInvalid(f"platform_id is a {kind}; expected a string", field="platform_id", value=kind)
    if not 1 <= len(platform_id) <= 64 or not is_name(platform_id):
        raise ParameterInvalid("platform_id: expected 1 to 64 printable characters", field="platform_id")
    return platform_id


def own_platform(platform: Platform | None, platform_id: str, caller: Caller) -> Platform:
    """Return the registry row of the caller's own platform.

    Raises:
        Forbidden: the caller is bound to another platform, or to none; whether there is that other one is not told.
        ParameterInvalid: his own platform is not registered, or switched off.
    """
    if caller.platform_id != platform_id:
        raise Forbidden(
            f"the credential is not bound to platform {platform_id}", field="platform_id", value=platform_id
        )
    if platform is None or not platform.is_active:
        raise ParameterInvalid(f"{platform_id!r} is no active platform", field="platform_id", value=platform_id)
    return platform


def parse_submission(body: Mapping[str, Any], platform: Platform, header_key: str | None = None) -> Submission:
    """Return a checked submission of a body, or raise the `CallerError` of its first problem."""
    request = b2b.parse(b2b.SubmitRequest, _gather_refs(body, platform))
    flat = "platform_refs" not in body
    identity, others, label = _identity(request, platform, flat)
    files = _files(request, platform) if request.workflow_id == COLLECTION_WORKFLOW else ()
    source = files[0] if files else _source(request.source, platform)
    options = _options(request)
    bare = {**body, "source": {"url": source.url}} if isinstance(source, UrlSource) else dict(body)
    return Submission(
        request=request,
        asset_id=ids.asset_id(platform.platform_id, identity),
        identity_refs=identity,
        other_refs=others,
        version_label=label,
        source=source,
        workflow_id=_workflow(request, platform),
        collection_id=_collection(request, platform),
        options={name: value for name, value in options.items() if name not in _OF_COLLECTIONS},
        idempotency_key=idempotency_key(request.idempotency_key, header_key),
        body_hash=ids.digest({k: v for k, v in bare.items() if k != "idempotency_key"}),
        body=bare,
        version_ref=platform.version_ref,
        files=files,
        tolerances={name: value for name, value in options.items() if name in _OF_COLLECTIONS},
    )


def known_refs(platform: Platform) -> tuple[str, ...]:
    """Return the names a platform's refs may have, in order, each once."""
    return tuple(dict.fromkeys([*platform.required_refs, *platform.optional_refs, platform.version_ref]))


def _gather_refs(body: Mapping[str, Any], platform: Platform) -> Json:
    """Move flat refs into `platform_refs`; both at once would say things twice."""
    names = set(known_refs(platform)) - set(b2b.SubmitRequest.model_fields)
    flat = {k: v for k, v in body.items() if k in names}
    rest = {k: v for k, v in body.items() if k not in names}
    if flat and "platform_refs" in rest:
        name = min(flat)
        raise ParameterInvalid(f"{name} stands beside platform_refs; give refs in one place", field=name)
    return rest if "platform_refs" in rest else rest | {"platform_refs": flat}


def _identity(request: b2b.SubmitRequest, platform: Platform, flat: bool) -> tuple[dict[str, str], dict[str, str], str]:
    refs = request.platform_refs
    prefix = "" if flat else "platform_refs."
    for name in platform.required_refs:
        if name not in refs:
            raise ParameterMissing(
                f"{platform.platform_id} needs the ref {name}",
                field=f"{prefix}{name}",
                remediation=f"Send {', '.join(platform.required_refs)}.",
            )
    if unknown := sorted(set(refs) - set(known_refs(platform))):
        name = unknown[0][:64]
        known = ", ".join(known_refs(platform))
        raise ParameterInvalid(f"{name!r} is no ref of {platform.platform_id}; it has {known}", field=f"{prefix}{name}")
    identity = {name: refs[name] for name in platform.required_refs}
    others = {name: value for name, value in refs.items() if name not in identity}
    return identity, others, _label(request.version_label, others.get(platform.version_ref), platform.version_ref)


def _label(stated: str | None, ref: str | None, version_ref: str) -> str:
    if stated is None and ref is None:
        raise ParameterMissing(f"version_label (or the ref {version_ref}) is missing", field="version_label")
    if stated is not None and ref is not None and stated != ref:
        raise ParameterInvalid(
            f"version_label is {stated!r} but {version_ref} is {ref!r}; they name the same thing",
            field="version_label",
            value=stated,
        )
    return stated if stated is not None else str(ref)


def _source(source: b2b.Source, platform: Platform) -> BlobRef | UrlSource:
    _check_one_kind(source)
    if source.url is not None:
        found = parse_url(source.url)
        check_allowed(found, platform.platform_id, platform.allowed_sources)
        return found
    if source.container_name is None:
        raise ParameterMissing("container_name is missing", field="container_name")
    return _blob(source.container_name, _only_name(source), platform)


def _files(request: b2b.SubmitRequest, platform: Platform) -> tuple[BlobRef, ...]:
    """Return the files of a collection, each allowed and none twice."""
    source, names = request.source, list(request.source.blob_names or ())
    _check_one_kind(source)
    if source.url is not None or source.container_name is None:
        raise ParameterMissing("container_name is missing; a collection lies in the zones", field="container_name")
    names = [source.blob_name] if source.blob_name is not None else names
    if not 1 <= len(names) <= b2b.MAX_FILES:
        raise ParameterInvalid(
            f"blob_names has {len(names)} entries; expected 1 to {b2b.MAX_FILES}", field="blob_names", value=len(names)
        )
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise ParameterInvalid(f"blob_names has {twice[0][:100]!r} twice", field="blob_names", value=twice[0][:100])
    return tuple(_blob(source.container_name, name, platform) for name in names)


def _blob(container: str, name: str, platform: Platform) -> BlobRef:
    ref = BlobRef(container, check_blob_name(name))
    if not _allowed(ref, platform.allowed_sources):
        allowed = ", ".join(f"{s['container']}/{s.get('prefix', '')}" for s in platform.allowed_sources if _is_blob(s))
        raise Forbidden(
            f"{platform.platform_id} may not read {str(ref)[:200]!r}", field="source", remediation=f"Allowed: {allowed}"
        )
    return ref


def _check_one_kind(source: b2b.Source) -> None:
    given = [name for name in ("blob_name", "blob_names", "url") if getattr(source, name) is not None]
    if not given:
        raise ParameterMissing("blob_name is missing", field="blob_name")
    if len(given) > 1 or (source.url is not None and source.container_name is not None):
        raise ParameterInvalid(
            f"source has {' and '.join(given)}; expected container_name with blob_name, or url", field="source"
        )


def _only_name(source: b2b.Source) -> str:
    names = [source.blob_name] if source.blob_name is not None else list(source.blob_names or ())
    if len(names) != 1:
        raise ParameterInvalid(
            f"blob_names has {len(names)} entries; expected 1",
            field="blob_names",
            remediation=f"Send one archive, or say workflow_id {COLLECTION_WORKFLOW}.",
        )
    return names[0]


def check_blob_name(name: str, field: str = "blob_name") -> str:
    """Return a blob name that keeps the rules of "names and titles", or raise `ParameterInvalid` on `blob_name`."""
    segments = name.split("/")
    faults = {
        "expected 1 to 1,024 characters": not 1 <= len(name) <= 1024,
        "expected NFC without control characters": not is_clean(name),
        "a backslash is not allowed": "\\" in name,
        "a leading slash is not allowed": name.startswith("/"),
        "empty, . and .. segments are not allowed": any(s in {"", ".", ".."} for s in segments),
        "a trailing dot is not allowed": name.endswith("."),
    }
    for message, broken in faults.items():
        if broken:
            shown = readable(name[:100])
            raise ParameterInvalid(f"{field} {shown!r}: {message}", field=field, value=shown)
    return name


def _is_blob(source: Mapping[str, Any]) -> bool:
    return "container" in source


def _allowed(ref: BlobRef, allowed: Iterable[Mapping[str, Any]]) -> bool:
    if is_payload(ref.container, ref.name):
        return False
    rules = (s for s in allowed if _is_blob(s))
    return any(s["container"] == ref.container and ref.name.startswith(s.get("prefix", "")) for s in rules)


def _workflow(request: b2b.SubmitRequest, platform: Platform) -> str:
    default = INGEST_WORKFLOWS[request.data_type]
    workflow_id = request.workflow_id or default
    if workflow_id not in platform.allowed_workflows:
        field = "data_type" if request.workflow_id is None else "workflow_id"
        raise Forbidden(
            f"{platform.platform_id} may not run {workflow_id}",
            field=field,
            value=workflow_id,
            remediation=f"Allowed: {', '.join(platform.allowed_workflows)}",
        )
    return workflow_id


def _collection(request: b2b.SubmitRequest, platform: Platform) -> str:
    wanted = request.options.collection_id
    if wanted is None:
        return f"{platform.collection_prefix}{request.data_type}"
    if not wanted.startswith(platform.collection_prefix):
        raise Forbidden(
            f"collections of {platform.platform_id} start with {platform.collection_prefix!r}",
            field="options.collection_id",
            value=wanted,
        )
    return wanted


def _options(request: b2b.SubmitRequest) -> Json:
    """Keep what was set; refuse what belongs to the other data type."""
    given = request.options.model_dump(exclude_defaults=True)
    if "variable" in given:
        if "subdataset" in given:
            raise ParameterInvalid("variable is another name of subdataset; give one", field="options.variable")
        given["subdataset"] = given.pop("variable")
    known = RASTER_OPTIONS if request.data_type == "raster" else VECTOR_OPTIONS
    if request.workflow_id == COLLECTION_WORKFLOW:
        known = (known | _OF_COLLECTIONS) - set(_NOT_OF_COLLECTIONS)
    if foreign := sorted(set(given) - known - _ALWAYS):
        raise ParameterInvalid(
            f"{foreign[0]} does not apply to {request.workflow_id or f'data_type {request.data_type}'}",
            field=f"options.{foreign[0]}",
        )
    _check_interval(given)
    return {k: v for k, v in given.items() if k not in _ALWAYS}


def _check_interval(given: Mapping[str, Any]) -> None:
    start, end = given.get("start_datetime"), given.get("end_datetime")
    if (start is None) != (end is None):
        absent = "end_datetime" if end is None else "start_datetime"
        raise ParameterMissing(f"{absent} is missing; an interval has both ends", field=f"options.{absent}")
    if start is not None and end is not None and b2b.moment(start) > b2b.moment(end):
        raise ParameterInvalid("start_datetime is after end_datetime", field="options.start_datetime", value=start)


def key_conflict(key: str | None) -> Conflict:
    """Return the refusal of another body under a known idempotency key."""
    return Conflict(
        "this idempotency key was used with another body",
        code="IDEMPOTENCY_CONFLICT",
        field="idempotency_key",
        value=key,
        remediation="Use a new key for a new request.",
    )


def idempotency_key(in_body: str | None, in_header: str | None) -> str | None:
    """Return the key of a call out of its two places; raises `ParameterInvalid` for one that can be none."""
    if in_header is None:
        return in_body
    if not 1 <= len(in_header) <= 255 or not (in_header.isascii() and in_header.isprintable()) or " " in in_header:
        raise ParameterInvalid("Idempotency-Key: expected 1 to 255 visible ASCII characters", field="idempotency_key")
    if in_body is not None and in_body != in_header:
        raise ParameterInvalid("the header and the body name different idempotency keys", field="idempotency_key")
    return in_header
