"""The order in which files of tests begin."""

from collections.abc import Sequence

import pytest


def begin_with(items: list[pytest.Item], files: Sequence[str]) -> None:
    """Begin with the files that take longest, so that nobody is left alone with one of them at the end."""
    rank = {file: at - len(files) for at, file in enumerate(files)}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], 0))
