"""What an author did wrong when a text is not YAML, or is YAML that says something else than what was meant."""

import re
from typing import Final

import yaml

MAX_LINE: Final = 1000
"""Characters of a line in which a template is looked for, which takes their square where many begin and none ends."""
MERGE_KEY: Final = '<<: merge keys are not part of the language; write the keys out, or "<<" for a key of that name'
_UNQUOTED: Final = re.compile(r"(?:^|[:,\[{-]\s+|\[)(?P<template>\{\{.*?\}\})")
_SAME_COLUMN: Final = "begin the keys of one mapping, and the items of one list, in one column"
_NOT_CLOSED: Final = re.compile(r"while parsing a flow (mapping|sequence)")


def syntax_mistake(text: str, error: yaml.MarkedYAMLError) -> tuple[str, int]:
    """Return what is wrong and its line, both counted from 1; the column stands in the message."""
    mark = error.problem_mark or error.context_mark
    problem = error.problem or "not YAML"
    if mark is None:
        return problem, 1
    line = next(iter(text.splitlines()[mark.line : mark.line + 1]), "")[:MAX_LINE]
    hint = _hint(problem, error, line)
    return f"{problem} (column {mark.column + 1}){f': {hint}' if hint else ''}", mark.line + 1


def _hint(problem: str, error: yaml.MarkedYAMLError, line: str) -> str | None:
    if template := _UNQUOTED.search(line):
        return _quoted(template["template"])
    if flow := _NOT_CLOSED.fullmatch(error.context or ""):
        opened, closed = ("{", "}") if flow[1] == "mapping" else ("[", "]")
        begin = f" of line {error.context_mark.line + 1}" if error.context_mark else ""
        return f"the {opened}{begin} has no {closed}, or a comma is missing in it"
    if "<block end>" in problem:
        begin = f" in column {error.context_mark.column + 1}" if error.context_mark else " elsewhere"
        return f"the line is indented otherwise than the block around it, which begins{begin}; {_SAME_COLUMN}"
    if "mapping values are not allowed" in problem:
        return f"the line is indented too far, or a text has a colon and needs quotes; {_SAME_COLUMN}"
    if error.context == "while scanning a quoted scalar" and error.context_mark:
        return f"the quotes that begin in line {error.context_mark.line + 1} are not closed"
    if "'\\t'" in problem:
        return "indent by spaces, not by tabs"
    if "could not find expected ':'" in problem:
        return "a key has no colon behind it, or a text of several lines is not indented further than its key"
    return None


def key_mistake(node: yaml.Node, word: str | None) -> str:
    """Return what is wrong with a key that is not a text; `word` is the key around it."""
    if isinstance(node, yaml.ScalarNode):
        return f"the key {node.value!r} is not text; quote it"
    if isinstance(node, yaml.MappingNode) and node.flow_style:
        said = f"{word}: " if word else ""
        inner = node.value[0][0].value if len(node.value) == 1 else None
        template = f"{{{{ {inner} }}}}" if isinstance(inner, str) else "{{ … }}"
        return f"{said}a key is a mapping, not text: {_quoted(template, said)}, since YAML reads braces as a mapping"
    return f"a key is a {'list' if isinstance(node, yaml.SequenceNode) else 'mapping'}, not text"


def _quoted(template: str, said: str = "") -> str:
    return f'put the whole value with {{{{ … }}}} in quotes, as in {said}"{template}"'
