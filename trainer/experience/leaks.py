"""Records that would tell an evaluation are refused: those that hold one of its tasks, or its answer.

A guard knows the prompts and answers of validation and test problems. A record is refused

1. where its text holds the prompt of such a problem (normalised: case, width, spaces, end marks), or nearly all of its
   words with all of its numbers and signs in their order;
2. where it holds the problem's answer together with the prompt's numbers and signs in their order, or nearly all of its
   words in any order; where it has no numbers, most of them.

Where several problems are asked in the same words (each in a world of its own: `envs.problem`), the words are no task:
only 2 is asked for, and a problem without an answer in its row guards nothing.

`What is x + y?` holds no problem; `What is 3 + 4?` does where that is one. The pool keeps its guards, so that what is
added later, by whomever, meets them too.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.envs.problem import World, same_world, world_of
from trainer.experience.problems import ExperienceError
from trainer.experience.records import ExperienceRecord
from trainer.experience.tokens import FUNCTION_WORDS, normalised, pieces

_END_MARKS = " .?!。？！:：;；,，\"'"
NEARLY_ALL = 0.9
"""Share of a prompt's words from which a record holds the task."""
MOST = 0.8
"""… from which it may hold its answer, where the prompt has no numbers."""
SPECIFIC = 3
"""A prompt of fewer words and numbers (`What is 5?`) is only held where it stands in the record as it is; one of a
single word, never."""


class LeakError(ExperienceError):
    """A record that holds an evaluation task or its answer."""


@dataclass(frozen=True)
class Guarded:
    """One problem of an evaluation."""

    prompt: str
    """Normalised."""
    answer: str = ""
    origin: str = ""
    """Which evaluation: `run_id:test`."""


def guarded_rows(rows: Iterable[Mapping[str, Any]], origin: str) -> list[Guarded]:
    """The guards of task rows: `prompt` as text or messages, `answer` where there is one."""
    worlds: dict[Guarded, set[World]] = {}
    for row in rows:
        text = _asked(prompt_text(row.get("prompt", "")))
        if text:
            worlds.setdefault(Guarded(text, _answer(row), origin), set()).add(world_of(dict(row)))
    # words without an answer that several worlds share: an environment that shows its task when it is reset
    return [one for one, found in worlds.items() if one.answer or len(found) == 1]


def _asked(text: str) -> str:
    return normalised(text).strip(_END_MARKS)


def _answer(row: Mapping[str, Any]) -> str:
    """The answer as a text that a record may hold; empty where there is none."""
    answer = row.get("answer", "")
    if isinstance(answer, float) and answer.is_integer():
        answer = int(answer)
    return normalised(str(answer)) if isinstance(answer, str | int | float) else ""


def prompt_text(prompt: Any) -> str:
    """The question in a row's prompt: the text, or the last user message."""
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, Sequence):
        for message in reversed(prompt):
            if isinstance(message, Mapping) and message.get("role") == "user":
                return str(message.get("content", ""))
    return ""


class LeakGuard:
    """Problems that no record may hold."""

    def __init__(self, guarded: Iterable[Guarded] = (), *, one_world: bool = False) -> None:
        """`one_world`: all of them are asked in one world, where words alone are a task, whatever answers are given."""
        known = list(dict.fromkeys(guarded))
        answers = Counter(prompt for prompt, _ in {(one.prompt, one.answer) for one in known})
        self._prepared = [_Prepared.of(one, alone=one_world or answers[one.prompt] == 1) for one in known]

    def __len__(self) -> int:
        return len(self._prepared)

    def leak(self, record: ExperienceRecord) -> str | None:
        """What the record tells of which evaluation, or None."""
        text = normalised(f"{record.when_to_use} \n {record.content}")
        held = frozenset(piece for _, piece in pieces(text))
        padded, marks = f" {text} ", _marks(text)
        for one in self._prepared:
            ordered = one.marks in marks  # the prompt's numbers and signs stand together in the record
            share = len(one.words & held) / len(one.words) if one.specific else 0.0
            whole = ordered and one.phrase and _holds(padded, one.prompt)
            if one.alone and (whole or (ordered and share >= NEARLY_ALL)):
                return f"it holds a task of {one.origin or 'an evaluation'}: {one.prompt[:80]!r}"
            # without marks of its own a prompt is told from others by its words only
            told = whole or share >= NEARLY_ALL or (ordered and one.specific and (bool(one.marks) or share >= MOST))
            if one.answer and told and _times(text, one.answer) > one.answer_in_prompt:
                return f"it holds the answer to a task of {one.origin or 'an evaluation'}: {one.prompt[:80]!r}"
        return None

    def check(self, record: ExperienceRecord) -> None:
        """Raises LeakError."""
        reason = self.leak(record)
        if reason is not None:
            raise LeakError(
                f"the record is refused: {reason}. Write what holds for other tasks as well, with x, y, … in the place "
                "of this task's values"
            )


@dataclass(frozen=True)
class _Prepared:
    prompt: str
    answer: str
    origin: str
    words: frozenset[str]
    """All pieces of the prompt but function words."""
    phrase: bool
    specific: bool
    answer_in_prompt: int
    """How often the prompt itself holds its answer (`5 @ 2` with the answer 5)."""
    marks: str
    """Numbers and signs of the prompt, in order: what must stand together in a record that holds the task."""
    alone: bool
    """Whether the prompt alone is the task: no other problem with another answer is asked in the same words."""

    @classmethod
    def of(cls, one: Guarded, *, alone: bool) -> "_Prepared":
        found = list(pieces(one.prompt))
        telling = [piece for _, piece in found if piece not in FUNCTION_WORDS]
        # a run of Chinese characters is one piece and several words
        size = sum(len(piece) // 2 if kind == "cjk" else piece not in FUNCTION_WORDS for kind, piece in found)
        return cls(
            one.prompt,
            one.answer,
            one.origin,
            frozenset(telling),
            len(found) > 1 or size >= SPECIFIC,
            size >= SPECIFIC,
            _times(one.prompt, one.answer) if one.answer else 0,
            _marks(one.prompt),
            alone,
        )


def _marks(text: str) -> str:
    """Numbers and signs in order, each between spaces; empty where there are none."""
    found = [piece for kind, piece in pieces(text) if kind in ("number", "sign")]
    return f" {' '.join(found)} " if found else ""


def _places(padded: str, part: str) -> Iterator[int]:
    """Where the part stands in the text, not inside of longer words."""
    start = padded.find(part)
    while start >= 0:
        if not (_joined(padded[start - 1], part[0]) or _joined(padded[start + len(part)], part[-1])):
            yield start
        start = padded.find(part, start + 1)


def _holds(padded: str, prompt: str) -> bool:
    return next(_places(padded, prompt), None) is not None


def _joined(a: str, b: str) -> bool:
    return a.isascii() and b.isascii() and a.isalnum() and b.isalnum()


def _times(text: str, answer: str) -> int:
    """How often the text tells the answer: as a word or number of its own, or as several of them together."""
    found = sum(piece == answer for _, piece in pieces(text))
    if found or len(answer) == 1 or answer.isalnum():
        return found
    return sum(1 for _ in _places(f" {text} ", answer))


def check_disjoint(training: Iterable[Mapping[str, Any]], held: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Asserts that no training problem is one of an evaluation. `held`: name of an evaluation → its rows.

    A problem is its conversation and what decides its answer: the world, and where a row has no field of one, the
    answer itself. Raises LeakError that names a problem.
    """
    known: dict[str, list[tuple[Mapping[str, Any], str]]] = {}
    for origin, rows in held.items():
        for row in rows:
            known.setdefault(_conversation(row), []).append((row, origin))
    for row in training:
        for other, origin in known.get(_conversation(row), ()):
            if _same_problem(row, other):
                raise LeakError(
                    f"the training problem {prompt_text(row['prompt'])[:80]!r} is also one of {origin}: a pool made of "
                    "it would tell that evaluation. Use splits that share no problem"
                )


def _conversation(row: Mapping[str, Any]) -> str:
    """All that is said before the model speaks, normalised: a lone question is the same as text and as a message."""
    prompt = row.get("prompt", "")
    if isinstance(prompt, str):
        return _asked(prompt)
    said = [(str(one.get("role", "")), _asked(str(one.get("content", "")))) for one in prompt if one]
    return said[0][1] if [role for role, _ in said] == ["user"] else json.dumps(said, ensure_ascii=False)


def _same_problem(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Of two rows that ask in the same words."""
    one, other = world_of(dict(a)), world_of(dict(b))
    if not same_world(one, other):
        return False
    shared = dict(one).keys() & dict(other).keys()
    return bool(shared) or "answer" not in a or "answer" not in b or _decided(a) == _decided(b)


def _decided(row: Mapping[str, Any]) -> str:
    return _answer(row) or json.dumps(row["answer"], sort_keys=True, ensure_ascii=False, default=str)
