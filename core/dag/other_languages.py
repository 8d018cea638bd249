"""Signs of other languages for what conditions and templates write otherwise, told with what to write."""

import re
from collections.abc import Mapping
from typing import Final

_SIGNS: Final[Mapping[str, str]] = {
    "===": "==",
    "!==": "!=",
    "<>": "!=",
    "=>": ">=",
    "=<": "<=",
    "=": "==",
    "&&": "and",
    "&": "and",
    "||": "or",
    "!": "not",
}
"""Longer ones before what they begin with."""
_ONLY_IN_TEMPLATES: Final[Mapping[str, str]] = {"??": "| default(…)", "?": "… if … else …"}
_IN_TEMPLATES: Final = {**_SIGNS, **_ONLY_IN_TEMPLATES}
_SAID: Final = re.compile(
    r"""(?P<passed>'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | [=!<>]=(?!=))
      | (?P<sign>===|!==|<>|=>|=<|=|&&|&|\|\||!|\?\?|\?)""",
    re.VERBOSE | re.DOTALL,
)


def instead_of_sign(source: str, at: int) -> str:
    """Say what to write for the sign at which a condition ends to be one; `===` is known by its second character."""
    if source[at] == "$":
        return "; write {{ … }} without the $"
    begin = at - 2 if source[at] == "=" and source[max(0, at - 2) : at] in {"==", "!="} else at
    found = next((sign for sign in _SIGNS if source.startswith(sign, begin)), None)
    return "" if found is None else f"; write {_SIGNS[found]} instead of {found}"


def instead_in_template(text: str, complaint: str) -> str:
    """Say what to write for the first such sign in a text that is no template; empty when there is none.

    A single `=` may be the argument of a filter: it counts when that is what the complaint is about.
    """
    for found in _SAID.finditer(text):
        if (sign := found["sign"]) and (sign != "=" or "'='" in complaint):
            return f"; write {_IN_TEMPLATES[sign]} instead of {sign}"
    return ""
