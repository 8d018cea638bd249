"""Idempotency keys of jobs: whatever is a body without a key is one with it."""

from typing import Any

import pytest

from core.dag.input_spec import InputSpec
from core.dag.inputs import fit
from core.errors import ParameterInvalid
from services.job_keys import JobKey


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_a_body_may_be_as_deep_with_a_key_as_without() -> None:
    spec = {"x": InputSpec.model_validate({"type": "array"})}
    assert fit(spec, {"x": nested(100)}, "w") == {"x": nested(100)}
    JobKey.of("ada", "k", {"workflow_id": "w", "inputs": {"x": nested(100)}})
    with pytest.raises(ParameterInvalid):
        fit(spec, {"x": nested(101)}, "w")
    with pytest.raises(ParameterInvalid) as caught:
        JobKey.of("ada", "k", {"workflow_id": "w", "inputs": {"x": nested(101)}})
    assert str(caught.value.detail.field).startswith("inputs.x")
