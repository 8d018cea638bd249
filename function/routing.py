"""Route templates of Azure Functions, matched as its host matches them.

A template is literal text and parameters: `{id}`, `{id:int}`, `{name?}` at the end, `{*rest}` at the end. Paths match
without regard to case; literals go before constrained parameters, those before free ones, those before a rest.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from core.errors import GeodagError

RESERVED: Final = frozenset({"admin", "runtime"})
"""First segments that belong to the host itself."""
INT32: Final = range(-(2**31), 2**31)
_CONSTRAINTS: Final = {
    "int": r"-?[0-9]{1,10}",
    "alpha": r"[A-Za-z]+",
    "guid": r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
}
_PARAMETER: Final = re.compile(r"\{(?P<rest>\*?)(?P<name>\w+)(?::(?P<kind>\w+))?(?P<optional>\??)\}")


class RouteRefused(GeodagError):
    """The real host would not start a function with this route."""

    code = "ROUTE_REFUSED"


@dataclass(frozen=True, slots=True)
class Template:
    """One compiled template."""

    text: str
    pattern: re.Pattern[str]
    ints: frozenset[str]
    rank: tuple[int, ...]
    """Sorts more exact templates first."""

    def match(self, raw_path: str) -> dict[str, str] | None:
        """Return the decoded parameters of a still encoded path, or None."""
        found = self.pattern.fullmatch(f"/{raw_path.strip('/')}")
        if found is None:
            return None
        values = {name: unquote(value) for name, value in found.groupdict().items() if value is not None}
        return None if any(int(values[name]) not in INT32 for name in self.ints & values.keys()) else values


def compile_template(route: str, prefix: str) -> Template:
    """Return a function's template below the app's route prefix.

    Raises:
        RouteRefused: its own first segment is reserved, or it has a form the host does not know.
    """
    own = [part for part in route.strip("/").split("/") if part]
    if own and own[0].lower() in RESERVED:
        raise RouteRefused(f"route {route!r} starts with {own[0]}, which belongs to the host", field="route")
    parts = [part for part in prefix.strip("/").split("/") if part] + own
    pattern, ranks, ints = "", [], set[str]()
    for index, part in enumerate(parts):
        piece, rank, name = _piece(part, route, last=index == len(parts) - 1)
        pattern += piece
        ranks.append(rank)
        ints |= {name} if name else set()
    return Template(f"/{'/'.join(parts)}", re.compile(pattern or "/", re.IGNORECASE), frozenset(ints), tuple(ranks))


def _piece(part: str, route: str, *, last: bool) -> tuple[str, int, str | None]:
    """Return the pattern of one segment with its slash, its rank, and its name when it is an int."""
    found = _PARAMETER.fullmatch(part)
    if found is None:
        if "{" in part or "}" in part:
            raise RouteRefused(f"route {route!r}: segment {part!r} is not understood", field="route")
        return "/" + re.escape(part), 0, None
    name, kind = found["name"], found["kind"]
    if kind is not None and kind not in _CONSTRAINTS:
        raise RouteRefused(f"route {route!r}: constraint {kind!r} is not understood", field="route")
    if (found["rest"] or found["optional"]) and not last:
        raise RouteRefused(f"route {route!r}: {part!r} stands before the end", field="route")
    if found["rest"]:
        return f"(?:/(?P<{name}>.*))?", 3, None
    inner = f"(?P<{name}>{_CONSTRAINTS[kind] if kind else '[^/]+'})"
    rank = 1 if kind else 2
    return (f"(?:/{inner})?" if found["optional"] else f"/{inner}"), rank, name if kind == "int" else None
