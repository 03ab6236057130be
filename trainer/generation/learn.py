"""Which templates hold: read from attempts, tried on every original that they fit, probed against the class's solution.

An attempt may be read in several ways, and one that won by luck reads like one that knew. What decides is whether the
template solves other originals under *their* answers, and, where the class has a `solution`, whether that reaches the
same answer from new questions alone. Between readings that stand equally well the one with the most slots is taken;
where that is several, none.
"""

import copy
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from trainer.datafiles import Row
from trainer.generation.journal import Journal
from trainer.generation.play import EnvironmentTrouble, Player
from trainer.generation.profile import question_of
from trainer.generation.templates import Template, fill_row, readings
from trainer.generation.types import FULL_REWARD, Attempt, Reason
from trainer.generation.vary import CallRefused, Values, perform

PROBES = 12
"""New questions with which a template is probed where the class has a `solution`."""
CONFIRMED = 3
"""… of which so many must be confirmed, and none contradicted, for a template that too few originals support. A wrong
template that hits one of six values by chance passes with (1/6)^3."""


@dataclass(frozen=True)
class Learned:
    """A template that holds."""

    template: Template
    solved: tuple[int, ...]
    """Originals that it solves; their worlds are where it may ask."""
    fillings: tuple[tuple[str, ...], ...]
    """The values with which they ask it."""


def confirms(player: Player, row: Row, template: Template) -> bool | None:
    """Whether the class's own `solution` reaches the row's answers from its question; None: it cannot tell.

    It can where the answer stands in what its calls were told, so that it does not just submit the row's own.
    """
    if player.spec.solution is None:
        return None
    try:
        calls = player.spec.solution(copy.deepcopy(row))
        played = player.play(row, calls)
    except (Exception, SystemExit):  # it cannot read the new question
        return False
    if played.reward < FULL_REWARD or len(played.calls) < len(calls):
        return False
    answers = {str(row[key]).strip() for key in template.answer_fields}
    told = {call.result.strip() for call in played.calls[:-1]}
    if not answers:
        return True
    return True if answers <= told else (None if len(played.calls) < 2 else False)


def learn(
    player: Player,
    originals: Sequence[Row],
    attempts: Sequence[Attempt],
    journal: Journal,
    *,
    needed_support: int,
    seed: int,
    tell: Callable[[int, int], None],
) -> tuple[list[Learned], Counter[Reason]]:
    """Templates that hold, by their keys, and why others do not. Raises OSError."""
    dropped: Counter[Reason] = Counter()
    found: dict[str, Learned] = {}
    rivals: list[tuple[str, ...]] = []
    """Keys of the readings of one attempt that the originals do not decide between."""
    for number, attempt in enumerate(attempts):
        tell(number, len(attempts))
        read = readings(attempt, originals[attempt.original])
        if isinstance(read, Reason):
            dropped[read] += 1
            continue
        tried = [(template, _solved(player, template, originals, journal, seed)) for template in read]
        standing = [(template, solved) for template, solved in tried if solved is not None]
        if not standing:
            dropped[Reason.REFUTED] += 1
            continue
        most = max(len(solved) for _, solved in standing)
        best = [(template, solved) for template, solved in standing if len(solved) == most]
        for template, solved in best:
            fillings = tuple(_filling(template, originals[one]) for one in solved)
            found.setdefault(template.key, Learned(template, tuple(solved), fillings))
        rivals.append(tuple(sorted(template.key for template, _ in best)))
    candidates = [found[key] for key in sorted(found)]
    if not candidates:
        return [], dropped
    values = Values([one.template for one in candidates], [one.fillings for one in candidates], attempts)
    judged = {
        one.template.key: _judged(player, one, originals, values, journal, needed_support, seed) for one in candidates
    }
    learned: set[str] = set()
    for keys in dict.fromkeys(rivals):
        holding = [key for key in keys if judged[key] is None]
        slots = [len(found[key].template.slots) for key in holding]
        widest = [key for key, size in zip(holding, slots, strict=True) if size == max(slots)]
        if len(widest) == 1:
            learned.add(widest[0])
        else:
            reason = judged[keys[0]] if len(keys) == 1 else None
            dropped[reason or Reason.AMBIGUOUS] += 1
    return [found[key] for key in sorted(learned)], dropped


def _filling(template: Template, row: Row) -> tuple[str, ...]:
    values = template.match(question_of(row))
    assert values is not None
    return values


def _name(template: Template) -> str:
    return hashlib.sha256(template.key.encode("utf-8")).hexdigest()[:24]


def _solved(
    player: Player, template: Template, originals: Sequence[Row], journal: Journal, seed: int
) -> list[int] | None:
    """Originals that the template solves; None: it fits one that it does not solve."""

    def make() -> list[int] | None:
        solved = []
        for number, row in enumerate(originals):
            values = template.match(question_of(row))
            if values is None:
                continue
            try:
                calls, reward = player.guarded(partial(perform, player, template, values, row, seed))
            except CallRefused:
                return None
            except EnvironmentTrouble:
                continue  # no evidence
            if reward < FULL_REWARD or not calls:
                return None
            solved.append(number)
        return solved

    found: list[int] | None = journal.once("template", _name(template), make)
    return found or None


def _judged(
    player: Player,
    one: Learned,
    originals: Sequence[Row],
    values: Values,
    journal: Journal,
    needed_support: int,
    seed: int,
) -> Reason | None:
    """Why a template that was not refuted by an original is not used, or None."""

    def make() -> list[bool | None]:
        told: list[bool | None] = []
        for number in range(PROBES if player.spec.solution is not None else 0):
            rng = random.Random(f"probe|{seed}|{_name(one.template)}|{number}")
            filled, world = values.draw(one.template, rng, wide=True), originals[rng.choice(one.solved)]
            if filled in one.fillings:
                continue  # it is known to win there
            try:
                calls, _ = perform(player, one.template, filled, fill_row(one.template, world, filled, ()), seed)
                row = fill_row(one.template, world, filled, [call.result.strip() for call in calls])
            except (CallRefused, EnvironmentTrouble, ValueError):
                continue
            told.append(confirms(player, row, one.template))
        return told

    def guarded() -> list[bool | None]:
        try:
            return player.guarded(make)
        except EnvironmentTrouble:  # a call that hangs
            return []

    told: list[bool | None] = journal.once("probe", _name(one.template), guarded)
    if False in told:
        return Reason.REFUTED
    if len(one.solved) >= needed_support or told.count(True) >= CONFIRMED:
        return None
    return Reason.UNSUPPORTED
