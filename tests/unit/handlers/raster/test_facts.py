"""What one build says of a raster to another."""

import pytest
from pydantic import ValidationError

from core.errors import TransientError
from handlers.raster.facts import RasterFacts
from tests.support.raster_path import RasterPath, stack


def test_what_a_newer_build_found_is_left_to_its_workers(raster: RasterPath) -> None:
    output = raster.validate(raster.write(stack(3, 64, 48), photometric="RGB")).output
    assert isinstance(output, dict)
    found = output["raster"]
    assert RasterFacts.of(found).model_dump(mode="json") == found
    assert not {"alpha_to_mask", "masked_alpha"} & found.keys()
    with pytest.raises(TransientError, match="tilt"):
        RasterFacts.of({**found, "tilt": 3})
    with pytest.raises(ValidationError):
        RasterFacts.of({**found, "width": "wide"})
