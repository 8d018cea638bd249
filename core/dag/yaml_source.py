"""YAML 1.2 core schema, strictly: duplicate keys are errors, only true and false are booleans, dates stay text.

PyYAML reads the syntax; resolution and construction are done here, and every value keeps its line.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from core.dag.yaml_mistakes import MERGE_KEY, key_mistake, syntax_mistake

MAX_CHARACTERS = 1024 * 1024
"""Of a file; whoever reads one needs no more of it than one more."""
MAX_VALUES = 50_000
MAX_DEPTH = 60
MAX_DIGITS = 1234
"""Of an integer; 4,096 bits have no more, and Python reads no more than 4,300."""
_TAG = "tag:yaml.org,2002:"

_CORE_SCHEMA: Final = (
    ("null", r"(?:null|Null|NULL|~|)", "nN~"),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)", "tTfF"),
    ("int", r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))", "-+."),
)

Path = tuple[str | int, ...]


class YamlProblem(Exception):
    """The text is not what this module reads; `line` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


@dataclass(frozen=True, slots=True)
class Source:
    """A value and the line of everything in it."""

    value: Any
    lines: dict[Path, int] = field(default_factory=dict)

    def line(self, path: Path) -> int:
        """Return the line of a path, or of the nearest thing around it."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return self.lines.get((), 1)


class _Composer(
    yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser, yaml.composer.Composer, yaml.resolver.BaseResolver
):
    """Syntax and composition by PyYAML, resolution by the core schema below."""

    def __init__(self, text: str) -> None:
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)
        yaml.composer.Composer.__init__(self)
        yaml.resolver.BaseResolver.__init__(self)
        self._composed = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose one node; `YamlProblem` when there are too many, long before all are read."""
        self._composed += 1
        if self._composed > MAX_VALUES:
            raise YamlProblem(f"more than {MAX_VALUES:,} keys and values", self.get_mark().line + 1)
        return super().compose_node(parent, index)


for _name, _pattern, _first in _CORE_SCHEMA:
    _starts = [*_first, ""] if _name == "null" else list(_first)
    _Composer.add_implicit_resolver(f"{_TAG}{_name}", re.compile(f"^{_pattern}$"), _starts)


def read_yaml(text: str) -> Source:
    """Read one document; `YamlProblem` names the line of what is wrong."""
    if len(text) > MAX_CHARACTERS:
        raise YamlProblem(f"the file has more than {MAX_CHARACTERS:,} characters", 1)
    try:
        root = _Composer(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        raise YamlProblem(*syntax_mistake(text, error)) from error
    except yaml.reader.ReaderError as error:
        raise YamlProblem(_not_allowed(ord(text[error.position])), text.count("\n", 0, error.position) + 1) from error
    except yaml.YAMLError as error:
        raise YamlProblem(f"not YAML: {error}", 1) from error
    except RecursionError as error:
        raise YamlProblem("nested too deeply", 1) from error
    if root is None:
        raise YamlProblem("the file is empty", 1)
    builder = _Builder()
    return Source(builder.build(root, ()), builder.lines)


def _not_allowed(character: int) -> str:
    """Say what is wrong with a character; a byte that is not UTF-8 is read as U+DC80 to U+DCFF (`surrogateescape`)."""
    if 0xDC80 <= character <= 0xDCFF:
        return f"the byte 0x{character - 0xDC00:02x} is not UTF-8"
    return f"the character U+{character:04X} is not allowed"


class _Builder:
    """Turns composed nodes into plain values; aliases are expanded within a limit."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}

    def build(self, node: yaml.Node, path: Path) -> Any:
        """Return the value of one node."""
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        if len(self.lines) > MAX_VALUES:
            raise YamlProblem(f"too many values; at most {MAX_VALUES:,} are allowed", line)
        if len(path) > MAX_DEPTH:
            raise YamlProblem(f"values nested deeper than {MAX_DEPTH} levels", line)
        match node:
            case yaml.MappingNode():
                self._expect_tag(node, "map")
                return self._mapping(node, path)
            case yaml.SequenceNode():
                self._expect_tag(node, "seq")
                return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
            case yaml.ScalarNode():
                return _scalar(node)
            case _:
                raise TypeError(f"{type(node).__name__} is no node of YAML")

    def _expect_tag(self, node: yaml.Node, kind: str) -> None:
        if node.tag != f"{_TAG}{kind}":
            raise YamlProblem(f"the tag {node.tag} is not allowed", node.start_mark.line + 1)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or not isinstance(key := _scalar(key_node), str):
                raise YamlProblem(
                    key_mistake(key_node, next((one for one in path[-1:] if isinstance(one, str)), None)), line
                )
            if key == "<<" and key_node.style is None:
                raise YamlProblem(MERGE_KEY, line)
            if key in result:
                raise YamlProblem(f"the key {key!r} is there twice", line)
            self.lines[(*path, key)] = line
            result[key] = self.build(value_node, (*path, key))
        return result


def _scalar(node: yaml.ScalarNode) -> Any:
    text, line = node.value, node.start_mark.line + 1
    match node.tag.removeprefix(_TAG):
        case "str":
            return text
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int" if len(text) > MAX_DIGITS:
            raise YamlProblem(f"an integer of {len(text)} digits is too large", line)
        case "int":
            return int(text, 0) if text[:2] in {"0o", "0x"} else int(text)
        case "float" if text.lower().lstrip("+-") not in {".inf", ".nan"} and math.isfinite(value := float(text)):
            return value
        case "float":
            raise YamlProblem(f"{text[:80]} is not a JSON number", line)
        case _:
            raise YamlProblem(f"the tag {node.tag} is not allowed", line)


class _Dumper(yaml.SafeDumper):
    """Writes texts with quotes wherever YAML 1.1 or the core schema would read something else than a text."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Escape line ends that only YAML 1.1 knows; written as they are they would become spaces."""
        style = '"' if any(mark in text for mark in "\x85\u2028\u2029\ufeff") else None
        return self.represent_scalar(f"{_TAG}str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)

for _name, _pattern, _first in _CORE_SCHEMA:
    _Dumper.add_implicit_resolver(f"{_TAG}core-{_name}", re.compile(f"^{_pattern}$"), list(_first) or None)


def write_yaml(value: Any) -> str:
    """Return a JSON value as YAML that `read_yaml` reads as the same value, keys in their order."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
