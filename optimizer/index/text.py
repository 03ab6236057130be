"""What of an event can be searched, and how a search text becomes words.

1. An event's text is every key and value of its input and response, its prompt, its tool and the evidence of a failure.
2. The index holds the set of words of each event. Letters and digits form words, case folded; a word in camel case also
   counts from each hump on, so that `NotFound` finds `ModuleNotFoundError`. Scripts without spaces (Chinese, Japanese,
   Korean, Thai) are held as pairs of characters, with the last one alone, so that a single character is found, too.
3. A search text is no language: it is split at white space, every piece must occur, and all of its characters are
   meant literally. The words of a piece narrow the events down; where they do not decide, the text itself is read.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from optimizer.events import Event

MAX_TEXT = 100_000
"""Characters of one event that are searched: of a longer one its beginning and its end, where errors stand."""

_HEAD = 80_000

MAX_WORD = 64
"""Longer words (encoded data) are found by their beginning."""

MAX_PIECES = 32
"""Pieces of a search text that count; more narrow nothing down that so many would not."""

_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def text_of(event: Event) -> str:
    """The text of an event that is searched, at most `MAX_TEXT` characters."""
    parts: list[str] = []
    for name in (event.tool, event.text, event.reason):
        if name:
            parts.append(name)
    _flatten(event.input, parts)
    _flatten(event.response, parts)
    text = "\n".join(parts)
    if len(text) > MAX_TEXT:
        text = f"{text[:_HEAD]}\n…\n{text[_HEAD - MAX_TEXT :]}"
    return storable(text)


def storable(text: str) -> str:
    """Without what SQLite text cannot hold: NUL ends it there, half a surrogate pair is no UTF-8."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _flatten(value: Any, parts: list[str]) -> None:
    """Keys and values in their order, without recursion: nesting has no bound here."""
    pending: list[Any] = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            if one:
                parts.append(one)
        elif isinstance(one, dict):
            for key, member in reversed(one.items()):
                if isinstance(member, str | int | float | bool | None):
                    pending.append(f"{key}: {_plain(member)}")
                else:
                    pending.extend((member, str(key)))
        elif isinstance(one, list | tuple):
            pending.extend(reversed(one))
        elif one is not None:
            parts.append(_plain(one))


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def words_of(text: str) -> str:
    """The set of a text's words, joined by spaces in a fixed order: deleting from the index needs the same again."""
    return " ".join(sorted(_words(_WORD.findall(text))))


def _words(found: Iterable[str]) -> set[str]:
    words: set[str] = set()
    for word in set(found):
        if word.isascii():
            _add_spaced(word, words)
            continue
        for run in _RUN.findall(word):
            if _IS_UNSPACED.match(run):
                words.update(run[at : at + 2] for at in range(len(run)))
            else:
                _add_spaced(run, words)
    return words


def _add_spaced(word: str, words: set[str]) -> None:
    words.add(word.casefold()[:MAX_WORD])
    if 1 < len(word) <= MAX_WORD and not (word.islower() or word.isdigit()):
        words.update(word[hump.start() :].casefold() for hump in _HUMP.finditer(word))


@dataclass(frozen=True)
class Piece:
    """A piece of a search text: a literal that must occur in an event."""

    literal: str
    exact: tuple[str, ...]
    """Words that must be there."""
    begins: tuple[str, ...]
    """Beginnings of words that must be there."""
    decided: bool
    """The words say it all; the text need not be read."""

    def match(self) -> str | None:
        """Condition in FTS5's language; None: no word narrows it down. Everything in it is quoted."""
        terms = [f'"{word}"' for word in self.exact] + [f'"{word}"*' for word in self.begins]
        return " AND ".join(terms) if terms else None


def pieces_of(text: str) -> list[Piece]:
    """The pieces of a search text, each once."""
    found = dict.fromkeys(storable(text).split())
    return [_piece(one) for one in list(found)[:MAX_PIECES]]


def _piece(literal: str) -> Piece:
    exact: list[str] = []
    begins: list[str] = []
    words = list(_WORD.finditer(literal))
    for word in words:
        runs = _RUN.findall(word[0])
        for number, run in enumerate(runs):
            last = number == len(runs) - 1 and word.end() == len(literal)
            if _IS_UNSPACED.match(run):
                if len(run) == 1:
                    begins.append(run)
                else:
                    exact += [run[at : at + 2] for at in range(len(run) - 1)]
                continue
            folded = run.casefold()
            if last or len(folded) > MAX_WORD:
                begins.append(folded[:MAX_WORD])
            else:
                exact.append(folded)
    return Piece(literal, tuple(exact), tuple(begins), _is_decided(literal, words))


def _is_decided(literal: str, words: list[re.Match[str]]) -> bool:
    """Whether the words say as much as the literal: it is one word, or one or two characters of unspaced script."""
    if len(words) != 1 or words[0][0] != literal or len(literal) > MAX_WORD:
        return False
    runs = _RUN.findall(literal)
    return len(runs) == 1 and (len(literal) <= 2 or _IS_UNSPACED.match(literal) is None)
