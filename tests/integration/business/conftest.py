"""Fixtures of the business services."""

from pathlib import Path

import pytest

from repositories.database import AsyncPool
from tests.support.business import Business


@pytest.fixture
def business(pool: AsyncPool, tmp_path: Path) -> Business:
    """Return the business services over a fresh database and fresh blobs."""
    return Business(pool, tmp_path / "blobs")
