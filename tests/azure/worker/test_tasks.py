"""Tasks in a worker at Service Bus: the very tests of the embedded queue."""

import pytest

from tests.integration.worker.test_worker_tasks import *  # noqa: F403

pytestmark = pytest.mark.usefixtures("environment")
