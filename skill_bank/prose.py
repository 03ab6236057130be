"""Numbers in prose: what a text recommends for a parameter, where it repeats the policy, where it contradicts itself.

A *statement* is a parameter's name (`learning_rate`, "learning rate", lr) with a number behind it, joined by `=`, `:`,
words like "to", "of" or "should be", or the bar of a table row that holds no other number; or a number before it ("1e-5
as the learning rate"). A word that the policy does not hold is a name in backticks or before `=` only. A range ("1e-6
to 1e-5") and a comparison ("above 0.3") recommend nothing. Statements with different conditions (a model size, a clause
with for, when, if …, a heading with one) do not contradict each other. Code blocks are examples and are left out. Two
checks, each `error`, `warn` or `off` by `settings.checks` of the bank:

- `policy_numbers`: a number that the policy of the skill holds for that parameter is written out, not `{{policy.key}}`.
- `contradictions`: two numbers for one parameter under the same condition, in prose or between prose and policy.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from skill_bank.policy import CompiledPolicy
from skill_bank.types import Problem, Text

_NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
_VERBS = r"(?:\b(?:is|are|should|must|be|set|kept|stays?|defaults?)\s+)*\b(?:is|be|of|to|at|use|as|around|about)\b"
_JOIN = (
    rf"[`*\"']*\s*(?:=|:|：|→|->|\||{_VERBS}|\bdefault\b|为|是|到|设为|设置为|改为|调到|降到|提高到|)"
    r"\s*[`*\"']*\s*"
)
_ONE_WORD = r"(?<=`)[a-z]{2,}(?=`\s*(?:=|:|to\b|of\b|at\b))|[a-z]{3,}(?=\s*=\s*[-+.\d])"
"""A word that the policy does not know is a parameter only where it is written as one."""
_NAME = (
    rf"(?<![A-Za-z0-9_.{{/-])(?P<name>[A-Za-z][a-z]*(?:_[a-z0-9]+)+|learning rate|学习率|lr|{_ONE_WORD}|%s)"
    r"(?![A-Za-z0-9_-])"
)
_BEHIND = r"(?![\w%×]|[.,]\d|\s*(?:%|x\b|×|-\s*\d|–|~|\.\.|to\s+\d|至|到))"
_SIZE = re.compile(r"[<>≤≥]?=?\s*\d+(?:\.\d+)?\s*[BbMm]\b|[大中小]模型|\b(?:small|large|tiny|big)\b", re.IGNORECASE)
_CLAUSE = re.compile(
    r"\b(?:for|when|if|where|unless|under|during|without|with|on|until|after|before|in)\b[^,.;:()|]*"
    r"|(?:如果|当|若|对于|针对)[^，。；、|]*",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.;!?])\s+|[。；！？]")
_DIGIT = re.compile(r"[0-9]")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ALIASES = {"lr": "learning_rate", "学习率": "learning_rate"}
_LEAVES = ("default", "min", "max", "value")
"""Last words of policy keys that name no parameter of their own."""


@dataclass(frozen=True)
class Statement:
    """A number that a text recommends for a parameter."""

    parameter: str
    value: float
    shown: str
    condition: frozenset[str]
    file: str
    line: int


def statements(texts: Iterable[tuple[str, Text]], words: Iterable[str] = ()) -> Iterator[Statement]:
    """What the texts ((file, text)) recommend, in reading order. `words`: names of parameters that are known, of one
    word, which count only in backticks or before `=` and `:`, or of several, which may be written with spaces."""
    known = [
        rf"(?:(?<=`){re.escape(one)}(?=`)|{re.escape(one)}(?=\s*[=:]))" if "_" not in one else one.replace("_", "[ _-]")
        for one in sorted(set(words))
        if "." not in one
    ]
    name = _NAME % ("|".join(known) or "(?!)")
    patterns = (
        re.compile(name + _JOIN + rf"(?P<number>{_NUMBER})" + _BEHIND),
        re.compile(rf"(?<![\w.,-])(?P<number>{_NUMBER})[`*]*\s+(?:as|for)\s+(?:the\s+|an?\s+)?[`*]*{name}"),
    )
    for file, text in texts:
        yield from _statements(file, text, patterns)


def _statements(file: str, text: Text, patterns: Iterable[re.Pattern[str]]) -> Iterator[Statement]:
    if _DIGIT.search(text.prose) is None:
        return
    fence: str | None = None
    heading: frozenset[str] = frozenset()
    for line, number in zip(text.prose.split("\n"), text.numbers, strict=True):
        found = _FENCE.match(line)
        if found is not None and (fence is None or found[1].startswith(fence)):
            fence = found[1] if fence is None else None
        if fence is not None or found is not None:
            continue
        if line.startswith("#"):
            heading = _condition(line)
            continue
        if _DIGIT.search(line) is None:
            continue
        if line.startswith("|") and len(re.findall(_NUMBER, line)) != 1:
            continue
        for sentence in _SENTENCE.split(line):
            for match in (one for pattern in patterns for one in pattern.finditer(sentence)):
                rest = sentence[: match.start()] + "," + sentence[match.end() :]
                name = re.sub(r"[ -]", "_", match["name"].lower())
                yield Statement(
                    _ALIASES.get(name, name),
                    float(match["number"].replace(",", "")),
                    match["number"],
                    heading | _condition(rest),
                    file,
                    number,
                )


def _condition(text: str) -> frozenset[str]:
    sizes = {re.sub(r"\s", "", one.group()).lower() for one in _SIZE.finditer(text)}
    clauses = {" ".join(one.group().lower().split()).strip("`*_ ") for one in _CLAUSE.finditer(text)}
    return frozenset(sizes | clauses)


def check_numbers(
    checks: Mapping[str, str],
    texts: Iterable[tuple[str, Text]],
    policy: CompiledPolicy | None,
    problems: list[Problem],
    warnings: list[Problem],
    *,
    whole: bool = True,
) -> None:
    """Runs both checks over the texts of a skill; findings go where the bank's settings say.

    `whole`: all of the policy can be read, so a number that it does not hold, no rule sets.
    """
    where = {"error": problems, "warn": warnings}
    repeated, contradictory = checks.get("policy_numbers", "off"), checks.get("contradictions", "off")
    if repeated == contradictory == "off":
        return
    held = _held(policy)
    said = list(statements(texts, held))
    free: dict[tuple[str, frozenset[str]], list[Statement]] = {}
    for one in said:
        values = held.get(one.parameter)
        if values is not None and one.value in values:
            if repeated != "off":
                where[repeated].append(_repeats(one, values[one.value]))
        else:
            free.setdefault((one.parameter, one.condition), []).append(one)
    if contradictory == "off":
        return
    for (parameter, _), same in free.items():
        values = held.get(parameter)
        if values is not None and whole:
            where[contradictory].extend(_against_policy(one, next(iter(values.values()))) for one in same)
        elif values is None and len({one.value for one in same}) > 1:
            where[contradictory].append(_contradiction(parameter, same))


def _held(policy: CompiledPolicy | None) -> dict[str, dict[float, str]]:
    """Parameter → its numbers in the policy, each with its key."""
    found: dict[str, dict[float, str]] = {}
    for one in policy.assignments if policy is not None else ():
        numbers: list[Any] = one.value if isinstance(one.value, list) else [one.value]
        words = one.key.split(".")
        names = {one.key, words[-1] if words[-1] not in _LEAVES or len(words) == 1 else words[-2]}
        for value in numbers:
            if type(value) in (int, float):
                for name in names:
                    found.setdefault(name, {}).setdefault(float(value), one.key)
    return found


def _repeats(one: Statement, key: str) -> Problem:
    return Problem(
        one.file,
        one.line,
        f"{one.parameter} {one.shown} is written out, and the policy holds it",
        f"Write {{{{policy.{key}}}}}, so that the text changes with the policy",
    )


def _against_policy(one: Statement, key: str) -> Problem:
    return Problem(
        one.file,
        one.line,
        f"the text says {one.parameter} {one.shown}, which no rule of the policy sets",
        f"Write {{{{policy.{key}}}}}, or change the policy",
    )


def _contradiction(parameter: str, same: list[Statement]) -> Problem:
    first: dict[float, Statement] = {}
    for one in same:
        first.setdefault(one.value, one)
    places = ", ".join(f"{one.shown} ({one.file.rpartition('/')[2]}:{one.line})" for one in first.values())
    last = list(first.values())[-1]
    return Problem(
        last.file,
        last.line,
        f"{len(first)} different numbers for {parameter} under the same condition: {places}",
        "Keep one, say when each holds, or let the policy hold them",
    )
