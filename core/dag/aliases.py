"""Other spellings that the specification uses for handlers and queues; here and nowhere else.

The loader replaces them, so that jobs, messages and `geodag workflow lint` show the canonical names only.
"""

from collections.abc import Mapping
from typing import Final

from core.handlers_catalog import LIGHT_QUEUE

HANDLERS: Final[Mapping[str, str]] = {
    "raster_validate": "raster.validate",  # 003 §5.3, §5.4, §8.1
    "raster_cog_docker": "raster.create_cog",  # 003 §5.4, §8.1, §12.3
    "raster.process": "raster.create_cog",  # 003 §8.4
    "raster.stac_register": "raster.stac_register_item",  # 003 §8.7
}

QUEUES: Final[Mapping[str, str]] = {
    "dag-worker-tasks": LIGHT_QUEUE,  # 003 §8.5, of the time before light and heavy workers
}
