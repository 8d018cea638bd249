"""Which adapters a run of the tests is about: the embedded ones, or in the second pass those for Azure.

Only tests that use a fixture of an adapter, directly or through others, run a second time; a test that looks into the
embedded adapter itself, as into its folder, says so by the fixture that gives it that.
"""

import os
from collections.abc import Iterable

import pytest

from cli.stack.layout import BlobsKind, QueueKind

QUEUE = QueueKind(os.environ.get("GEODAG_QUEUE", QueueKind.POSTGRES))
"""What carries the tasks in this run; `geodag up` reads the same variable."""
BLOBS = BlobsKind(os.environ.get("GEODAG_BLOBS", BlobsKind.FOLDERS))
"""What holds the files in this run."""
IDENTITY = bool(os.environ.get("GEODAG_IDENTITY"))
"""Whether the processes of the platform enter with tokens over TLS in this run."""
IS_SECOND_PASS = QUEUE is not QueueKind.POSTGRES or BLOBS is not BlobsKind.FOLDERS
OF_ADAPTERS = frozenset({"storage", "queue_side"})
OF_EMBEDDED = frozenset({"blob_root"})


def runs(fixture_names: Iterable[str]) -> bool:
    """Return whether a test with these fixtures, those of its fixtures included, belongs to this run."""
    names = set(fixture_names)
    return not IS_SECOND_PASS or (bool(names & OF_ADAPTERS) and not names & OF_EMBEDDED)


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of this run."""
    left_out = [item for item in items if not runs(getattr(item, "fixturenames", ()))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
