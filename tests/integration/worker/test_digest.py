from pathlib import Path
from typing import Any

import pytest

from core.errors import Classification
from core.ids import digest
from tests.integration.worker.conftest import Dispatcher
from tests.integration.worker.running import running

NUMBERS = [1e22, -0.0, 1.0, -3.4028234663852886e38, 1e-7, 5e-324, 0.1, 2**63, 123456789.123456789]


@pytest.mark.usefixtures("environment")
async def test_params_keep_their_digest_through_the_real_queue(dispatch: Dispatcher) -> None:
    params: dict[str, Any] = {"numbers": NUMBERS, "deep": [{"x": -9999.0}]}
    async with running():
        await dispatch("job_a_0", "echo", params)
        result = await dispatch.result("job_a_0")
    assert result.error is None
    assert result.output is not None
    assert [float(number) for number in result.output["echoed_params"]["numbers"]] == NUMBERS


async def test_a_message_that_is_not_what_was_dispatched_is_not_run(
    dispatch: Dispatcher, environment: dict[str, str]
) -> None:
    """Whoever can send to the queue, and knows a task's token, still cannot make it do something else."""
    dispatch.orchestrator.digests["job_a_0"] = digest({"message": "as dispatched"})
    async with running():
        await dispatch("job_a_0", "echo", {"message": "as forged"})
        result = await dispatch.result("job_a_0")
    assert result.error is not None
    assert (result.error.code, result.error.classification) == ("INTERNAL", Classification.TRANSIENT)
    assert journal(environment) == ""


def journal(environment: dict[str, str]) -> str:
    return Path(environment["WORKER_JOURNAL_FILE"]).read_text()
