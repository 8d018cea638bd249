"""Renderings are read from what raster.create_cog stores, and odd ones are refused."""

import pytest
from pydantic import ValidationError

from serving.rendering import Rendering


def test_the_document_of_create_cog_is_understood() -> None:
    document = {
        "bidx": [1],
        "rescale": [[0.0, 10.5]],
        "colormap": {"1": [255, 0, 0, 255]},
        "colormap_name": None,
        "nodata": "nan",
        "resampling": "nearest",
    }
    rendering = Rendering.of(document)
    assert rendering.bidx == (1,)
    assert rendering.rescale == ((0.0, 10.5),)
    assert rendering.colormap == {1: (255, 0, 0, 255)}


def test_a_version_without_a_rendering_leaves_everything_to_the_file() -> None:
    assert Rendering.of(None) == Rendering.of({}) == Rendering()


@pytest.mark.parametrize("document", [{"bidx": "all"}, {"rescale": [[1]]}, {"resampling": "magic"}])
def test_a_document_of_another_shape_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Rendering.of(document)
