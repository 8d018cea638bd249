"""All cases: importing this registers every builder."""

from tests.support.raster_cases import filing, placing, valuing
from tests.support.raster_cases.kinds import build, build_all, names

__all__ = ["BUILDERS", "build", "build_all", "names"]
BUILDERS = (filing, placing, valuing)
