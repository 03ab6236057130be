"""From an attempt to templates: what question, calls and row share becomes slots. Pure.

- An argument that stands in the question is a slot; one that holds numbers (`3 + 4`) has a slot for each of them, at
  the place where it stands. A number inside of an argument that stands nowhere as a whole is a slot where the number
  stands in the question.
- An argument, or a number in one, that equals an earlier answer is that answer.
- A field of the row that equals an answer takes the new one; one that equals a slot follows the slot. Everything else
  in the row says in which world the question is asked.

Where a value stands at several places, or a number is used several times and may be a constant, every *reading* is
made; the originals decide (`support`).
"""

import copy
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from trainer.datafiles import Row
from trainer.experience.slots import NUMBER
from trainer.experience.tokens import FUNCTION_WORDS
from trainer.experience.trajectories import Call
from trainer.generation.profile import question_of
from trainer.generation.types import Attempt, Reason

MAX_READINGS = 64


@dataclass(frozen=True)
class Place:
    """A place of the question."""

    start: int
    text: str


@dataclass(frozen=True)
class Answer:
    """What an earlier call answered."""

    call: int


Part = str | Place | Answer


@dataclass(frozen=True)
class Slot:
    """What is filled anew."""

    number: bool
    words: int
    """Words of the value that it was read from: a text slot takes as many."""
    role: str
    """tool.argument where it is used first: where other values for it come from."""


Piece = str | int | Answer
"""A constant, a slot by its number, or an answer."""


@dataclass(frozen=True)
class TemplateCall:
    """One call with its arguments in pieces; what is no text or number is a constant."""

    tool: str
    arguments: tuple[tuple[str, tuple[Piece, ...] | None, Any], ...]
    """(name, pieces or None, the value that it was read from)."""

    def filled(self, values: Sequence[str], answers: Sequence[str]) -> dict[str, Any]:
        """The arguments with values for slots and answers so far. Raises ValueError where a number is wanted."""
        given = {}
        for name, pieces, original in self.arguments:
            if pieces is None:
                given[name] = copy.deepcopy(original)
                continue
            text = "".join(_said(piece, values, answers) for piece in pieces)
            given[name] = text if isinstance(original, str) else type(original)(text)
        return given


@dataclass(frozen=True)
class Template:
    """A kind of task."""

    question: tuple[str | int, ...]
    """Constants and slots, in order."""
    slots: tuple[Slot, ...]
    calls: tuple[TemplateCall, ...]
    fields: tuple[tuple[str, Piece], ...]
    """Fields of the row that follow a slot or an answer."""
    attempt: Attempt
    """What it was read from."""
    values: tuple[str, ...]
    """The slots' values there."""

    @property
    def text(self) -> str:
        """The question with {0}, {1}, … for slots."""
        return "".join(f"{{{part}}}" if isinstance(part, int) else part for part in self.question)

    @property
    def shape(self) -> str:
        """The calls, whatever the question's words: templates of one shape ask for the same with the same numbers."""
        return json.dumps(
            [
                [one.tool, [[name, *(_sign(p) for p in pieces or ())] for name, pieces, _ in one.arguments]]
                for one in self.calls
            ]
        )

    @property
    def key(self) -> str:
        """What makes two templates the same, whatever attempt they were read from."""
        constants = [[json.dumps(v, default=str) for _, p, v in one.arguments if p is None] for one in self.calls]
        return json.dumps([self.text, self.shape, constants, [[name, _sign(piece)] for name, piece in self.fields]])

    @property
    def answer_fields(self) -> tuple[str, ...]:
        """Fields that hold what the calls find."""
        return tuple(name for name, piece in self.fields if isinstance(piece, Answer))

    def world_fields(self, row: Row, ignored: frozenset[str]) -> tuple[str, ...]:
        """Fields of a row that say in which world the question is asked."""
        bound = {name for name, _ in self.fields}
        return tuple(sorted(key for key in row if key != "prompt" and key not in bound and key not in ignored))

    def asked(self, values: Sequence[str]) -> str:
        """The question with these values."""
        return "".join(values[part] if isinstance(part, int) else part for part in self.question)

    def match(self, question: str) -> tuple[str, ...] | None:
        """The values with which this template asks a question, or None."""
        found = self._pattern.fullmatch(question)
        return None if found is None else found.groups()

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(
            "".join(
                _slot_pattern(self.slots[part]) if isinstance(part, int) else re.escape(part) for part in self.question
            )
        )


def _slot_pattern(slot: Slot) -> str:
    if slot.number:
        return r"(\d+(?:\.\d+)?)"
    return r"(\S+?" + r"\s+\S+?" * (slot.words - 1) + ")"


def _said(piece: Piece, values: Sequence[str], answers: Sequence[str]) -> str:
    if isinstance(piece, int):
        return values[piece]
    return answers[piece.call] if isinstance(piece, Answer) else piece


def _sign(piece: Piece) -> list[Any]:
    if isinstance(piece, Answer):
        return ["answer", piece.call]
    return ["slot", piece] if isinstance(piece, int) else ["constant", piece]


def readings(attempt: Attempt, row: Row) -> list[Template] | Reason:
    """All templates that an attempt at a row may stand for, or why there is none."""
    question, calls = question_of(row), attempt.calls
    again = _used_again(calls)
    choices: list[list[tuple[Part, ...] | None]] = []
    for number, call in enumerate(calls):
        for value in call.arguments.values():
            options = list(_options(value, question, calls[:number], again))
            choices.append(options)
    size = 1
    for options in choices:
        size *= len(options)
        if size > MAX_READINGS:
            return Reason.AMBIGUOUS
    made = [_template(attempt, row, question, chosen) for chosen in product(*choices)]
    if any(_unfounded(template, row) for template in made):
        return Reason.UNFOUNDED
    found = {template.key: template for template in made if template.slots and _apart(template)}
    return list(found.values()) or Reason.NOTHING_SHARED


# ---- what an argument may be


def _options(
    value: Any, question: str, earlier: Sequence[Call], again: frozenset[str]
) -> Iterator[tuple[Part, ...] | None]:
    """Ways to read one argument."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        yield None
        return
    text = str(value)
    whole = text.strip()
    answers = [number for number, call in enumerate(earlier) if whole and call.result.strip() == whole]
    found: list[tuple[Part, ...]] = [(Answer(answers[-1]),)] if answers else []
    places = list(_places(whole, question)) if whole and whole not in FUNCTION_WORDS else []
    found += [_at(whole, start) for start in places]
    if found:
        yield from dict.fromkeys(found)
        return
    yield from _inside(text, question, earlier, again)


def _at(text: str, start: int) -> tuple[Part, ...]:
    """A text that stands in the question: a slot, or one for each of its numbers."""
    numbers = list(NUMBER.finditer(text))
    if not numbers:
        return (Place(start, text),)
    parts: list[Part] = []
    position = 0
    for match in numbers:
        parts += [text[position : match.start()], Place(start + match.start(), match.group())]
        position = match.end()
    return tuple(part for part in (*parts, text[position:]) if part != "")


def _inside(text: str, question: str, earlier: Sequence[Call], again: frozenset[str]) -> Iterator[tuple[Part, ...]]:
    """Readings of the numbers inside of an argument that stands nowhere as a whole."""
    spans: list[list[Part]] = []
    position = 0
    for match in NUMBER.finditer(text):
        number = match.group()
        bound: list[Part] = [Place(start, number) for start in _places(number, question)]
        answers = [at for at, call in enumerate(earlier) if call.result.strip() == number]
        bound += [Answer(answers[-1])] if answers else []
        if bound and number in again:
            bound.append(number)  # one of its uses may be a constant
        if match.start() > position:
            spans.append([text[position : match.start()]])
        spans.append(bound or [number])
        position = match.end()
    if position < len(text) or not text:
        spans.append([text[position:]])
    for chosen in product(*spans):
        yield tuple(chosen)


def _used_again(calls: Sequence[Call]) -> frozenset[str]:
    """Numbers that stand more than once in the arguments."""
    numbers = [n for call in calls for value in call.arguments.values() for n in NUMBER.findall(str(value))]
    return frozenset(number for number in numbers if numbers.count(number) > 1)


def _places(text: str, question: str) -> Iterator[int]:
    """Where a text stands in the question, not inside of a longer word or number."""
    before = r"(?<![A-Za-z0-9_.])" if text[0].isascii() and text[0].isalnum() else ""
    after = r"(?![A-Za-z0-9_]|\.\d)" if text[-1].isascii() and text[-1].isalnum() else ""
    return (match.start() for match in re.finditer(before + re.escape(text) + after, question))


# ---- one reading


def _template(attempt: Attempt, row: Row, question: str, chosen: Sequence[tuple[Part, ...] | None]) -> Template:
    used: dict[Place, str] = {}
    remaining = iter(chosen)
    read: list[tuple[str, list[tuple[str, tuple[Part, ...] | None, Any]]]] = []
    for call in attempt.calls:
        arguments = []
        for name, value in call.arguments.items():
            parts = next(remaining)
            arguments.append((name, parts, value))
            for part in parts or ():
                if isinstance(part, Place):
                    used.setdefault(part, f"{call.tool}.{name}")
        read.append((call.tool, arguments))
    places = sorted(used, key=lambda place: place.start)
    number_of = {place: number for number, place in enumerate(places)}

    def piece(part: Part) -> Piece:
        return number_of[part] if isinstance(part, Place) else part

    calls = tuple(
        TemplateCall(
            tool,
            tuple(
                (name, None if parts is None else tuple(piece(part) for part in parts), value)
                for name, parts, value in arguments
            ),
        )
        for tool, arguments in read
    )
    return Template(
        question=tuple(_cut(question, places)),
        slots=tuple(
            Slot(NUMBER.fullmatch(place.text) is not None, len(place.text.split()), used[place]) for place in places
        ),
        calls=calls,
        fields=tuple(_fields(row, attempt.calls, places)),
        attempt=attempt,
        values=tuple(place.text for place in places),
    )


def _cut(question: str, places: Sequence[Place]) -> Iterator[str | int]:
    position = 0
    for number, place in enumerate(places):
        if place.start > position:
            yield question[position : place.start]
        yield number
        position = place.start + len(place.text)
    if position < len(question):
        yield question[position:]


def _fields(row: Row, calls: Sequence[Call], places: Sequence[Place]) -> Iterator[tuple[str, Piece]]:
    """Fields that follow an answer or a slot. The last call's own answer (`done`) is none that a row could hold."""
    for key, value in row.items():
        if key == "prompt" or isinstance(value, bool) or not isinstance(value, str | int | float):
            continue
        text = str(value).strip()
        answers = [number for number, call in enumerate(calls) if text and call.result.strip() == text]
        slots = [number for number, place in enumerate(places) if place.text == text]
        if answers:
            yield key, Answer(answers[-1])
        elif len(slots) == 1:
            yield key, slots[0]


def _unfounded(template: Template, row: Row) -> bool:
    """Whether the last call says something that came from nowhere and that the row holds, too."""
    held = {str(value).strip() for key, value in row.items() if key != "prompt"}
    return any(
        pieces is not None and all(isinstance(piece, str) for piece in pieces) and str(value).strip() in held
        for _, pieces, value in template.calls[-1].arguments
    )


def _apart(template: Template) -> bool:
    """Whether slots do not overlap: the question with the values is the one that it was read from."""
    lengths = [len(template.values[part]) if isinstance(part, int) else len(part) for part in template.question]
    return all(length > 0 for length in lengths) and template.match(template.asked(template.values)) is not None


def fill_row(template: Template, world: Row, values: Sequence[str], answers: Sequence[str]) -> Row:
    """The world's row with the new question and fields; fields keep their type. Raises ValueError where they cannot."""
    row: Row = copy.deepcopy(world)
    asked = template.asked(values)
    if isinstance(row["prompt"], str):
        row["prompt"] = asked
    else:
        last = max(at for at, message in enumerate(row["prompt"]) if message["role"] == "user")
        row["prompt"][last]["content"] = asked
    for key, piece in template.fields:
        if isinstance(piece, Answer) and piece.call >= len(answers):
            continue  # not found yet
        text = values[piece] if isinstance(piece, int) else answers[piece.call] if isinstance(piece, Answer) else piece
        original = world[key]
        row[key] = text.strip() if isinstance(original, str) else type(original)(text)
    return row
