"""Records that would tell an evaluation are refused: those that hold one of its tasks, or its answer.

A guard knows the prompts and answers of validation and test problems. A record is refused

1. where its text holds the prompt of such a problem (normalised: case, width, spaces, end marks), or nearly all of its
   words with all of its numbers and signs in their order;
2. where it holds the problem's answer together with the prompt's numbers and signs in their order, or nearly all of its
   words in any order; where it has no numbers, most of them.

`What is x + y?` holds no problem; `What is 3 + 4?` does where that is one. The pool keeps its guards, so that what is
added later, by whomever, meets them too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    found = []
    for row in rows:
        text = normalised(prompt_text(row.get("prompt", ""))).strip(_END_MARKS)
        if text:
            answer = row.get("answer", "")
            found.append(
                Guarded(text, normalised(str(answer)) if isinstance(answer, str | int | float) else "", origin)
            )
    return found


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

    def __init__(self, guarded: Iterable[Guarded] = ()) -> None:
        self._prepared = [_Prepared.of(one) for one in dict.fromkeys(guarded)]

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
            if ordered and ((one.phrase and _holds(padded, one.prompt)) or share >= NEARLY_ALL):
                return f"it holds a task of {one.origin or 'an evaluation'}: {one.prompt[:80]!r}"
            # without marks of its own a prompt is told from others by its words only
            told = share >= NEARLY_ALL or (ordered and one.specific and (bool(one.marks) or share >= MOST))
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

    @classmethod
    def of(cls, one: Guarded) -> "_Prepared":
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


def check_disjoint(training: Iterable[Mapping[str, Any]], guarded: Iterable[Guarded]) -> None:
    """Asserts that no training problem is one of an evaluation. Raises LeakError that names one."""
    known = {one.prompt: one.origin for one in guarded}
    for row in training:
        prompt = normalised(prompt_text(row.get("prompt", ""))).strip(_END_MARKS)
        if prompt in known:
            raise LeakError(
                f"the training problem {prompt[:80]!r} is also one of {known[prompt] or 'an evaluation'}: a pool made "
                "of it would tell that evaluation. Use splits that share no problem"
            )
