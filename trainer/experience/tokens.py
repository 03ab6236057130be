"""Texts as tokens, the same for the full-text index, the embedder and the comparison of records. English and Chinese.

Words and numbers are tokens; a run of Chinese, Japanese or Korean characters gives its single characters and pairs of
neighbours, so that questions of one or two characters find something; signs of arithmetic that stand alone are tokens.
"""

import re
import unicodedata
from collections.abc import Iterator

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_NUMBER = r"\d+(?:\.\d+)*"
_SIGN = r"(?<![^\W\d_])[@+*/=^%<>|&#$~!-](?![^\W\d_])"
_PIECE = re.compile(rf"(?P<cjk>[{_CJK}]+)|(?P<number>{_NUMBER})|(?P<word>[^\W\d_{_CJK}]+\d*)|(?P<sign>{_SIGN})")
_SPACES = re.compile(r"\s+")

FUNCTION_WORDS = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "by",
        "can",
        "do",
        "does",
        "for",
        "from",
        "how",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "of",
        "on",
        "or",
        "so",
        "than",
        "that",
        "the",
        "then",
        "this",
        "to",
        "use",
        "used",
        "was",
        "what",
        "when",
        "where",
        "which",
        "who",
        "why",
        "will",
        "with",
        "you",
        "your",
        "i",
        "we",
        "our",
        "please",
        "的",
        "了",
        "是",
        "在",
        "和",
        "有",
        "与",
        "请",
        "吗",
        "呢",
        "么",
        "什",
        "多",
        "少",
        "把",
        "被",
        "就",
        "也",
        "都",
        "很",
        "这",
        "那",
        "一",
        "个",
    ]
)
"""Words that say little about a situation: they count for less in an embedding and are no literals."""


def normalised(text: str) -> str:
    """Compatibility forms joined (full width, ligatures), case folded, white space collapsed."""
    return _SPACES.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """(kind, piece) of a normalised text, in order; kind is cjk, number, word or sign."""
    for match in _PIECE.finditer(text):
        kind = match.lastgroup
        assert kind is not None
        yield kind, match.group()


def tokens(text: str) -> list[str]:
    """Tokens of a text in order, with repetitions."""
    found: list[str] = []
    for kind, piece in pieces(normalised(text)):
        if kind == "cjk":
            found += piece
            found += [piece[i : i + 2] for i in range(len(piece) - 1)]
        else:
            found.append(piece)
    return found


def index_form(token: str) -> str:
    """The token in letters that SQLite's tokenizer leaves whole: signs and points become letters."""
    return "".join(c if c.isalnum() else f"z{ord(c):x}z" for c in token)


def index_text(text: str) -> str:
    """What the full-text index holds of a text."""
    return " ".join(index_form(token) for token in tokens(text))


def literals(text: str) -> frozenset[str]:
    """What must be equal where two texts mean the same: numbers and signs."""
    return frozenset(piece for kind, piece in pieces(normalised(text)) if kind in ("number", "sign"))


def skeleton(text: str) -> str:
    """The text with numbers and signs masked: `x + 5` and `x - 7` have the same."""
    return " ".join("#" if kind in ("number", "sign") else piece for kind, piece in pieces(normalised(text)))
