"""Who sees which version through which door: one table, asked by every door (b2b contract, "Who sees what").

`decide` answers with the ordinal to show and how it may be cached, or hides everything alike (404): a reader can not
tell "forbidden" from "does not exist". Several roles in one credential see the union of what each role sees.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, assert_never

from pydantic.dataclasses import dataclass as checked

from core.errors import ParameterInvalid
from core.identity import Caller, Role
from core.models.business import ApprovalState, Clearance, Exposure, ProcessingState

Requested = Literal["latest"] | int
"""Which version a URL asks for; `latest` is the highest approved ordinal, never a pending one."""


class Door(StrEnum):
    """Every way to look at a version. STATUS is metadata and review state, the others are content."""

    STATUS = "status"
    TILES = "tiles"
    TILEJSON = "tilejson"
    PREVIEW = "preview"
    FEATURES = "features"
    STAC = "stac"
    DOWNLOAD = "download"


class Audience(StrEnum):
    """What a credential is to one asset; platform roles count only for their own platform's assets."""

    ANONYMOUS = "anonymous"
    SUBMITTER = "submitter"
    READER = "reader"
    REVIEWER = "reviewer"


class Show(StrEnum):
    """Which versions a cell of the table shows."""

    NOTHING = "nothing"
    PUBLIC = "public"
    """Approved and exposed versions of a public asset."""
    INTERNAL = "internal"
    """Approved and exposed versions of an asset cleared ouo or public."""
    REVIEW = "review"
    """Approved, pending and rejected versions, whatever the clearance and exposure."""
    ALL = "all"
    """Every version, also one that is still processing, failed or revoked."""


def _row(status: Show, content: Show) -> Mapping[Door, Show]:
    return {door: status if door is Door.STATUS else content for door in Door}


ACCESS_TABLE: Final[Mapping[Audience, Mapping[Door, Show]]] = {
    Audience.ANONYMOUS: _row(status=Show.NOTHING, content=Show.PUBLIC),
    Audience.SUBMITTER: _row(status=Show.ALL, content=Show.PUBLIC),
    Audience.READER: _row(status=Show.INTERNAL, content=Show.INTERNAL),
    Audience.REVIEWER: _row(status=Show.ALL, content=Show.REVIEW),
}
"""Audience x door -> what is shown; printed in docs/security.md, tested cell by cell."""

IN_REVIEW: Final = frozenset({ApprovalState.APPROVED, ApprovalState.PENDING_REVIEW, ApprovalState.REJECTED})
INTERNAL: Final = frozenset({Clearance.OUO, Clearance.PUBLIC})

PUBLIC_CACHE: Final = "public, max-age=2, must-revalidate"
"""Revocation acts within 5 s on every door, caches included."""
PRIVATE_CACHE: Final = "private, no-store"


@checked(frozen=True, slots=True)
class AssetFacts:
    """What the policy reads of an asset."""

    asset_id: str
    platform_id: str
    clearance_state: Clearance
    exposure: Exposure
    latest_approved_version_ordinal: int | None
    deleted: bool = False


@checked(frozen=True, slots=True)
class VersionFacts:
    """What the policy reads of one version."""

    version_ordinal: int
    approval_state: ApprovalState
    processing_state: ProcessingState
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer: the ordinal to show, or None for 404, and the Cache-Control of either."""

    ordinal: int | None
    cache_control: str

    @property
    def allowed(self) -> bool:
        """True when there is something to show."""
        return self.ordinal is not None


HIDDEN: Final = Decision(ordinal=None, cache_control=PRIVATE_CACHE)


def parse_requested(text: str | None) -> Requested:
    """Return what `?version=` asks for; absent means latest.

    Raises:
        ParameterInvalid: it is neither `latest` nor a number of at most nine digits.
    """
    if text is None or text == "latest":
        return "latest"
    if text.isascii() and text.isdigit() and len(text) <= 9:
        return int(text)
    raise ParameterInvalid(
        f"version is {text[:40]!r}; expected latest or an ordinal such as 0", field="version", value=text[:40]
    )


def audiences(caller: Caller | None, platform_id: str) -> frozenset[Audience]:
    """Return everything a caller is to an asset of `platform_id`; an unbound platform role counts for nothing."""
    found = {Audience.ANONYMOUS}
    if caller is None:
        return frozenset(found)
    own = caller.platform_id is not None and caller.platform_id == platform_id
    if own and caller.has(Role.SUBMITTER):
        found.add(Audience.SUBMITTER)
    if own and caller.has(Role.READER):
        found.add(Audience.READER)
    if caller.has(Role.REVIEWER, Role.ADMIN):
        found.add(Audience.REVIEWER)
    return frozenset(found)


def decide(
    caller: Caller | None,
    asset: AssetFacts | None,
    versions: Sequence[VersionFacts],
    requested: Requested,
    door: Door,
) -> Decision:
    """Return which version this caller sees through this door, and how the answer may be cached.

    Args:
        caller: A verified caller, or None for anonymous.
        asset: None when there is no such asset; answered like a hidden one.
        versions: At least the version asked for; others are ignored.
        requested: `latest` or an ordinal.
        door: The door knocked at.
    """
    if asset is None or asset.deleted:
        return HIDDEN
    ordinal = asset.latest_approved_version_ordinal if requested == "latest" else requested
    version = next((v for v in versions if v.version_ordinal == ordinal and not v.deleted), None)
    if version is None or not _readable(version, door):
        return HIDDEN
    cells = (ACCESS_TABLE[audience][door] for audience in audiences(caller, asset.platform_id))
    if not any(_shows(cell, asset, version) for cell in cells):
        return HIDDEN
    return Decision(version.version_ordinal, _cache_control(asset, version, door))


def visible(
    caller: Caller | None, asset: AssetFacts, versions: Sequence[VersionFacts], door: Door = Door.STATUS
) -> frozenset[int]:
    """Return the ordinals of all versions this caller may see through a door, for lists."""
    ordinals = (v.version_ordinal for v in versions)
    return frozenset(n for n in ordinals if decide(caller, asset, versions, n, door).allowed)


def _readable(version: VersionFacts, door: Door) -> bool:
    return door is Door.STATUS or version.processing_state is ProcessingState.COMPLETED


def _shows(show: Show, asset: AssetFacts, version: VersionFacts) -> bool:
    match show:
        case Show.NOTHING:
            return False
        case Show.PUBLIC:
            return asset.clearance_state is Clearance.PUBLIC and _exposed(asset, version)
        case Show.INTERNAL:
            return asset.clearance_state in INTERNAL and _exposed(asset, version)
        case Show.REVIEW:
            return version.approval_state in IN_REVIEW
        case Show.ALL:
            return True
        case _:
            assert_never(show)


def _exposed(asset: AssetFacts, version: VersionFacts) -> bool:
    """Approved, and the latest approved one unless every approved version has live URLs."""
    if version.approval_state is not ApprovalState.APPROVED:
        return False
    latest = version.version_ordinal == asset.latest_approved_version_ordinal
    return latest or asset.exposure is Exposure.ALL_VERSIONS


def _cache_control(asset: AssetFacts, version: VersionFacts, door: Door) -> str:
    """Shared caches may keep only what an anonymous caller sees through the same door."""
    public = _shows(ACCESS_TABLE[Audience.ANONYMOUS][door], asset, version)
    return PUBLIC_CACHE if public else PRIVATE_CACHE
