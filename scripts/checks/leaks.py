"""Nothing of this machine and nothing secret gets into the repository; nothing unfinished either."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from scripts.checks.tree import Finding, SourceFile

# The patterns are written so that this file does not match itself.
_EVERYWHERE: Final = (
    (re.compile(r"(?<![\w.])/(work|farm|root)/"), "a path of one machine"),
    (re.compile(r"pythonhosted[.]org|pypi[.]org|npmjs[.]org|deb[.]debian[.]org"), "the host of a package registry"),
    (re.compile(r"https?://\S+/simple\b|--(extra-)?index-url|--find[-]links"), "a download address"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"), "a private key"),
    (re.compile(r"AccountKey=[A-Za-z0-9+/]{40}|\bsig=[A-Za-z0-9%+/]{40}|\bAKIA[0-9A-Z]{16}\b"), "a cloud credential"),
    (re.compile(r"\bgh[pousr]_[A-Za-z0-9]{30}|\bxox[bap]-[0-9A-Za-z-]{20}"), "a token of a service"),
)
_PYTHON: Final = (
    (re.compile(r"#.*\b(TOD[O]|FIXM[E]|XX[X])\b|\braise NotImplemente[d](Error)?\b"), "unfinished work"),
    (re.compile(r"#\s*type:\s*ignore(?!\[)"), "a type: ignore without its code"),
    (re.compile(r"#\s*noqa(?!:)"), "a noqa without its code"),
)


def check(files: Iterable[SourceFile]) -> Iterator[Finding]:
    """Yield lines that name this machine, hold a secret or promise work."""
    for file in files:
        patterns = _EVERYWHERE + (_PYTHON if file.is_python else ())
        if file.name.startswith("tests/unit/scripts/"):
            continue  # shows the checks what they must find
        for number, line in file.lines():
            for pattern, meaning in patterns:
                if pattern.search(line):
                    yield Finding(file.name, number, meaning)
