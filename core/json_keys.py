"""JSON objects that name a key twice: readers take the last one, so whoever sent it is told."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from core.wording import readable


class RepeatedKey(ValueError):
    """An object has a key twice; `key` is fit to be shown."""

    def __init__(self, key: str) -> None:
        self.key = readable(key[:200])
        super().__init__(f"the key {self.key!r} appears twice in an object")


def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of its pairs, as `object_pairs_hook` of `json`. Raises `RepeatedKey`."""
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise RepeatedKey(next(key for key, count in counts.items() if count > 1))
    return found


def check_unique(raw: bytes) -> None:
    """Raise `RepeatedKey` for the first key that an object of some JSON has twice."""
    json.loads(raw, object_pairs_hook=unique)
