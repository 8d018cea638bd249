"""What a validation report says, arranged for people; the terminal and the page show the same. Pure.

A report comes out of handlers and holds words of partners: whatever it is made of becomes plain text here, and none of
it is trusted to have any shape.
"""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

Json = Mapping[str, Any]
MAX_TEXT: Final = 600
MAX_LINES: Final = 500

_LABELS: Final[Mapping[str, str]] = {
    "crs_code": "CRS",
    "dtype": "pixel type",
    "count": "bands",
    "nodata": "nodata",
    "memory_bytes": "memory of the largest process",
    "scratch_bytes": "scratch files",
    "seconds": "seconds of one core",
}
_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class Tone(StrEnum):
    """How good a verdict or a line is."""

    GOOD = "good"
    FIXED = "fixed"
    BAD = "bad"
    PLAIN = "plain"


_VERDICTS: Final[Mapping[str, tuple[str, Tone]]] = {
    "accept": ("Accepted", Tone.GOOD),
    "accept_with_fixes": ("Accepted with fixes", Tone.FIXED),
    "reject": ("Rejected", Tone.BAD),
}
_LEVELS: Final[Mapping[str, Tone]] = {"error": Tone.BAD, "warning": Tone.FIXED, "info": Tone.PLAIN}


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was noticed."""

    tone: Tone
    level: str
    code: str
    field: str
    message: str
    change: str
    """From what to what; empty when nothing of that kind was said."""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Compared:
    """One property before and after."""

    name: str
    before: str
    after: str

    @property
    def changed(self) -> bool:
        """Whether the two differ."""
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class ReportView:
    """A report, ready to be shown."""

    verdict: str
    tone: Tone
    lines: tuple[Line, ...]
    """Errors first, then warnings, then the rest."""
    type: str
    evidence: str
    steps: tuple[str, ...]
    compared: tuple[Compared, ...]
    facts: tuple[tuple[str, str], ...]
    """Compression, overviews, needs."""


def report_view(report: Json | None, error: Json | None, processing: str) -> ReportView:
    """Return a report as it is shown.

    Args:
        report: as stored with the version, or as `validate` answers; None when there is none.
        error: what ended the processing, when it failed.
        processing: how far it is, for a version without either.
    """
    known = report or {}
    lines = [_error(one) for one in [*_list(known.get("errors")), *([error] if error else [])]]
    found = sorted(map(_finding, _list(known.get("findings"))), key=lambda line: line.tone is Tone.PLAIN)
    verdict, tone = _VERDICTS.get(str(known.get("verdict")), (f"Not yet known: {text_of(processing)}", Tone.PLAIN))
    if error:
        verdict, tone = ("Rejected" if error.get("user_fixable") else "Failed", Tone.BAD)
    kind = known.get("type") if isinstance(known.get("type"), Mapping) else None
    raster = known.get("raster") if isinstance(known.get("raster"), Mapping) else {}
    assert isinstance(raster, Mapping)
    return ReportView(
        verdict=verdict,
        tone=tone,
        lines=tuple([*lines, *found][:MAX_LINES]),
        type=text_of((kind or {}).get("detected", raster.get("raster_type"))),
        evidence=text_of((kind or {}).get("evidence", raster.get("type_evidence"))),
        steps=tuple(text_of(step) for step in _list(known.get("steps"), str)),
        compared=tuple(
            Compared(label(one.get("name")), text_of(one.get("before")), text_of(one.get("after")))
            for one in _list(known.get("compared"))
        ),
        facts=tuple(_facts(known)),
    )


def text_of(value: Any) -> str:
    """Return any JSON as one line of plain text, without control and direction characters, cut where it is long."""
    match value:
        case None:
            return "–"
        case [] | ():
            return "none"
        case bool():
            return "yes" if value else "no"
        case str():
            text = value if value.strip() else "–"
        case float() | int():
            text = f"{value:.12g}" if isinstance(value, float) else str(value)
        case list() | tuple():
            text = ", ".join(text_of(item) for item in value[:MAX_LINES])
        case _:
            text = json.dumps(value, ensure_ascii=False, default=str)
    plain = "".join("\ufffd" if unicodedata.category(char) in ("Cc", "Cf", "Cs") else char for char in text)
    return plain if len(plain) <= MAX_TEXT else f"{plain[:MAX_TEXT]}…"


def label(name: Any) -> str:
    """Return the words for a name of ours."""
    return _LABELS.get(str(name), text_of(name).replace("_", " "))


def _error(detail: Json) -> Line:
    return Line(
        tone=Tone.BAD,
        level="error",
        code=text_of(detail.get("code")),
        field=text_of(detail.get("field")),
        message=text_of(detail.get("message")),
        change="",
        remedy=text_of(detail.get("remediation")) if detail.get("remediation") else "",
    )


def _finding(finding: Json) -> Line:
    level = text_of(finding.get("level"))
    was, now = finding.get("from"), finding.get("to")
    return Line(
        tone=_LEVELS.get(level, Tone.PLAIN),
        level=level,
        code=text_of(finding.get("code")),
        field=text_of(finding.get("field")),
        message=text_of(finding.get("message")),
        change="" if was is None and now is None else f"{text_of(was)} → {text_of(now)}",
    )


def _facts(report: Json) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    if report.get("read") == "header":
        facts.append(("read", "the header alone"))
    for part in ("cog", "estimate"):
        found = report.get(part)
        if isinstance(found, Mapping):
            facts += [(label(name), _amount(name, value)) for name, value in found.items()]
    return facts


def _amount(name: str, value: Any) -> str:
    if not str(name).endswith("_bytes") or not isinstance(value, int):
        return text_of(value)
    for size, unit in _UNITS:
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value} B"


def _list(value: Any, kind: type = Mapping) -> Sequence[Any]:
    """Return the items of a list that are what they should be."""
    return [item for item in value if isinstance(item, kind)] if isinstance(value, list | tuple) else []
