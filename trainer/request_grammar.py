"""What a rule of the request parser is, and the pieces that rules are built from.

A rule is a pattern over folded text and a conversion. The named group `v` holds the value, `gap` a stretch inside the
phrase that is left for other rules (the word `mixed` in `64 mixed problems`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainer.request_words import CHINESE_NUMBER, FLAGS, INTEGER, NUMBER, parse_number

ROUND = "round"
"""Pseudo field: number of this round of an evolution (`round=2 | …`)."""

ROUNDS = "rounds"
"""Pseudo field: how many rounds an evolution shall have."""

PRESET = "preset"
"""Pseudo field: name of a bundle of values; what is said explicitly beats it."""

COMMAND = "command"
"""Pseudo field: a leading slash command such as /rllm-train."""

LAPS = "laps"
"""Pseudo field: a bare `3 轮`: epochs, or rounds where the request speaks of an evolution."""

EXPERIENCE = "experience"
"""Pseudo field: name of an experience preset (off, mixed, all, or another that the user names)."""

RANGE = "range"
"""Pseudo field: two values where one is wanted; always refused."""

NOTHING = "nothing"
"""Pseudo field: a phrase that looks like another one and sets nothing (`log every 5 steps`); reported as unknown."""

PRESETS: dict[str, dict[str, Any]] = {"quick": {"problems": 16, "max_steps": 10}}
"""Preset → values: enough steps to see that everything works, too few to learn much."""

ENVIRONMENT_WORDS: dict[str, str] = {
    "calculator": r"calculator|calculation|计算器|四则运算",
    "house_rules": r"house[ _-]?rules?|house\s*规则|房屋规则|家规",
    "lookup": r"look[ _-]?up|retrieval|key[ -]?value|检索|查找|查询|键值",
    "gsm8k": r"gsm[ _-]?8k",
    "reasoning_gym": r"reasoning[ _-]?gym",
}
"""Environment → words that name it."""

MATH_WORDS = r"math(?:s|ematics|ematical)?|arithmetic|算术|数学|计算(?!机|器)"
"""They mean the calculator, unless another environment of arithmetic is named beside them."""

DIFFICULTY_WORDS: dict[str, str] = {
    "simple": r"simple|easy|简单|容易",
    "mixed": r"mixed|混合",
    "hard": r"hard|difficult|困难|较难|高难度|难(?=的|度?题|问题)",
}
"""Difficulty → words that name it."""


@dataclass(frozen=True)
class Rule:
    """One way to say one field."""

    field: str
    pattern: re.Pattern[str]
    convert: Callable[[str], Any]
    raw: bool = False
    """The value keeps the user's spelling (names of models, files, classes)."""
    soft: bool = False
    """A soft value gives way to an explicit one instead of contradicting it."""


def integer(text: str) -> int:
    return int(parse_number(text))


def fraction(text: str) -> float:
    """0.9, 90%, 90 %, 百分之九十, 九成 → 0.9."""
    plain = text.strip()
    tenths, found, hundredths = plain.partition("成")
    if found:
        return round(parse_number(tenths) / 10 + (parse_number(hundredths) / 100 if hundredths else 0), 6)
    if plain.startswith("百分之"):
        return parse_number(plain.removeprefix("百分之")) / 100
    if plain.endswith(("%", "percent")):
        return parse_number(plain.removesuffix("%").removesuffix("percent")) / 100
    return parse_number(plain)


def constant(value: Any) -> Callable[[str], Any]:
    return lambda _: value


def scalar(text: str) -> Any:
    """What stands behind `field=`: a number, true, false, null, or the text itself."""
    plain = text.strip()
    words: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None}
    if plain.lower() in words:
        return words[plain.lower()]
    for kind in (int, float):
        try:
            return kind(plain.replace(",", ""))
        except ValueError:
            continue
    return plain


def rule(field: str, pattern: str, convert: Callable[[str], Any] = str.strip, soft: bool = False) -> Rule:
    return Rule(field, re.compile(pattern, FLAGS), convert, convert in (str.strip, scalar), soft)


IS = r"\s*(?:=|:|is|of|at|to|为|是|设为|设成|设置为|用|约|大约|about|around)?\s*"
INT = rf"(?P<v>{INTEGER})"
NUM = rf"(?P<v>{NUMBER})"
COUNTER = r"\s*(?:个|道|条|组|次|轮|份)?\s*"
OF_GAP = "|".join(
    [
        *DIFFICULTY_WORDS.values(),
        *ENVIRONMENT_WORDS.values(),
        MATH_WORDS,
        r"training|different|random|generated|new|的|训练|随机|house",
    ]
)
GAP = rf"(?P<gap>(?:(?:{OF_GAP})[\s,]*(?:的\s*)?){{0,4}}?)"


def word(words: str) -> str:
    """Words that are not the inside of a longer Latin word; a Chinese word needs no boundary: `学习率1e-4`."""
    return rf"(?:(?<![a-z0-9_])|(?=[^\x00-\x7f]))(?:{words})(?:(?![a-z0-9_])|(?<=[^\x00-\x7f]))"


def named(field: str, names: str, value: str, convert: Callable[[str], Any], reverse: bool = True) -> list[Rule]:
    """`name value` and `value name`."""
    rules = [rule(field, rf"{word(names)}{IS}{value}", convert)]
    if reverse:
        rules.append(rule(field, rf"{value}\s*(?:的\s*)?{word(names)}", convert))
    return rules


def counted(
    field: str, noun: str, convert: Callable[[str], Any] = integer, gap: bool = False, value: str = INT
) -> list[Rule]:
    """`64 problems`, `problems 64`, `64 道题`."""
    between = GAP if gap else ""
    return [
        rule(field, rf"{value}(?:-(?=[a-z]))?{COUNTER}{between}{word(noun)}", convert),
        rule(field, rf"{word(noun)}(?:数量|数目|数|\s+count)?{IS}{value}", convert),
    ]


def ranges(names: str, nouns: str) -> list[Rule]:
    """`10-20 steps`, `between 10 and 20 steps`, `学习率 1e-5 到 1e-4`: two values where a field takes one."""
    number = rf"(?<![\w.-])(?:\d+(?:\.\d+)?(?:e-?\d+)?k?|{CHINESE_NUMBER})"
    either = rf"(?:between\s+{number}\s+and\s+|{number}\s*(?:-|–|—|~|to\b|到|至)\s*){number.replace('.-]', '.]')}"
    return [
        rule(RANGE, rf"(?:from\s+|从\s*)?{either}{COUNTER}{word(nouns)}"),
        rule(RANGE, rf"{word(names)}{IS}(?:from\s+|在|从)?\s*{either}(?![\w.])"),
    ]
