"""What a new task may not be: an original or another task again, nearly again, or a problem of validation or test.

*World*: see `envs.problem`.

- **duplicate**: the same words in the same world, or the same calls in the same world;
- **near duplicate**: embeddings as close as those of duplicate records (`experience.dedupe.SAME`), the same numbers and
  signs in the same order, and the same answers, in the same world;
- **leak**: what `experience.leaks` calls one, in the same world as the validation or test problem.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from trainer.datafiles import Row
from trainer.envs.problem import World, same_world, world_of
from trainer.experience.dedupe import SAME
from trainer.experience.embed import Embedder, HashedEmbedder, Vectors
from trainer.experience.leaks import Guarded, LeakGuard, guarded_rows
from trainer.experience.records import ExperienceRecord
from trainer.experience.tokens import normalised, pieces
from trainer.experience.trajectories import Call
from trainer.generation.profile import question_of
from trainer.generation.types import Reason


class Guards:
    """Validation and test problems, by world."""

    def __init__(self, held: Mapping[str, Sequence[Row]], answers: Iterable[str]) -> None:
        """`held`: origin → rows."""
        self._answers = tuple(answers)
        self._of: dict[World, list[Guarded]] = {}
        for origin, rows in held.items():
            for row in rows:
                self._of.setdefault(world_of(row, self._answers), []).extend(guarded_rows([row], origin))
        self._known: dict[World, LeakGuard] = {}

    def __len__(self) -> int:
        return sum(len(guarded) for guarded in self._of.values())

    def leak(self, row: Row) -> str | None:
        """Which problem of validation or test the row tells, or None."""
        world = world_of(row, self._answers)
        if world not in self._known:
            near = [one for other, guarded in self._of.items() if same_world(world, other) for one in guarded]
            self._known[world] = LeakGuard(near, one_world=True)
        guard = self._known[world]
        return guard.leak(ExperienceRecord(question_of(row), "", id="")) if len(guard) else None


class Screen:
    """Originals and accepted tasks, and whether a new one repeats any of them."""

    def __init__(self, originals: Sequence[Row], answers: Iterable[str], embedder: Embedder | None = None) -> None:
        self._answers = tuple(answers)
        self._embedder = embedder or HashedEmbedder()
        self._words: dict[str, list[World]] = {}
        self._calls: dict[str, list[World]] = {}
        self._near: dict[str, list[tuple[World, str, Vectors]]] = {}
        for row in originals:
            self.add(row, ())

    def add(self, row: Row, calls: Sequence[Call]) -> None:
        """From now on the row is known."""
        world, question = world_of(row, self._answers), question_of(row)
        self._words.setdefault(normalised(question), []).append(world)
        if calls:
            self._calls.setdefault(_asked(calls), []).append(world)
        entry = (world, self._answer(row), self._embedder.embed([question])[0])
        self._near.setdefault(_marks(question), []).append(entry)

    def add_calls(self, row: Row, calls: Sequence[Call]) -> None:
        """A known row is solved by these calls."""
        self._calls.setdefault(_asked(calls), []).append(world_of(row, self._answers))

    def repeats_words(self, row: Row) -> bool:
        """Whether a known row of this world asks in these words."""
        return self._among(self._words.get(normalised(question_of(row)), ()), row)

    def repeats(self, row: Row, calls: Sequence[Call]) -> Reason | None:
        """Whether the row, with the calls that solve it, is a duplicate or near one."""
        if self.repeats_words(row) or self._among(self._calls.get(_asked(calls), ()), row):
            return Reason.DUPLICATE
        question, world = question_of(row), world_of(row, self._answers)
        rivals = [
            vector
            for other, answer, vector in self._near.get(_marks(question), ())
            if answer == self._answer(row) and same_world(world, other)
        ]
        if rivals and float((np.stack(rivals) @ self._embedder.embed([question])[0]).max()) >= SAME:
            return Reason.NEAR_DUPLICATE
        return None

    def _among(self, worlds: Iterable[World], row: Row) -> bool:
        own = world_of(row, self._answers)
        return any(same_world(own, other) for other in worlds)

    def _answer(self, row: Row) -> str:
        return json.dumps([row.get(key) for key in self._answers], ensure_ascii=False, default=str)


def _marks(text: str) -> str:
    """Numbers and signs of a text, in order."""
    return " ".join(piece for kind, piece in pieces(normalised(text)) if kind in ("number", "sign"))


def _asked(calls: Sequence[Call]) -> str:
    """The calls without their answers, which follow from them."""
    shown: list[Any] = [[call.tool, sorted(call.arguments.items())] for call in calls]
    return json.dumps(shown, ensure_ascii=False, default=str)
