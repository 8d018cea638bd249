"""What the subprocess refuses to send."""

import pytest

from core.payloads import ValueTooLarge
from worker import child
from worker.frames import Done


def test_an_output_larger_than_a_frame_is_refused_by_the_subprocess_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "MAX_FRAME_BYTES", 1000)
    child._check_size(Done(output={"x": "y" * 500}))
    with pytest.raises(ValueTooLarge) as caught:
        child._check_size(Done(output={"x": "y" * 2000}))
    assert caught.value.detail.field == "output"
    assert "fan_out" in (caught.value.detail.remediation or "")
