"""Request text, English or Chinese, → fields of a `TrainingConfig`, each with the words it came from.

1. Nothing is guessed silently: words that carry meaning and were not understood come back as `unknown` spans.
2. Two different values for one field are one clear error that names both phrases.
3. A preset ("quick test") gives values that anything said explicitly beats.
4. A phrase that is negated ("not on the gpu") is not understood rather than understood the wrong way round.
5. A value that no configuration can have ("-5 problems", "10-20 steps") is refused here, in its own words.
"""

import re
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from trainer.config import ConfigError, TrainingConfig
from trainer.config_errors import explain_field_errors
from trainer.request_grammar import (
    COMMAND,
    EXPERIENCE,
    LAPS,
    NOTHING,
    PRESET,
    PRESETS,
    RANGE,
    ROUND,
    ROUNDS,
    Rule,
)
from trainer.request_rules import RULES
from trainer.request_words import NEGATION, fold, leftover_spans

MAX_REQUEST_CHARACTERS = 20_000
"""A request is a sentence or a page, not a file."""

DEFAULT_ROUNDS = 2
"""Rounds of an evolution that names none: one that finds and proves a patch, one that trains with it."""

_AMOUNT_FIELDS = ("epochs", "max_steps", "max_episodes")
_PSEUDO = frozenset({ROUND, ROUNDS, PRESET, COMMAND, EXPERIENCE})
_EVOLUTION = re.compile(r"traj-|meta-|evol|self-improv|优化|演进|进化|迭代", re.IGNORECASE)


class RequestError(ConfigError):
    """A request that contradicts itself or is no text that can be read."""


@dataclass(frozen=True)
class Span:
    """A stretch of the request."""

    start: int
    end: int
    text: str
    """In the user's own spelling."""


@dataclass(frozen=True)
class Found:
    """A value and the words that gave it."""

    field: str
    value: Any
    span: Span


@dataclass(frozen=True)
class ParsedRequest:
    """What a request says."""

    text: str
    found: tuple[Found, ...]
    """In the order of the text, one for each phrase."""
    unknown: tuple[Span, ...]
    """Words that carry meaning and were not understood."""

    def values(self) -> dict[str, Any]:
        """Field of the config → value; explicit phrases beat the preset's."""
        explicit = {one.field: one.value for one in reversed(self.found) if one.field not in _PSEUDO}
        preset = dict(PRESETS[self.preset]) if self.preset is not None else {}
        if any(name in explicit for name in _AMOUNT_FIELDS):
            preset = {name: value for name, value in preset.items() if name not in _AMOUNT_FIELDS}
        return preset | explicit

    def source_of(self, field: str) -> str:
        """The words that gave a field of `values()`."""
        for one in self.found:
            if one.field == field:
                return one.span.text
        return next((one.span.text for one in self.found if one.field == PRESET), "")

    def _pseudo(self, name: str) -> Any:
        return next((one.value for one in self.found if one.field == name), None)

    @property
    def preset(self) -> str | None:
        """Name of the preset, such as "quick"."""
        found: str | None = self._pseudo(PRESET)
        return found

    @property
    def round(self) -> int | None:
        """Number of this round (`round=2 | …`)."""
        found: int | None = self._pseudo(ROUND)
        return found

    @property
    def rounds(self) -> int | None:
        """How many rounds an evolution shall have."""
        found: int | None = self._pseudo(ROUNDS)
        return found

    @property
    def experience(self) -> str | None:
        """Name of the experience preset: off, mixed, all, or another name that the request gives."""
        found: str | None = self._pseudo(EXPERIENCE)
        return found

    def phrase_of(self, name: str) -> str:
        """The words behind `round`, `rounds`, `preset` or `experience`; empty where the request says nothing of it."""
        return next((one.span.text for one in self.found if one.field == name), "")


def rounds_wanted(request: str, given: int | None) -> int:
    """Rounds of an evolution: what an option or argument gives, else what the request says, else `DEFAULT_ROUNDS`.

    Raises RequestError where the two differ.
    """
    said = parse_request(request)
    if given is not None and said.rounds is not None and given != said.rounds:
        raise RequestError(
            f'the request says "{said.phrase_of(ROUNDS)}", the option rounds says {given}. Keep one of the two.'
        )
    return given or said.rounds or DEFAULT_ROUNDS


@dataclass(frozen=True)
class _Match:
    rule: Rule
    start: int
    end: int
    value: str
    gap: tuple[int, int] | None


def parse_request(text: str) -> ParsedRequest:
    """Reads a request. Raises RequestError where it contradicts itself or is too long; drops nothing silently."""
    if len(text) > MAX_REQUEST_CHARACTERS:
        raise RequestError(
            f"the request has {len(text)} characters; at most {MAX_REQUEST_CHARACTERS} are read. "
            f"Put long settings into a file and pass it with --config."
        )
    folded = fold(text)
    matches: list[_Match] = []
    free: list[tuple[int, int]] = []
    _scan(folded, text, 0, len(folded), matches, free)
    unknown = [Span(a, b, text[a:b]) for start, end in sorted(free) for a, b in leftover_spans(folded, start, end)]
    matches.sort(key=lambda match: match.start)
    matches = _drop_soft(matches)
    found = [
        Found(
            match.rule.field,
            match.rule.convert(match.value),
            Span(match.start, match.end, text[match.start : match.end].strip()),
        )
        for match in matches
    ]
    found = [_lap(one, text) for one in found]
    _refuse_impossible(found)
    _refuse_contradictions(found)
    return ParsedRequest(text, tuple(found), tuple(unknown))


def _scan(folded: str, text: str, start: int, end: int, matches: list[_Match], free: list[tuple[int, int]]) -> None:
    """Takes the leftmost, then longest phrase, again and again; what lies between goes to `free`."""
    position = start
    ahead = {number: _first(rule, folded, text, start, end) for number, rule in enumerate(RULES)}
    while position < end:
        best: _Match | None = None
        for number, match in list(ahead.items()):
            if match is not None and match.start < position:  # overtaken: look again behind what was taken
                match = ahead[number] = _first(RULES[number], folded, text, position, end)
            if match is None:
                del ahead[number]
            elif best is None or (match.start, -match.end) < (best.start, -best.end):
                best = match
        if best is None:
            break
        free.append((position, best.start))
        if best.rule.field == NOTHING or NEGATION.search(folded[position : best.start]):
            free[-1] = (position, best.end)
        else:
            matches.append(best)
            if best.gap is not None:
                _scan(folded, text, best.gap[0], best.gap[1], matches, free)
        position = best.end
    free.append((position, end))


def _first(rule: Rule, folded: str, text: str, start: int, end: int) -> _Match | None:
    found = rule.pattern.search(folded, start, end)
    if found is None or found.end() == found.start():
        return None
    groups = found.groupdict()
    first, last = found.span("v") if groups.get("v") is not None else found.span()
    # what a person names (models, files, classes) keeps its spelling; numbers and words are read folded
    raw = text[first:last] if rule.raw else folded[first:last]
    gap = found.span("gap") if groups.get("gap") else None
    return _Match(rule, found.start(), found.end(), raw, gap)


def _drop_soft(matches: list[_Match]) -> list[_Match]:
    """`math gsm8k agent`: the general word gives way to the environment that is named; other fields likewise."""
    hard = {match.rule.field: match for match in matches if not match.rule.soft}
    kept = []
    for match in matches:
        other = hard.get(match.rule.field)
        gives_way = match.rule.soft and other is not None
        if gives_way and other is not None and match.rule.field == "env":
            gives_way = other.rule.convert(other.value) in ("gsm8k", "reasoning_gym")
        if not gives_way:
            kept.append(match)
    return kept


def _lap(one: Found, text: str) -> Found:
    """A bare `3 轮` means rounds where the request speaks of an evolution, else epochs."""
    if one.field != LAPS:
        return one
    if _EVOLUTION.search(text):
        return Found(ROUNDS, one.value, one.span)
    return Found("epochs", float(one.value), one.span)


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) or (isinstance(a, str) and isinstance(b, str) and a.lower() == b.lower())


def _refuse_impossible(found: list[Found]) -> None:
    """Raises RequestError for ranges and for values outside of what the field allows, each with its words."""
    for one in found:
        if one.field == RANGE:
            raise RequestError(f'"{one.span.text}" names two values where one is wanted. Name one of them.')
        if one.field in (ROUND, ROUNDS) and one.value < 1:
            raise RequestError(f'"{one.span.text}" asks for {one.field} {one.value}; allowed: at least 1.')
    explicit = [one for one in found if one.field in TrainingConfig.model_fields]
    for one in explicit:
        try:
            TrainingConfig.model_validate({one.field: one.value})
        except ValidationError as error:
            message = explain_field_errors(error, one.field, one.span.text)
            if message:
                raise RequestError(message) from error


def _refuse_contradictions(found: list[Found]) -> None:
    first: dict[str, Found] = {}
    for one in found:
        before = first.setdefault(one.field, one)
        if one.field != COMMAND and not _same(before.value, one.value):
            raise RequestError(
                f'the request contradicts itself: "{before.span.text}" asks for {one.field} {before.value}, '
                f'"{one.span.text}" for {one.field} {one.value}. Keep one of them.'
            )
