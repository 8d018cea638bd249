"""From a URL to one version of one asset: look it up, ask the access policy, answer 404 to everything else.

The look-up is one indexed read a request, and no decision is kept: what is revoked is gone with the next request.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

from fastapi import Query, Request

from core import paging
from core.access import PUBLIC_CACHE, Door, Requested, decide, parse_requested
from core.identity import Caller
from core.ids import canonical_json
from edge.identity import Identity
from repositories.database import SyncPool, read
from repositories.routes import Facts, Route, find_route
from serving.errors import hidden

F = TypeVar("F", bound=Facts)
_ASSET_ID: Final = re.compile(r"[0-9a-f]{32}")

VersionQuery = Annotated[
    str | None, Query(description="`latest` (the default: the highest approved ordinal) or an ordinal such as 0.")
]


@dataclass(frozen=True, slots=True)
class Admitted:
    """A version that this caller may see through this door."""

    route: Route
    requested: Requested
    cache_control: str

    def headers(self, variant: str) -> dict[str, str]:
        """Return the caching headers of one document, tile or file of this version.

        Args:
            variant: What tells it from everything else of the version, such as `tiles/3/1/2`.
        """
        headers = {"Cache-Control": self.cache_control}
        if self.cache_control == PUBLIC_CACHE:
            headers["ETag"] = self._etag(variant)
        return headers

    def _etag(self, variant: str) -> str:
        content = [
            self.route.asset_id,
            self.route.version_ordinal,
            self.route.revision,
            self.route.blob_sha256,
            self.route.render,
            self.route.updated_at.isoformat(),
            self.requested,
            variant,
        ]
        return f'"{hashlib.sha256(canonical_json(content).encode()).hexdigest()[:32]}"'


def is_unchanged(request: Request, headers: Mapping[str, str]) -> bool:
    """Return whether the caller already has what these headers describe (If-None-Match, RFC 9110 §13.1.2)."""
    etag = headers.get("ETag")
    known = request.headers.get("if-none-match", "")
    return etag is not None and any(tag.strip().removeprefix("W/") in (etag, "*") for tag in known.split(","))


def check_query(request: Request, *known: str) -> None:
    """Raise `ParameterInvalid` for what would be ignored: `verison=0` is not to show latest."""
    paging.check_names(request.query_params, known)
    paging.check_once([name for name, _ in request.query_params.multi_items()])


class Gate:
    """Admits requests to versions; every door of serving asks it."""

    def __init__(self, pool: SyncPool, identity: Identity) -> None:
        self._pool = pool
        self._identity = identity

    def at(self, door: Door, *parameters: str) -> Callable[..., Admitted]:
        """Return the dependency of one door's endpoints; FastAPI runs it in a thread.

        Args:
            door: Which one.
            parameters: What its query may have beside the version.
        """

        def admit(request: Request, asset_id: str, version: VersionQuery = None) -> Admitted:
            caller = self.caller(request.headers)
            check_query(request, "version", *parameters)
            return self.admit(caller, asset_id, parse_requested(version), door)

        return admit

    def caller(self, headers: Mapping[str, str]) -> Caller | None:
        """Return the verified caller, None when no credential is presented.

        Raises:
            Unauthenticated: A credential is presented that nobody issued, or that only services hold.
        """
        return self._identity.caller(headers)

    def admit(self, caller: Caller | None, asset_id: str, requested: Requested, door: Door) -> Admitted:
        """Return the version that this caller sees through this door.

        Raises:
            NotFound: There is none, or not for this caller; nobody can tell which.
            DatabaseUnavailable: The database is away.
        """
        route = self._find(asset_id, requested)
        if route is None:
            raise hidden()
        decision = decide(caller, route.asset_facts(), [route.version_facts()], requested, door)
        if not decision.allowed:
            raise hidden()
        return Admitted(route, requested, decision.cache_control)

    def seen(self, caller: Caller | None, versions: Iterable[F], door: Door) -> Iterator[F]:
        """Yield those of these versions that this caller sees through a door."""
        for one in versions:
            if decide(caller, one.asset_facts(), [one.version_facts()], one.version_ordinal, door).allowed:
                yield one

    def _find(self, asset_id: str, requested: Requested) -> Route | None:
        if not _ASSET_ID.fullmatch(asset_id):
            return None
        ordinal = None if requested == "latest" else requested
        with read(self._pool) as conn:
            return find_route(conn, asset_id, ordinal)
