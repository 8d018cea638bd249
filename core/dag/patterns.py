"""Patterns of inputs: which ones a new file may have, how large they are, and how texts are searched.

pydantic's engine needs at most as many steps as a text has characters times the pattern has places to be at, some
nanoseconds each (measured: `(?:[01]*1[01]{1000}){5}x` on 1 MB, 5e9 steps, 33 s). So both are bounded.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from pydantic_core import SchemaError, SchemaValidator
from pydantic_core.core_schema import str_schema

MAX_SIZE: Final = 10_000
"""Of a pattern that a new file has."""
MAX_STEPS: Final = 100_000_000
"""What may be searched in one value: characters times sizes of patterns; about a second where it is worst."""

_TOKEN: Final = re.compile(
    r"\\(?:[pPxuU]\{[^}]*\}|.)"
    r"|\[\^?\]?(?:\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\]\\])*\]"
    r"|\{(?P<least>\d+)(?:,(?P<most>\d*))?\}"
    r"|(?P<flags>\(\?[A-Za-z-]+\))"
    r"|(?P<open>\((?:\?(?:P?<[^>]*>|[A-Za-z-]*:))?)"
    r"|.",
    re.DOTALL,
)


@lru_cache(maxsize=512)
def size_of(pattern: str) -> int:
    """Return how many characters and classes a pattern has, each as often as counts repeat it."""
    sums, last = [0], 0
    for token in _TOKEN.finditer(pattern):
        if token["least"] is not None:
            times = max(int(token["most"] or token["least"]), 1)
            sums[-1] += last * (times - 1)
            last *= times
        elif token["open"]:
            sums.append(0)
        elif token[0] == ")" and len(sums) > 1:
            last = sums.pop()
            sums[-1] += last
        elif not token["flags"] and token[0] not in "*+?|^$":
            last = 1
            sums[-1] += last
    return sum(sums)


def check_pattern(pattern: str) -> None:
    """Refuse what a new file may not say. Raises `ValueError`."""
    lengths = "say lengths by max_length instead of counts"
    if (size := size_of(pattern)) > MAX_SIZE:
        raise ValueError(f"{pattern[:200]!r} has a size of {size}, counts multiplied, at most {MAX_SIZE}: {lengths}")
    try:
        _linear(pattern)
    except SchemaError as error:
        reason = str(error).rpartition("error: ")[2].rpartition("SchemaError: ")[2].strip().rstrip(".")
        hint = "; write it without look-around and back-references" if "not supported" in reason else ""
        hint = f"; {lengths}" if "size limit" in reason else hint
        raise ValueError(f"{pattern[:200]!r} is not a regular expression known here: {reason}{hint}") from error


def matches(pattern: str, text: str) -> bool:
    """Return whether a pattern is found in a text."""
    return _searcher(pattern)(text)


@lru_cache(maxsize=512)
def _searcher(pattern: str) -> Callable[[str], bool]:
    """Return what searches, for stored definitions also of a build that knew look-around and back-references."""
    try:
        return _linear(pattern).isinstance_python
    except SchemaError:
        exact_end = pattern.endswith("$") and not pattern.endswith("\\$")
        compiled = re.compile(pattern[:-1] + r"\Z" if exact_end else pattern)
        return lambda text: compiled.search(text) is not None


def _linear(pattern: str) -> SchemaValidator:
    return SchemaValidator(str_schema(pattern=pattern, regex_engine="rust-regex"))
