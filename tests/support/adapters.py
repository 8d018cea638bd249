"""Which adapters a run of the tests is about: the embedded ones, or in the second pass those for Azure.

The second pass of the integration tests is that of tests whose fixtures, directly or through others, need what stands
in for Azure. A test that is about an embedded adapter itself says so by its mark, or asks for that adapter's folder.
"""

import os

import pytest

from cli.stack.layout import BlobsKind, QueueKind

QUEUE = QueueKind(os.environ.get("GEODAG_QUEUE", QueueKind.POSTGRES))
"""What carries the tasks in this run; `geodag up` reads the same variable."""
BLOBS = BlobsKind(os.environ.get("GEODAG_BLOBS", BlobsKind.FOLDERS))
"""What holds the files in this run."""
IDENTITY = bool(os.environ.get("GEODAG_IDENTITY"))
"""Whether the processes of the platform enter with tokens over TLS in this run."""
_OF_AZURE = (QUEUE is not QueueKind.POSTGRES, BLOBS is not BlobsKind.FOLDERS, IDENTITY)
IS_SECOND_PASS = any(_OF_AZURE)
OF_AZURE = "azure"
"""The fixture of what stands in for Azure."""
OF_EMBEDDED = "blob_root"
"""The fixture of the folder where the embedded storage keeps its files."""


def runs(item: pytest.Item) -> bool:
    """Return whether an integration test belongs to this run."""
    names = getattr(item, "fixturenames", ())
    is_embedded = OF_EMBEDDED in names or item.get_closest_marker("embedded") is not None
    return not IS_SECOND_PASS or (OF_AZURE in names and not is_embedded)


def select(config: pytest.Config, items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the integration tests of this run."""
    if items and IS_SECOND_PASS and not all(_OF_AZURE):
        raise pytest.UsageError("integration tests take GEODAG_QUEUE, GEODAG_BLOBS and GEODAG_IDENTITY together")
    kept = [item for item in items if runs(item)]
    left_out = set(items) - set(kept)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
    return kept
