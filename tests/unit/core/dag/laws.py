"""How the laws of this folder are run: the same examples every time, unless HYPOTHESIS_EXPLORE asks for others."""

import os

from hypothesis import HealthCheck, settings

_EXPLORE = os.environ.get("HYPOTHESIS_EXPLORE")

LAWS = settings(
    deadline=None,
    database=None,
    derandomize=_EXPLORE is None,
    max_examples=int(_EXPLORE or 120),
    suppress_health_check=[HealthCheck.too_slow],
)
