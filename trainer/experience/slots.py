"""From one attempt to a recipe: literals that question and calls share become slots. Pure, and free of environments.

A literal of a call (a number in it, or a whole argument) that stands in the question becomes a slot named x, y, z, …;
one that equals an earlier call's answer becomes `its result`; everything else stays as it is, so the part of a question
that no call uses (the number of a house) goes on telling to what the recipe applies.

Which reading is meant is not always clear: in `2 @ 5` answered with `(2 + 5) * 2` the last 2 may be the question's or a
constant. All readings are made here; `distil` takes the one that the most tasks agree on.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from trainer.experience.tokens import FUNCTION_WORDS
from trainer.experience.trajectories import Call

NAMES = ("x", "y", "z", "u", "v", "w", "p", "q", "r", "s", "t")
MAX_READINGS = 256
MAX_CALLS = 6
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w]|\.\d)")


@dataclass(frozen=True)
class Slot:
    """A place of the question, by its offset and text."""

    start: int
    text: str


@dataclass(frozen=True)
class ResultOf:
    """The answer to an earlier call of the recipe."""

    call: int


Part = str | Slot | ResultOf


@dataclass(frozen=True)
class Step:
    """One call with its arguments in parts."""

    tool: str
    arguments: tuple[tuple[str, tuple[Part, ...]], ...]


@dataclass(frozen=True)
class Reading:
    """One way to read an attempt."""

    situation: str
    """The question with slots."""
    advice: str
    """The calls with the same slots."""
    bound: int
    """Literals that became a slot or a result."""
    slots: int
    """Different places of the question that are used."""
    repeated: bool
    """A place of the question is used more than once."""
    constants: tuple[str, ...]
    """What stands in the calls as it was."""


def needed(calls: Sequence[Call]) -> list[Call]:
    """The calls that led to the last one: answers were used, failures and repetitions are left out.

    Where no call uses another's answer, all that succeeded.
    """
    good = [call for number, call in enumerate(calls) if not call.failed and call not in calls[:number]]
    if not good:
        return []
    wanted, kept = {len(good) - 1}, []
    for number in range(len(good) - 1, -1, -1):
        if number not in wanted:
            continue
        kept.append(good[number])
        for earlier in range(number - 1, -1, -1):
            if any(_uses(str(v), good[earlier].result) for v in good[number].arguments.values()):
                wanted.add(earlier)
    return good if len(kept) == 1 else kept[::-1]


def readings(question: str, calls: Sequence[Call]) -> list[Reading]:
    """All readings of the calls as a recipe for the question; none where there are too many or too many calls."""
    if not calls or len(calls) > MAX_CALLS:
        return []
    choices: list[list[Part]] = []
    shape: list[tuple[str, list[tuple[str, list[int]]]]] = []
    for number, call in enumerate(calls):
        arguments = []
        for name, value in call.arguments.items():
            places = []
            for options in _options(str(value), question, calls[:number]):
                places.append(len(choices))
                choices.append(options)
            arguments.append((name, places))
        shape.append((call.tool, arguments))
    count = 1
    for options in choices:
        count *= len(options)
        if count > MAX_READINGS:
            return []
    return [_reading(question, shape, chosen) for chosen in product(*choices)]


def _options(value: str, question: str, earlier: Sequence[Call]) -> Iterator[list[Part]]:
    """The parts of an argument, each with what it may be."""
    whole = value.strip()
    bound = _bindings(whole, question, earlier, words=True)
    if bound:
        yield [*bound, whole]
        return
    position = 0
    for match in NUMBER.finditer(value):
        bound = _bindings(match.group(), question, earlier, words=False)
        if bound:
            if match.start() > position:
                yield [value[position : match.start()]]
            yield [*bound, match.group()]
            position = match.end()
    if position < len(value):
        yield [value[position:]]


def _bindings(text: str, question: str, earlier: Sequence[Call], *, words: bool) -> list[Part]:
    if not text or (words and text in FUNCTION_WORDS):
        return []
    bound: list[Part] = [Slot(start, text) for start in _places(text, question)]
    for number in range(len(earlier) - 1, -1, -1):
        if earlier[number].result.strip() == text:
            bound.append(ResultOf(number))
            break  # equal answers are one
    return bound


def _places(text: str, question: str) -> Iterator[int]:
    """Where the text stands in the question, not inside of a longer word or number."""
    start = question.find(text)
    while start >= 0:
        before, after = question[start - 1 : start], question[start + len(text) : start + len(text) + 2]
        joined = _sticks(before, text[0]) or _sticks(after[:1], text[-1])
        if not joined and not (text[-1].isdigit() and re.match(r"\.\d", after)):
            yield start
        start = question.find(text, start + 1)


def _sticks(a: str, b: str) -> bool:
    return bool(a) and a.isascii() and b.isascii() and (a.isalnum() or a == "_") and (b.isalnum() or b == "_")


def _uses(value: str, result: str) -> bool:
    """Whether an argument is an earlier answer, or holds it as a number."""
    text = result.strip()
    return bool(text) and (value.strip() == text or text in NUMBER.findall(value))


def _reading(question: str, shape: list[tuple[str, list[tuple[str, list[int]]]]], chosen: Sequence[Part]) -> Reading:
    used = sorted({part for part in chosen if isinstance(part, Slot)}, key=lambda slot: slot.start)
    free = [name for name in NAMES if not re.search(rf"(?<![A-Za-z]){name}(?![A-Za-z])", question)]
    free += [f"x{number}" for number in range(1, len(used) + 1)]
    name_of = dict(zip(used, free, strict=False))
    situation, position = "", 0
    for slot in used:
        if slot.start < position:
            continue  # inside of another slot
        situation += question[position : slot.start] + name_of[slot]
        position = slot.start + len(slot.text)
    situation += question[position:]
    told = []
    for number, (tool, arguments) in enumerate(shape):
        values = [(name, "".join(_said(chosen[i], name_of, number) for i in places)) for name, places in arguments]
        told.append(_call_text(tool, values))
    slots = [part for part in chosen if isinstance(part, Slot)]
    return Reading(
        situation=" ".join(situation.split()),
        advice=", then ".join(told),
        bound=sum(not isinstance(part, str) for part in chosen),
        slots=len(used),
        repeated=len(slots) > len(set(slots)),
        constants=tuple(part for part in chosen if isinstance(part, str)),
    )


def _said(part: Part, name_of: dict[Slot, str], number: int) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Slot):
        return name_of[part]
    return "its result" if part.call == number - 1 else f"the result of call {part.call + 1}"


def _call_text(tool: str, values: list[tuple[str, str]]) -> str:
    if not values:
        return tool
    if len(values) == 1:
        return f"{tool} with {values[0][1]}"
    return f"{tool} with {' and '.join(f'{name} {value}' for name, value in values)}"
