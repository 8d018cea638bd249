"""What each deployable installs: the part of `requirements.lock` that its extras of pyproject.toml need.

`python -m scripts.requirements_of` writes `infra/requirements/*.txt`; `./scripts/lock` runs it. Which package needs
which comes from what is installed here, which is the whole lock.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "infra" / "requirements"
DEPLOYABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "gateway": ("gateway",),
    "orchestrator": ("orchestrator", "azure"),
    "worker": ("worker", "serving", "azure"),
}
"""File of requirements to the extras it is made of; the worker's image serves too."""
PYTHONS: Final = ("3.11", "3.12", "3.13")
PROJECT: Final = "geodag"
_NAME = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==", re.MULTILINE)


def locked_blocks(lock: str) -> Iterator[tuple[NormalizedName, str]]:
    """Yield each pin of a lock with its marker and hashes."""
    starts = list(_NAME.finditer(lock))
    for found, following in zip(starts, [*starts[1:], None], strict=True):
        yield canonicalize_name(found[1]), lock[found.start() : following.start() if following else len(lock)]


def subset(lock: str, names: Iterable[str]) -> str:
    """Return the pins of these packages, in the lock's order.

    Raises:
        ValueError: the lock lacks one of them.
    """
    wanted = {canonicalize_name(name) for name in names}
    blocks = [(name, block) for name, block in locked_blocks(lock) if name in wanted]
    if missing := wanted - {name for name, _ in blocks}:
        raise ValueError(f"requirements.lock lacks {', '.join(sorted(missing))}; run ./scripts/lock")
    return "".join(block for _, block in blocks)


def closure(project: Mapping[str, Any], extras: Iterable[str]) -> frozenset[str]:
    """Return every package that some extras need on Linux, on any Python that we support."""
    seen: set[tuple[str, str]] = set()
    waiting = [(PROJECT, extra) for extra in ("", *extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for requirement in _requirements(project, name, extra):
            needed = canonicalize_name(requirement.name)
            waiting += [(needed, one) for one in ("", *requirement.extras)]
    return frozenset(name for name, _ in seen if name != PROJECT)


def _requirements(project: Mapping[str, Any], name: str, extra: str) -> list[Requirement]:
    if name == PROJECT:
        texts = project["optional-dependencies"][extra] if extra else project["dependencies"]
        return [Requirement(text) for text in texts]
    try:
        texts = metadata.requires(name) or ()
    except metadata.PackageNotFoundError:
        # Of another Python than this one: a back-port, which needs nothing itself.
        return []
    return [requirement for requirement in map(Requirement, texts) if _applies(requirement, extra)]


def _applies(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    environments = (
        {"extra": extra, "python_version": v, "python_full_version": f"{v}.0", "sys_platform": "linux"} for v in PYTHONS
    )
    return marker is None or any(marker.evaluate(dict(one)) for one in environments)


def rendered() -> dict[str, str]:
    """Return the text of each file of requirements by its name without ending."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    return {name: subset(lock, closure(project, extras)) for name, extras in DEPLOYABLES.items()}


def main() -> int:
    """Write the files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in rendered().items():
        (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
        print(f"requirements_of: {name}: {sum(1 for _ in locked_blocks(text))} pins")
    return 0


if __name__ == "__main__":
    sys.exit(main())
