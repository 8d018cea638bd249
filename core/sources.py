"""Sources that lie behind a URL: taken apart before anything is stored, and held against the platform's registry row.

The bare URL may be stored and shown. Its query may be a credential (a SAS is one): it goes sealed into
`request_secrets`, from there to the worker that fetches, and nowhere else; no message here repeats it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from core.errors import Forbidden, ParameterInvalid

MAX_URL: Final = 2048
MAX_QUERY: Final = 4096
READ_WHOLE_BYTES: Final = 64_000_000
"""A check before a submit reads files up to this size whole, and of larger ones the header."""
_PORTS: Final = {"https": 443, "http": 80}
_CLIMBS: Final = re.compile(r"%(?:2e|2f|5c|00)", re.IGNORECASE)
"""Encoded dots, separators and NULs: what one side may read as another path than the other."""
_UNPLAIN: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class UrlSource:
    """A URL without its query, and the query."""

    url: str
    query: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.url

    @property
    def file_name(self) -> str:
        """The last segment as a plain name."""
        name = unquote(self.url.rpartition("/")[2], errors="replace")
        return _UNPLAIN.sub("_", name)[-120:].strip("._") or "file"


@dataclass(frozen=True, slots=True)
class Fetched:
    """A copy of what lay behind a URL."""

    size_bytes: int
    sha256: str
    etag: str | None


def parse_url(text: str) -> UrlSource:
    """Return a URL taken apart, or raise `ParameterInvalid` on `source`, which repeats nothing of it."""
    bare, _, query = text.partition("?")
    if problem := _problem(bare, query):
        raise ParameterInvalid(
            f"source.url {problem}",
            field="source",
            remediation="Give an https URL of one file; a credential may stand in its query only.",
        )
    return UrlSource(bare, query or None)


def _problem(bare: str, query: str) -> str | None:
    try:
        parts = urlsplit(bare)
        known = _canonical(bare)
    except ValueError:
        return "cannot be read"
    if len(bare) > MAX_URL or len(query) > MAX_QUERY:
        return f"is longer than {MAX_URL} characters and {MAX_QUERY} of query"
    if any(not 33 <= ord(c) <= 126 or c in '\\"<>`{}|^' for c in bare + query):
        return "has characters that stand in no URL; encode them"
    if "#" in bare + query or parts.username is not None or parts.password is not None:
        return "may have no user info and no fragment"
    if known is None or not parts.hostname:
        return "is no http or https URL"
    segments = parts.path.split("/")[1:]
    if not segments or any(s in ("", ".", "..") for s in segments) or _CLIMBS.search(parts.path):
        return "must lead to one file: no empty, . or .. segment, no encoded separator"
    return None


def check_allowed(source: UrlSource, platform_id: str, allowed: Iterable[Mapping[str, Any]]) -> None:
    """Check that a platform's registry row names the host and the prefix.

    Raises:
        Forbidden: on `source`; names what is allowed.
    """
    prefixes = [str(rule["url"]) for rule in allowed if "url" in rule]
    if not prefixes:
        raise Forbidden(f"{platform_id} may not name URLs as sources", field="source")
    wanted = _canonical(source.url) or ""
    if not any(wanted.startswith(known) for prefix in prefixes if (known := _canonical(prefix))):
        raise Forbidden(
            f"{platform_id} may not read {source.url[:200]!r}",
            field="source",
            remediation=f"Allowed: {', '.join(prefixes)}",
        )


def _canonical(url: str) -> str | None:
    """Return scheme, host, port and path in one spelling; None when it is no http URL. `ValueError`: unreadable."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        return None
    return f"{parts.scheme}://{parts.hostname.rstrip('.')}:{parts.port or _PORTS[parts.scheme]}{parts.path or '/'}"
