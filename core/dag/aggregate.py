"""What a fan_in makes of the outputs of items, one output after the other, so that it never holds them all.

    collect  {results: [output, …], count}          concat  {results: [element, …], count}
    sum      {total, count}                         count   {count}
    first    {result, count}                        last    {result, count}

`count` is the number of results; for sum, count, first and last, of the items that succeeded. All have `succeeded`,
`failed`, `skipped` and `failures`, the first 100 as {index, error}. concat strings together the lists that are values
of an output, sum adds the numbers that are; values below those do not count.
"""

from collections.abc import Iterable
from typing import Any

from core.dag.json_values import NotJson, as_stored
from core.dag.nodes import Aggregation
from core.errors import GeodagError
from core.ids import canonical_json
from core.models.fan_out import FanOut

_LISTS = frozenset({Aggregation.COLLECT, Aggregation.CONCAT})
_SINGLE = frozenset({Aggregation.FIRST, Aggregation.LAST})


class Incomplete(GeodagError):
    """There are not as many outputs as items succeeded."""

    code = "FAN_IN_INCOMPLETE"


ADDED_LEVELS = 2
"""What an aggregate puts around an output: a mapping and a list."""


class Aggregate:
    """Takes outputs in item order and yields the JSON of the result, piece by piece."""

    def __init__(self, kind: Aggregation, fan_out: FanOut | None) -> None:
        self._kind = kind
        self._fan_out = fan_out
        self._outputs = 0
        self._results = 0
        self._total: int | float = 0
        self._result = b"null"

    def head(self) -> bytes:
        """Return what comes before all outputs."""
        return b'{"results":[' if self._kind in _LISTS else b"{"

    def add(self, output: dict[str, Any]) -> bytes:
        """Take the next output and return what it adds to the JSON; raises `NotJson` when a sum cannot be made."""
        match self._kind:
            case Aggregation.COLLECT | Aggregation.FIRST | Aggregation.LAST:
                return self.add_json(canonical_json(output).encode())
            case Aggregation.CONCAT:
                self._outputs += 1
                lists = (value for value in output.values() if isinstance(value, list))
                return b"".join(self._one_more(canonical_json(one).encode()) for many in lists for one in many)
            case Aggregation.SUM:
                self._total = _sum(self._total, output.values())
                self._outputs += 1
            case Aggregation.COUNT:
                self._outputs += 1
        return b""

    @property
    def takes_json(self) -> bool:
        """Whether outputs may come as JSON text, so that nobody has to read it."""
        return self._kind not in {Aggregation.CONCAT, Aggregation.SUM}

    def add_json(self, output: bytes) -> bytes:
        """Take the next output as JSON and return what it adds; only when `takes_json`."""
        self._outputs += 1
        if self._kind is Aggregation.COLLECT:
            return self._one_more(output)
        if self._kind is Aggregation.LAST or (self._kind is Aggregation.FIRST and self._outputs == 1):
            self._result = output
        return b""

    @property
    def is_empty(self) -> bool:
        """Whether no output was taken yet."""
        return self._outputs == 0

    def replace_result(self, output: bytes) -> None:
        """Put JSON in the place of the single result."""
        self._result = output

    def tail(self) -> bytes:
        """Return what comes after all outputs.

        Raises:
            Incomplete: The outputs are not those of all items that succeeded.
            NotJson: A sum of numbers is none any more.
        """
        summary = summary_of(self._fan_out)
        if self._outputs != summary["succeeded"]:
            raise Incomplete(f"{self._outputs} outputs of {summary['succeeded']} items that succeeded were found")
        rest: dict[str, Any] = {"count": self._results if self._kind in _LISTS else self._outputs, **summary}
        if self._kind is Aggregation.SUM:
            rest["total"] = as_stored(self._total, "total")
        start = b"]," if self._kind in _LISTS else b'"result":' + self._result + b"," if self._kind in _SINGLE else b""
        return start + canonical_json(rest).encode()[1:]

    def _one_more(self, element: bytes) -> bytes:
        self._results += 1
        return element if self._results == 1 else b"," + element


def summary_of(fan_out: FanOut | None) -> dict[str, Any]:
    """Return what became of the items; of a fan-out that never began, nothing."""
    if fan_out is None:
        return {"succeeded": 0, "failed": 0, "skipped": 0, "failures": []}
    return {name: getattr(fan_out, name) for name in ("succeeded", "failed", "skipped", "failures")}


def aggregated(kind: Aggregation, fan_out: FanOut | None, outputs: Iterable[dict[str, Any]]) -> bytes:
    """Return the whole JSON at once, of few outputs."""
    aggregate = Aggregate(kind, fan_out)
    parts = [aggregate.head(), *(aggregate.add(output) for output in outputs)]
    return b"".join([*parts, aggregate.tail()])


def _sum(total: int | float, values: Iterable[Any]) -> int | float:
    try:
        return sum((value for value in values if _is_number(value)), total)
    except OverflowError as error:
        message = "total adds an integer that is beyond every float to a number with a fraction"
        raise NotJson(message, field="total") from error


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
