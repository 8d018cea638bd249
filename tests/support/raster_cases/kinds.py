"""Builders: each kind of trouble with the input of its case and with others like it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.support.raster_cases.case import Case
from tests.support.raster_cases.places import Like

Shape = tuple[str, int, int] | tuple[str, int, int, str]
"""dtype, height, width and, when it is not UTM 33, the name of the place."""
Build = Callable[[Like], Case]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of trouble."""

    id: str
    """Of the case in cases.md."""
    build: Build
    shapes: tuple[Shape, ...]
    """The first is the case itself."""


KINDS: Final[list[Kind]] = []


def kind(case_id: str, *shapes: Shape) -> Callable[[Build], Build]:
    """Register a builder with the shapes of its inputs."""

    def register(build: Build) -> Build:
        KINDS.append(Kind(case_id, build, shapes))
        return build

    return register


def names() -> list[str]:
    """Return the name of every case; `everything` has imported the builders."""
    return [_name(each, place) for each in KINDS for place in range(len(each.shapes))]


def build(name: str, folder: Path) -> Case:
    """Write the input of a case into a folder of its own."""
    case_id, _, place = name.partition(".")
    (found,) = [each for each in KINDS if each.id == case_id]
    case = found.build(Like(folder, *found.shapes[int(place or 0)]))
    return replace(case, id=name)


def build_all(folder: Path) -> Iterator[Case]:
    """Write the inputs of all cases, each into a folder of its own."""
    for name in names():
        own = folder / name
        own.mkdir(parents=True)
        yield build(name, own)


def _name(each: Kind, place: int) -> str:
    return f"{each.id}.{place}" if place else each.id
