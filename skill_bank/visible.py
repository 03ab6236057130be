"""Characters that a reader does not see, or that turn what they see around: marked wherever text is shown.

Recorded text, names of runs and texts of patches come from anywhere. Such characters hide words from a person that a
model still reads (zero-width, tag and variation characters), turn a line around (bidirectional controls), or take a
terminal over (escape sequences).
"""

import json
import re
from typing import Any

MARK = "\N{REPLACEMENT CHARACTER}"

UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls but tab and line feed
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u3164\uffa0"  # of no width, and fillers
    "\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb"  # line separators, bidirectional, invisible operators
    "\ufe00-\ufe0d\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # variation selectors, music controls, tags
    "\ud800-\udfff"  # halves of surrogate pairs: no text
)
"""As inside the brackets of a regular expression."""

_UNSEEN = re.compile(f"[{UNSEEN}]|(?<=[\ufe0e\ufe0f])[\ufe0e\ufe0f]")
"""One selector of text or emoji style behind a sign is ordinary, a row of them carries something."""

_ESCAPED = re.compile(r"\\[bfru]")
"""What JSON makes of the controls that are no tab and no line feed (or two signs of a text that look like it)."""


def visible_text(text: str) -> str:
    """The text with a mark in the place of each character that cannot be seen."""
    return text if text.isascii() and text.isprintable() else _UNSEEN.sub(MARK, text)


def first_unseen(text: str) -> tuple[int, str] | None:
    """Position (from 0) and name of the first character that cannot be seen, `U+200B`; None where all can."""
    found = _UNSEEN.search(text)
    return None if found is None else (found.start(), f"U+{ord(found[0]):04X}")


def visible(value: Any) -> Any:
    """A JSON value whose texts, keys included, hold no character that a reader cannot see.

    The value itself where that is so already.
    """
    encoded = json.dumps(value, ensure_ascii=False)  # looking through it at once is much quicker than text by text
    if _ESCAPED.search(encoded) is None and visible_text(encoded) == encoded:
        return value
    return _visible(value)


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return visible_text(value)
    if isinstance(value, list):
        return [_visible(one) for one in value]
    if isinstance(value, dict):
        return {visible_text(key) if isinstance(key, str) else key: _visible(one) for key, one in value.items()}
    return value
