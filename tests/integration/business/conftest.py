"""Fixtures of the business services."""

import pytest

from repositories.database import AsyncPool
from tests.support.business import Business
from tests.support.storage import Storage


@pytest.fixture
def business(pool: AsyncPool, storage: Storage) -> Business:
    """Return the business services over a fresh database and fresh blobs."""
    return Business(pool, storage)
