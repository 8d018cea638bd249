"""Collects what a check of an input noticed, and turns it into a verdict, a report and an error."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Never

from core.errors import DataError, ErrorDetail, Finding

REJECT = "reject"
ACCEPT = "accept"
ACCEPT_WITH_FIXES = "accept_with_fixes"

Json = dict[str, Any]


class Rejected(DataError):
    """An input was refused; `report` has every finding, the message every error."""

    def __init__(self, detail: ErrorDetail, report: Json) -> None:
        super().__init__(
            detail.message, code=detail.code, field=detail.field, value=detail.value, remediation=detail.remediation
        )
        self.report = report


def verdict_of(errors: Sequence[Any], levels: Iterable[str]) -> str:
    """Return reject when there is any error, accept_with_fixes when there is any warning, else accept."""
    if errors:
        return REJECT
    return ACCEPT_WITH_FIXES if "warning" in levels else ACCEPT


class Findings:
    """Everything noticed about one input, in the order in which it was noticed."""

    def __init__(self) -> None:
        self.errors: list[ErrorDetail] = []
        self.findings: list[Finding] = []
        self.facts: Json = {}

    @property
    def verdict(self) -> str:
        """reject when there is any error, accept_with_fixes when there is any warning, else accept."""
        return verdict_of(self.errors, [finding.level for finding in self.findings])

    def reject(self, code: str, field: str, message: str, *, value: Any = None, remediation: str | None = None) -> None:
        """Record an error and go on looking for more."""
        self.errors.append(
            ErrorDetail(
                code=code, message=message, field=field, value=value, remediation=remediation, user_fixable=True
            )
        )

    def stop(self, code: str, field: str, message: str, *, value: Any = None, remediation: str | None = None) -> Never:
        """Record an error after which nothing more can be found out.

        Raises:
            Rejected: always.
        """
        self.reject(code, field, message, value=value, remediation=remediation)
        self.raise_if_rejected()
        raise AssertionError

    def warn(self, code: str, message: str, *, field: str | None = None, was: Any = None, now: Any = None) -> None:
        """Record that values, extent or names were changed, dropped or guessed."""
        self._note("warning", code, message, field, was, now)

    def info(self, code: str, message: str, *, field: str | None = None, was: Any = None, now: Any = None) -> None:
        """Record what a careful reader expects anyway."""
        self._note("info", code, message, field, was, now)

    def raise_if_rejected(self) -> None:
        """Raise the first error, its message followed by all the others.

        Raises:
            Rejected: at least one error was recorded.
        """
        if not self.errors:
            return
        first, *others = self.errors
        also = "".join(f" Also {error.code} ({error.field}): {error.message}" for error in others)
        raise Rejected(first.model_copy(update={"message": first.message + also}), self.document())

    def document(self) -> Json:
        """Return the report as JSON: verdict, errors, findings and the facts that were read."""
        return {
            "verdict": self.verdict,
            "errors": [error.model_dump(mode="json", exclude_none=True) for error in self.errors],
            "findings": [finding.model_dump(mode="json", by_alias=True) for finding in self.findings],
            "raster": self.facts,
        }

    def add_facts(self, facts: Mapping[str, Any]) -> None:
        """Add what was read to the report."""
        self.facts.update(facts)

    def _note(self, level: str, code: str, message: str, field: str | None, was: Any, now: Any) -> None:
        self.findings.append(Finding(code=code, level=level, field=field, from_=was, to=now, message=message))
