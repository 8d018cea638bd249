"""Prints what a bench found, side by side, with what issue 3 aims at."""

from collections.abc import Callable, Mapping

from rich.console import Console
from rich.table import Table

Measures = Mapping[str, float]
Sides = Mapping[str, Measures]
AFTER = " after W3"


def _against(side: str, measure: str, factor: float, sign: str) -> Callable[[Sides], str]:
    """Return the text of an aim that depends on another side."""

    def text(sides: Sides) -> str:
        other = sides.get(side, {}).get(measure)
        return f"{sign} {factor:.2g} × {side}" + ("" if other is None else f" = {factor * other:,.1f}")

    return text


def _of_a_machine(sign: str, aim: float, issue: float, measure: str) -> Callable[[Sides], str]:
    """Return the text of an aim that the issue gave in figures, with what it is on the machine of this run.

    There the skeleton had `issue` of a measure; machines differ threefold, and one and the same by a third.
    """

    def text(sides: Sides) -> str:
        other = sides.get("skeleton", {}).get(measure)
        here = "" if other is None else f"; by the skeleton {aim / issue * other:,.1f}"
        return f"{sign} {aim:,g}{here}"

    return text


AIMS: Mapping[str, Callable[[Sides], str]] = {
    "W1 p50, ms": _against("skeleton", "W1 p50, ms", 1.4, "≤"),
    "W2, ms a step": _of_a_machine("≤", 4, 5.5, "W1 p50, ms"),
    "W3 of 1,000, tasks/s": _of_a_machine("≥", 3000, 17_000, "W3 of 10,000, tasks/s"),
    "W3 of 10,000, tasks/s": _of_a_machine("≥", 5000, 17_000, "W3 of 10,000, tasks/s"),
    "W4 single, jobs/s": _against("skeleton", "W4 single, jobs/s", 0.8, "≥"),
    "W4 batch, jobs/s": lambda _: "≥ 800",
    f"W1 p50{AFTER}, ms": _against("engine", "W1 p50, ms", 1.5, "≤"),
    f"W4 single{AFTER}, jobs/s": _against("engine", "W4 single, jobs/s", 1 / 1.5, "≥"),
    "idle, % of a core": lambda _: "≤ 3",
}


def print_table(sides: Sides) -> None:
    """Print a row for each measure, a column for each side."""
    table = Table("measure", *sides, "aim", title="The engine beside others", title_justify="left")
    for measure in dict.fromkeys(measure for found in sides.values() for measure in found):
        values = (found.get(measure) for found in sides.values())
        cells = ("–" if value is None else f"{value:,.1f}" for value in values)
        table.add_row(measure, *cells, AIMS[measure](sides) if measure in AIMS else "")
    Console(width=140).print(table)
