"""Reads `infra/*.bicep` as data: variables, settings and resources, as far as their values stand in the text.

There is no compiler here; pycep-parser knows the grammar and no types. A name and a word look alike to it, so `value`
resolves what is a variable of the file and leaves all else as it is written.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pycep import BicepParser

INFRA = Path(__file__).resolve().parents[3] / "infra"


@dataclass(frozen=True)
class Resource:
    """One resource, or all those of a loop."""

    symbol: str
    type: str
    existing: bool
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Template:
    """One file."""

    name: str
    text: str
    tree: Mapping[str, Any]

    @cached_property
    def variables(self) -> Mapping[str, Any]:
        return {name: one["value"] for name, one in self.tree.get("variables", {}).items()}

    def parameters(self) -> Mapping[str, Any]:
        return self.tree.get("parameters", {})

    def modules(self) -> Mapping[str, Any]:
        return self.tree.get("modules", {})

    def value(self, node: Any) -> Any:
        """Return a literal, a variable's value, or a `union` of objects; other expressions as they were parsed."""
        if isinstance(node, str):
            return self.value(self.variables[node]) if node in self.variables else node
        if isinstance(node, list):
            return [self.value(one) for one in node]
        if not isinstance(node, dict):
            return node
        function = node.get("function")
        if isinstance(function, dict) and function.get("type") == "union":
            merged: dict[str, Any] = {}
            for part in function["parameters"].values():
                merged |= self.value(part)
            return merged
        return {key: self.value(one) for key, one in node.items()}

    def variable(self, name: str) -> Any:
        return self.value(self.variables[name])

    def resources(self) -> Iterator[Resource]:
        for symbol, one in self.tree.get("resources", {}).items():
            config = one["config"]
            while "config" in config and {"condition", "loop_type"} & config.keys():
                config = config["config"]
            yield Resource(symbol, one["type"], bool(one["existing"]), config)

    def resource(self, symbol: str) -> Resource:
        return next(one for one in self.resources() if one.symbol == symbol)


def load() -> dict[str, Template]:
    """Return every template by its name without ending."""
    parser = BicepParser()
    found = {}
    for path in sorted(INFRA.rglob("*.bicep")):
        text = path.read_text(encoding="utf-8")
        found[path.stem] = Template(path.stem, text, parser.parse(text=text))
    return found
