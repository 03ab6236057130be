"""Lessons from groups of attempts, by rule: without a language model and without knowing the environment.

- **Success**: what winning attempts have in common, as a recipe with slots (`slots`).
- **Contrast**: the recipe of a group's winners with what its losers did instead.
- **Failure**: calls that a tool refused, and ways that lost without anybody of the task winning by them.

A recipe that only one attempt shows is taken where it can be read in one way; else it takes the agreement of two tasks.
Recipes with the task's answer in them are left out. What was left out is counted by reason.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from trainer.experience.records import SLOTTED, Evidence, ExperienceRecord, Polarity, SourcePolicy
from trainer.experience.slots import Reading, needed, readings
from trainer.experience.trajectories import Call, Trajectory, groups_of
from trainer.experience.validation import MAX_CONTENT, MAX_WHEN

RULES = "rules"
"""Author of these records."""


class Dropped(StrEnum):
    """Why an attempt gave no lesson."""

    NO_EVIDENCE = "no_evidence"
    """The environment failed."""
    GUIDED = "guided"
    """It had experience in its prompt and won: the pool would learn from itself."""
    NO_CALLS = "no_calls"
    TOO_COMPLEX = "too_complex"
    """More calls or readings than are told apart."""
    AMBIGUOUS = "ambiguous"
    NOTHING_SHARED = "nothing_shared"
    """No literal is shared by question and calls: it would hold for this task only."""
    ANSWER_INSIDE = "answer_inside"
    TOO_LONG = "too_long"


@dataclass(frozen=True)
class DistilOptions:
    """What counts as success and how much is made."""

    success: float = 0.5
    """Reward from which an attempt has won."""
    refusals: int = 2
    """Attempts in which a tool must refuse a call before it is a lesson."""
    losses: int = 3
    """Attempts that must lose in one way, none of the task's winning by it, before it is a lesson."""
    kinds: tuple[Polarity, ...] = tuple(Polarity)
    from_guided: bool = False
    """Also take what guided attempts won by."""


DEFAULT_OPTIONS = DistilOptions()
NO_SOURCE = SourcePolicy()


@dataclass
class Distilled:
    """The lessons and what gave none."""

    records: list[ExperienceRecord] = field(default_factory=list)
    dropped: Counter[Dropped] = field(default_factory=Counter)
    attempts: int = 0


@dataclass
class _Way:
    """A recipe with those who went it."""

    reading: Reading
    won: list[Trajectory] = field(default_factory=list)
    lost: list[Trajectory] = field(default_factory=list)


def distil(
    trajectories: Iterable[Trajectory],
    *,
    family: str = "",
    run_id: str = "",
    source: SourcePolicy = NO_SOURCE,
    options: DistilOptions = DEFAULT_OPTIONS,
) -> Distilled:
    """Lessons of attempts, those with the most evidence first. They are in quarantine until they are tried."""
    attempts = list(trajectories)
    result = Distilled(attempts=len(attempts))
    usable = []
    for one in attempts:
        if not one.valid:
            result.dropped[Dropped.NO_EVIDENCE] += 1
        elif not one.calls:
            result.dropped[Dropped.NO_CALLS] += 1
        elif one.guided and one.won(options.success) and not options.from_guided:
            result.dropped[Dropped.GUIDED] += 1
        else:
            usable.append(one)
    ways = _ways(usable, options, result.dropped)
    made = _Maker(family, run_id, source)
    if Polarity.SUCCESS in options.kinds:
        for way in ways.values():
            if way.won:
                made.add(Polarity.SUCCESS, way.reading.situation, f"use {way.reading.advice}", way.won)
    if Polarity.CONTRAST in options.kinds:
        _contrasts(usable, ways, options, made)
    if Polarity.FAILURE in options.kinds:
        _refusals(usable, options, made)
        _losing_ways(ways, options, made)
    for record in made.records():
        if len(record.when_to_use) > MAX_WHEN or len(record.content) > MAX_CONTENT:
            result.dropped[Dropped.TOO_LONG] += 1
        else:
            result.records.append(record)
    return result


def _ways(
    attempts: Sequence[Trajectory], options: DistilOptions, dropped: Counter[Dropped]
) -> dict[tuple[str, str], _Way]:
    """The recipe that each attempt is read as, by (situation, advice)."""
    read = [(one, _readings_of(one)) for one in attempts]
    # agreement is counted over winners of different tasks: losers may be wrong in the same way for different reasons
    agreed: dict[tuple[str, str], set[str]] = {}
    for one, found in read:
        if one.won(options.success):
            for reading in found:
                agreed.setdefault((reading.situation, reading.advice), set()).add(one.question)
    ways: dict[tuple[str, str], _Way] = {}
    for one, found in read:
        chosen = _chosen(one, found, agreed, dropped)
        if chosen is None:
            continue
        way = ways.setdefault((chosen.situation, chosen.advice), _Way(chosen))
        (way.won if one.won(options.success) else way.lost).append(one)
    return ways


def _readings_of(one: Trajectory) -> list[Reading]:
    return readings(one.question, needed(one.calls))


def _chosen(
    one: Trajectory, found: list[Reading], agreed: dict[tuple[str, str], set[str]], dropped: Counter[Dropped]
) -> Reading | None:
    if not found:
        dropped[Dropped.TOO_COMPLEX if needed(one.calls) else Dropped.NO_CALLS] += 1
        return None
    support = {id(r): len(agreed.get((r.situation, r.advice), ())) for r in found}
    most = max(support.values())
    best = [r for r in found if support[id(r)] == most]
    bound = max(r.bound for r in best)
    best = [r for r in best if r.bound == bound]
    if len({(r.situation, r.advice) for r in best}) > 1 or (best[0].repeated and most < 2):
        dropped[Dropped.AMBIGUOUS] += 1
        return None
    reading = best[0]
    if one.answer and any(_has_token(text, one.answer) for text in reading.constants):
        dropped[Dropped.ANSWER_INSIDE] += 1
        return None
    if reading.slots == 0:
        dropped[Dropped.NOTHING_SHARED] += 1
        return None
    return reading


def _has_token(text: str, token: str) -> bool:
    """Whether a constant is the answer, or holds it as a word of more than one character."""
    return text.strip() == token or (len(token) > 1 and token in text.split())


def _contrasts(
    attempts: Sequence[Trajectory], ways: dict[tuple[str, str], _Way], options: DistilOptions, made: "_Maker"
) -> None:
    """For each group with both: the winners' way, and the losers' most frequent other one."""
    way_of = {id(one): way for way in ways.values() for one in (*way.won, *way.lost)}
    for group in groups_of(attempts):
        winners = [one for one in group if one.won(options.success) and id(one) in way_of]
        losers = [one for one in group if not one.won(options.success) and id(one) in way_of]
        if not winners:
            continue
        right = Counter(id(way_of[id(one)]) for one in winners).most_common(1)[0][0]
        way = next(way_of[id(one)] for one in winners if id(way_of[id(one)]) == right)
        wrong = Counter(
            way_of[id(one)].reading.advice
            for one in losers
            if way_of[id(one)].reading.situation == way.reading.situation and not way_of[id(one)].won
        )
        wrong = Counter(
            {other: n for other, n in wrong.items() if not way.reading.advice.startswith(f"{other}, then ")}
        )
        if wrong:
            other = wrong.most_common(1)[0][0]
            those = [one for one in losers if way_of[id(one)].reading.advice == other]
            text = f"use {way.reading.advice}, not {_without_end(other, way.reading.advice)}"
            made.add(Polarity.CONTRAST, way.reading.situation, text, [*winners, *those])
            continue
        last = winners[0].calls[-1].tool
        open_ended = [one for one in group if not one.won(options.success) and all(c.tool != last for c in one.calls)]
        if len(open_ended) >= options.refusals:
            text = f"use {way.reading.advice}; do not end without {last}"
            made.add(Polarity.CONTRAST, way.reading.situation, text, [*winners, *open_ended])


def _without_end(advice: str, other: str) -> str:
    """The advice without the steps at its end that both share."""
    mine, theirs = advice.split(", then "), other.split(", then ")
    while len(mine) > 1 and len(theirs) > 1 and mine[-1] == theirs[-1]:
        mine.pop()
        theirs.pop()
    return ", then ".join(mine)


def _refusals(attempts: Sequence[Trajectory], options: DistilOptions, made: "_Maker") -> None:
    """Calls that tools refused, by slotted call and answer; unless an equal call succeeded somewhere."""
    refused: dict[tuple[str, str, str], list[Trajectory]] = {}
    fine: set[str] = set()
    for one in attempts:
        for call in one.calls:
            reading = _single(one.question, call)
            if reading is None:
                continue
            if call.failed:
                key = (reading.situation, reading.advice, " ".join(call.result.split())[:120])
                refused.setdefault(key, []).append(one)
            else:
                fine.add(reading.advice)
    for (situation, advice, answer), those in refused.items():
        if advice not in fine and len({one.place for one in those}) >= options.refusals and answer:
            made.add(Polarity.FAILURE, situation, f"do not use {advice}: it answers {answer!r}", those)


def _single(question: str, call: Call) -> Reading | None:
    found = readings(question, [call])
    best = [r for r in found if r.bound == max(r.bound for r in found)]
    return best[0] if len(best) == 1 and best[0].slots and not best[0].repeated else None


def _losing_ways(ways: dict[tuple[str, str], _Way], options: DistilOptions, made: "_Maker") -> None:
    for way in ways.values():
        if not way.won and len(way.lost) >= options.losses:
            made.add(Polarity.FAILURE, way.reading.situation, f"do not use {way.reading.advice}: it lost", way.lost)


@dataclass
class _Maker:
    """Collects lessons; equal ones join their evidence."""

    family: str
    run_id: str
    source: SourcePolicy
    found: dict[tuple[Polarity, str, str], list[Trajectory]] = field(default_factory=dict)

    def add(self, polarity: Polarity, situation: str, advice: str, those: Sequence[Trajectory]) -> None:
        self.found.setdefault((polarity, situation, advice), []).extend(those)

    def records(self) -> list[ExperienceRecord]:
        ordered = sorted(self.found.items(), key=lambda item: -len(item[1]))
        return [self._record(*key, those) for key, those in ordered]

    def _record(self, polarity: Polarity, situation: str, advice: str, those: list[Trajectory]) -> ExperienceRecord:
        places = dict.fromkeys(one.place for one in those)
        return ExperienceRecord(
            situation,
            advice,
            polarity=polarity,
            family=self.family,
            author=RULES,
            tags=(SLOTTED,),
            # more attempts that agree, more weight: 1/2, 2/3, 3/4, …
            quality=len(places) / (len(places) + 1),
            evidence=tuple(Evidence(self.run_id, place) for place in list(places)[:8]),
            source=self.source,
        )
