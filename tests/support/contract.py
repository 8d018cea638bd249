"""A judge of HTTP answers: is each one of those that the OpenAPI document promises?"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

Json = dict[str, Any]
_BASE = "urn:document"
_PROBLEM = {"$ref": "#/components/schemas/Problem"}
_NOT_SERVED: Json = {"default": {"content": {"application/problem+json": {"schema": _PROBLEM}}}}
"""What is promised where nothing is served."""


@dataclass(frozen=True)
class Contract:
    """An OpenAPI 3.1 document, whose schemas are JSON Schema 2020-12."""

    document: Json

    @cached_property
    def _registry(self) -> Registry[Any]:
        return Registry().with_resource(_BASE, Resource.from_contents(self.document, default_specification=DRAFT202012))

    @cached_property
    def _paths(self) -> list[tuple[re.Pattern[str], str]]:
        """Paths as patterns, more exact ones first."""
        ordered = sorted(self.document["paths"], key=lambda path: (path.count("{"), path))
        return [(_pattern(path), path) for path in ordered]

    def operation(self, method: str, url: str) -> Json | None:
        """Return what the document says of a call; None: nothing."""
        path = urlsplit(url).path
        for pattern, template in self._paths:
            if pattern.fullmatch(path) and method.lower() in self.document["paths"][template]:
                found: Json = self.document["paths"][template][method.lower()]
                return found
        return None

    def complaints(self, method: str, url: str, status: int, headers: Mapping[str, str], body: bytes) -> list[str]:
        """Return what an answer has that the document does not promise."""
        operation = self.operation(method, url)
        where = f"{method} {urlsplit(url).path} -> {status}"
        if operation is None and status not in {404, 405}:
            return [f"{where}: the document does not know the call"]
        responses = _NOT_SERVED if operation is None else operation["responses"]
        if status == 204:
            return [f"{where}: a body"] if body else []
        promised = responses.get(str(status)) or responses.get(f"{status // 100}XX")
        promised = promised or (responses.get("default") if status >= 400 else None)
        if promised is None:
            return [f"{where}: expected {sorted(responses)}"]
        content = promised.get("content", {})
        if not content:
            return [f"{where}: a body that nobody expects"] if body else []
        kind = headers.get("content-type", headers.get("Content-Type", "")).partition(";")[0].strip()
        if kind not in content:
            return [f"{where}: {kind!r} is none of {sorted(content)}"]
        schema = content[kind].get("schema")
        return [] if schema is None else [f"{where}: {one}" for one in self._violations(schema, json.loads(body))]

    def _violations(self, schema: Json, value: Any) -> list[str]:
        absolute = json.loads(json.dumps(schema).replace('"#/', f'"{_BASE}#/'))
        validator = Draft202012Validator(absolute, registry=self._registry, format_checker=FormatChecker())
        return [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(value)]


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"(\{\w+\})", path)
    return re.compile("".join(_part(part) for part in parts))


def _part(part: str) -> str:
    if part == "{path}":
        return ".+"
    if part == "{ordinal}":
        return "-?[0-9]+"
    return "[^/]+" if part.startswith("{") else re.escape(part)
