"""Which function implements which handler of `core.handlers_catalog`.

Names are resolved only when a handler runs, in the process it runs in: the worker never imports GDAL, and a subprocess
imports nothing but the module it needs.
"""

import functools
import importlib
from collections.abc import Mapping
from typing import Any, Final

IMPLEMENTATIONS: Final[Mapping[str, str]] = {
    "echo": "handlers.examples:echo",
    "hello_world": "handlers.examples:hello_world",
    "sleep": "handlers.examples:sleep",
    "fail": "handlers.examples:fail",
    "flaky_echo": "handlers.examples:flaky_echo",
    "multi_phase": "handlers.examples:multi_phase",
    "size_check": "handlers.examples:size_check",
    "chunk_processor": "handlers.examples:chunk_processor",
    "make_values": "handlers.examples:make_values",
    "source.fetch": "handlers.source:fetch",
    "external.export": "handlers.external:export",
    "external.withdraw": "handlers.external:withdraw",
    "raster.validate": "handlers.raster.validate:validate",
    "raster.inspect": "handlers.raster.validate:inspect",
    "raster.create_cog": "handlers.raster.create_cog:create_cog",
    "raster.generate_tiling_scheme": "handlers.raster.tiling:tiling_scheme",
    "raster.process_tile": "handlers.raster.tiling:process_tile",
    "raster.check_collection": "handlers.raster.collection:check_collection",
    "raster.process_file": "handlers.raster.collection:process_file",
    "raster.stac_ensure_collection": "handlers.stac.ensure_collection:ensure_collection",
    "raster.stac_register_item": "handlers.stac.register_item:register_item",
    "raster.stac_register_items": "handlers.stac.register_items:register_items",
}
"""Handler name -> `module:function`."""

WALKS: Final[Mapping[str, str]] = {"raster.inspect": "handlers.raster.peek:walk_header"}
"""Handler with a `peeked` param -> `module:function` that reads the header of what lies behind it."""


@functools.cache
def resolve(target: str) -> Any:
    """Import and return what `module:attribute` names."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
