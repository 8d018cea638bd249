"""Everything the gateway serves, in one table: where, what goes in and out, and for whom.

Blueprints register their endpoints by these names, and the OpenAPI document is made of the same rows.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from core.b2b import MAX_ORDINAL
from core.openapi import Endpoint, Parameter, document
from function.contract import assets, operational, platform, webhooks
from function.contract.parts import Route

Json = dict[str, Any]
PATHS: Final[Mapping[str, Json]] = {
    "asset_id": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    "ordinal": {"type": "integer", "minimum": 0, "maximum": MAX_ORDINAL},
    "platform_id": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$"},
    "request_id": {"type": "string", "minLength": 1, "maxLength": 64},
    "job_id": {"type": "string", "minLength": 1, "maxLength": 64},
    "target": {"type": "string", "enum": ["orchestrator", "worker", "serving"]},
    "path": {"type": "string", "minLength": 1, "maxLength": 1024},
}


ROUTES: Final[Mapping[str, Route]] = {**platform.ROUTES, **webhooks.ROUTES, **assets.ROUTES, **operational.ROUTES}
_FLAT_REFS: Final[Json] = {
    "required": ["platform_id", "data_type", "source"],
    "additionalProperties": {"type": "string", "description": "A ref of the platform, instead of platform_refs."},
}
"""A submit may carry the platform's refs flat; which those are, its registry says."""

_CONSTRAINT: Final = re.compile(r"\{\*?(\w+)(?::\w+)?\}")


def endpoints() -> list[Endpoint]:
    """Return everything that is served, for the OpenAPI document."""
    return [
        Endpoint(
            name,
            route.method,
            "/" + _CONSTRAINT.sub(r"{\1}", route.template),
            route.operation,
            tuple(Parameter(place, PATHS[place], place="path") for place in _CONSTRAINT.findall(route.template)),
        )
        for name, route in ROUTES.items()
    ]


def openapi(version: str, server: str) -> Json:
    """Return the OpenAPI document of the gateway."""
    return document(endpoints(), title="geodag", version=version, server=server, patches={"SubmitRequest": _FLAT_REFS})
