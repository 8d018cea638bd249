"""Which texts are taken from outside: what people read must be what is stored.

Three kinds of characters make a text look like another one: controls, invisible format characters (above all those that
turn the direction, U+202A to U+202E and U+2066 to U+2069, see UTR 36 and CVE-2021-42574), and blanks of other widths.
Names have none of them and no blank at an end, so that two names that look alike are one. Sentences may have the marks
that some scripts and emoji are written with, none of which moves the text around it.
"""

import unicodedata
from typing import Final

_BAD: Final = frozenset({"Cc", "Cs", "Zl", "Zp", "Cf"})
_MARKS: Final = frozenset("\u00ad\u061c\u200c\u200d\u200e\u200f")
"""Format characters of sentences: soft hyphen, letter mark, non-joiner, joiner, marks of direction."""
_UNSEEN: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Fillers and joiners that are not seen, although their category says letter, mark or symbol."""


def is_clean(text: str, allowed: str = "") -> bool:
    """Return whether a text is NFC and free of control characters, separators, surrogates and what turns or hides it.

    Args:
        text: A title, a reason, a comment.
        allowed: Control characters that it may have.
    """
    return unicodedata.is_normalized("NFC", text) and not any(
        unicodedata.category(c) in _BAD and c not in allowed and c not in _MARKS for c in text
    )


def is_name(text: str) -> bool:
    """Return whether a text is clean and has nothing that is not seen: no blank at an end, none but the plain one."""
    return is_clean(text) and text == text.strip() and not any(_is_unseen(c) for c in text)


def _is_unseen(char: str) -> bool:
    if char.isascii():
        return False
    selector = "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef" or "\u180b" <= char <= "\u180f"
    return char in _UNSEEN or char in _MARKS or selector or unicodedata.category(char) == "Zs"
