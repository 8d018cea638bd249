"""Which names blobs may have, whatever storage they lie in, and in which forms a path may name one."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from core.errors import ParameterInvalid
from core.ports import BlobRef

CONTAINERS: Final = frozenset({"bronze", "silver", "external"})
MAX_NAME_CHARACTERS: Final = 1024
TEMPORARY: Final = ".uploading-"
"""Names of files that are not yet blobs begin like this."""


def check_name(ref: BlobRef) -> BlobRef:
    """Return `ref`, or refuse it with the rules of ingest-rules (names and titles).

    Raises:
        ParameterInvalid: on field `blob_name`.
    """
    if ref.container not in CONTAINERS:
        raise invalid(str(ref), f"container must be one of {', '.join(sorted(CONTAINERS))}")
    if complaint := _complaint(ref.name):
        raise invalid(str(ref), complaint)
    return ref


def located(path: str, urls: Mapping[str, str] | None = None) -> BlobRef:
    """Return the blob that a node's param names: `container/name`, or its address in the storage account of its zone.

    Addresses of others, virtual files of GDAL and local paths (spec 9.4) are no blobs: whoever needs one fetches it
    through the guard first (ADR 12).

    Raises:
        ParameterInvalid: on field `blob_name`.
    """
    for zone, url in (urls or {}).items():
        if path.startswith(f"{url}/{zone}/"):
            name, *more = re.split("[?#]", path.removeprefix(f"{url}/{zone}/"), maxsplit=1)
            if more:
                raise invalid(f"{zone}/{name}", "an address in our own storage carries no query and no fragment")
            return check_name(BlobRef(zone, unquote(name)))
    if path.startswith("/") or "://" in path.partition("?")[0]:
        raise invalid(path.partition("?")[0], "expected container/name; addresses and local paths are no blobs")
    return check_name(BlobRef.parse(path))


def invalid(value: str, complaint: str) -> ParameterInvalid:
    """Return the refusal of a name, in characters that can be printed."""
    shown = value.encode(errors="backslashreplace").decode().replace("\x00", "\\0")
    return ParameterInvalid(f"blob {shown!r}: {complaint}", field="blob_name", value=shown)


def _complaint(name: str) -> str | None:
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS:
        return f"name must have 1 to {MAX_NAME_CHARACTERS} characters"
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in name):
        return "name must not contain control characters or lone surrogates"
    if unicodedata.normalize("NFC", name) != name:
        return "name must be in Unicode form NFC"
    if "\\" in name or name.endswith("."):
        return "name must not contain a backslash or end with a dot"
    if any(segment in ("", ".", "..") or segment.startswith(TEMPORARY) for segment in name.split("/")):
        return "name must not have an empty, reserved, '.' or '..' segment"
    return None
