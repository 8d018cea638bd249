"""Runs `stac-validator` without a network.

The core schemas come from the pystac package. No package of a registry carries the schemas of STAC extensions, so
those are checked only where GEODAG_STAC_SCHEMAS names a folder of them (`projection-v2.0.0.json` and so on); tests read
extension fields with pystac's extension classes instead.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyproj
from pystac.validation.local_validator import get_local_schema_cache
from stac_validator.validate import StacValidate

EXTENSION_FOLDER_VARIABLE = "GEODAG_STAC_SCHEMAS"
_EXTENSION_URL = re.compile(r"https://stac-extensions\.github\.io/([\w-]+)/(v[\d.]+)/schema\.json")


def stac_errors(document: Mapping[str, Any], folder: Path) -> list[str]:
    """Return what stac-validator finds wrong with an item or collection; `folder` takes files it needs."""
    path = folder / "document.json"
    path.write_text(json.dumps(document, allow_nan=False), encoding="utf-8")
    schemas = core_schemas(folder) | extension_schemas(document)
    known = set(extension_urls(document)) <= schemas.keys()
    validator = StacValidate(str(path), core=not known, schema_map=dict(schemas))
    validator.run()
    return [str(message["error_message"]) for message in validator.message if not message["valid_stac"]]


def extension_urls(document: Mapping[str, Any]) -> list[str]:
    """Return the extensions that a document declares."""
    return list(document.get("stac_extensions", ()))


def core_schemas(folder: Path) -> dict[str, str]:
    """Write pystac's copies of the core and GeoJSON schemas into `folder` and return URL -> path."""
    found = {}
    for place, (url, schema) in enumerate(sorted(get_local_schema_cache().items())):
        path = folder / f"schema-{place}.json"
        path.write_text(json.dumps(schema), encoding="utf-8")
        found[url] = str(path)
    projjson = Path(pyproj.datadir.get_data_dir()) / "projjson.schema.json"
    return found | {f"https://proj.org/schemas/v0.{minor}/projjson.schema.json": str(projjson) for minor in range(8)}


def extension_schemas(document: Mapping[str, Any]) -> dict[str, str]:
    """Return URL -> path for the extensions of a document whose schemas are on this machine."""
    folder = os.environ.get(EXTENSION_FOLDER_VARIABLE)
    if not folder:
        return {}
    found = {}
    for url in extension_urls(document):
        match = _EXTENSION_URL.fullmatch(url)
        path = Path(folder) / f"{match[1]}-{match[2]}.json" if match else None
        if path and path.exists():
            found[url] = str(path)
    return found
