"""The principal that App Service's built-in authentication puts into a header, and when it may be believed.

Anybody can send such a header, so it counts only where the platform in front strips it from what clients send: with
IDENTITY_MODE=easyauth and the variable WEBSITE_AUTH_ENABLED=True, which App Service sets itself.
Source: App Service, "Work with user identities in authentication".
"""

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from core.errors import Unauthenticated
from core.identity import PLATFORM_ROLES, Caller
from edge.tokens import caller_of

PRINCIPAL_HEADER: Final = "x-ms-client-principal"
MAX_HEADER_CHARACTERS: Final = 16_384
_CLAIM_NAMES: Final = {
    "http://schemas.microsoft.com/identity/claims/objectidentifier": "oid",
    "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/nameidentifier": "sub",
    "http://schemas.microsoft.com/ws/2008/06/identity/claims/role": "roles",
}


def principal(header: str, platforms: Mapping[str, str]) -> Caller:
    """Return the caller of the header, at most as reader and submitter: it carries no signature.

    Raises:
        Unauthenticated: It cannot be read.
    """
    found = caller_of(_claims(header), platforms)
    return found.model_copy(update={"roles": found.roles & PLATFORM_ROLES})


def _claims(header: str) -> dict[str, Any]:
    if len(header) > MAX_HEADER_CHARACTERS:
        raise Unauthenticated("the principal is too long")
    try:
        listed = json.loads(base64.b64decode(header, validate=True))["claims"]
        pairs = [(str(entry["typ"]), str(entry["val"])) for entry in listed]
    except (ValueError, KeyError, TypeError) as error:
        raise Unauthenticated("the principal cannot be read") from error
    claims: dict[str, Any] = {"roles": []}
    for name, value in ((_CLAIM_NAMES.get(name, name), value) for name, value in pairs):
        if name == "roles":
            claims["roles"].append(value)
        else:
            claims[name] = value
    return claims
