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

_BRACKETS: Final = re.compile(r"\$\{\{|(\$\{|\$\(|<%=?|\[\[)\s*(inputs|nodes|job|item|index)\b")
"""Around what could be a template; other languages write `${…}`, `<% … %>` and the like."""
_INSIDE: Final = re.compile(r"\{\{.*?\}\}", re.DOTALL)


def brackets_in(text: str) -> str | None:
    """Say which brackets of another language stand in a text, around a name that templates know; None without any.

    Such a text is what it says: nothing of it is replaced.
    """
    found = _BRACKETS.search(_INSIDE.sub("{{", text))
    if found is None:
        return None
    if found[1] is None:
        return "the $ before {{ stays in the text: other languages write ${{ … }}, here it is {{ … }}"
    return f"{found[0]} stays in the text as it is: templates are written {{{{ … }}}}"


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
