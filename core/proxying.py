"""What the gateway's proxy lets through: named targets, methods and path prefixes, and nothing else.

Operators reach what has no route of its own. What destroys (bootstrap), what workers say (callbacks) and what partners
and reviewers do (their routes have their own checks) is not here, so it is not reachable this way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from core.errors import NotFound

MAX_PATH: Final = 1024


@dataclass(frozen=True, slots=True)
class Door:
    """Paths below a prefix that may be called by one method."""

    method: str
    prefix: str


def _doors(method: str, *prefixes: str) -> tuple[Door, ...]:
    return tuple(Door(method, prefix) for prefix in prefixes)


_PROBES: Final = _doors("GET", "livez", "readyz", "health", "metrics")

ALLOWED: Final[Mapping[str, tuple[Door, ...]]] = {
    "orchestrator": (
        *_PROBES,
        *_doors(
            "GET",
            "api/v1/jobs",
            "api/v1/workflows",
            "api/v1/operations",
            "api/v1/scale",
            "api/v1/stats",
            "api/v1/events",
            "api/v1/lookup",
            "api/v1/storage",
            "api/v1/audit",
            "api/v1/platforms",
            "api/v1/settings/pauses",
            "api/v1/dead-letters",
            "api/v1/settings/limits",
            "api/v1/webhooks/deliveries",
        ),
        *_doors("POST", "api/v1/jobs", "api/v1/commands", "api/v1/dead-letters", "api/v1/webhooks/deliveries"),
        *_doors("PATCH", "api/v1/platforms"),
        *_doors("PUT", "api/v1/settings/pauses", "api/v1/settings/limits"),
        *_doors("DELETE", "api/v1/settings/pauses", "api/v1/settings/limits"),
    ),
    "worker": _PROBES,
    "serving": _PROBES,
}
"""Target -> doors; printed in docs/security.md, tried one by one in tests."""


def proxied_path(target: str, method: str, path: str) -> str:
    """Return the encoded path to call, rebuilt from the segments of the decoded one.

    Raises:
        NotFound: nothing of that target may be called like that; which part was wrong is not told.
    """
    segments = path.split("/")
    if not _is_plain(path, segments) or not any(
        door.method == method and _is_below(segments, door.prefix.split("/")) for door in ALLOWED.get(target, ())
    ):
        raise NotFound("there is no such resource", field="path")
    return "/" + "/".join(quote(segment, safe="") for segment in segments)


def _is_plain(path: str, segments: Sequence[str]) -> bool:
    """Return whether no segment is empty, climbs, or holds what one side may read as another segment."""
    if len(path) > MAX_PATH or not path.isprintable() or any(c in path for c in "\\%?#;"):
        return False
    return all(segment not in ("", ".", "..") for segment in segments)


def _is_below(segments: Sequence[str], prefix: Sequence[str]) -> bool:
    return list(segments[: len(prefix)]) == list(prefix)
