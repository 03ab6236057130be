"""Claims: what an agent says a session shows, checked against the session itself.

1. A claim is checked in its machine form only: metric, comparator, value, cited lines, and where they matter run, split
   and steps. Free text alone is never verified, whatever it says.
2. The cited lines have to hold the series, under that name, of that run, on that split. A number that the agent wrote
   itself proves nothing, and neither does one that may stand for a missing key.
3. A statement about a whole run needs every step that the run is known to have; a trend needs enough steps and a
   difference that is larger than its noise. That something was not found is never verified: it may not have been shown.
4. Where the text says more than the machine form (a cause, a judgement, a forecast, another number), the verdict is
   `machine form only`, and the text is kept as untested.

The verdict speaks of what the session shows, not of what is good or why.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from optimizer.analyze.comparing import Comparator, Outcome, compare
from optimizer.analyze.readings import Axis, number_in
from optimizer.analyze.series import Point, Series, SeriesBook
from optimizer.analyze.splits import TRAIN, split_asked
from optimizer.analyze.wording import says_more
from optimizer.events import Event
from optimizer.ids import content_id
from optimizer.types import EventEvidence, Evidence, Finding, Metric

MAX_CLAIMS = 20
"""Claims of one call: the answer has to fit into what clients take."""

MAX_LINES = 200
_NAMES_SHOWN = 8
_SIGNS = {"=": "eq", "==": "eq", "<": "lt", ">": "gt"}
_CALL_COUNTS = {"tool_calls", "failed_calls"}
"""Counts that the events themselves carry."""


class ClaimError(ValueError):
    """A claim that cannot be read: says what is wrong and what a claim looks like."""


class Verified(StrEnum):
    """How far a claim holds."""

    YES = "yes"
    PART = "machine form only"
    """The machine form holds; the text says more, and that was not tested."""
    NO = "no"


class Claim(BaseModel):
    """What somebody states."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str = Field("", max_length=4000)
    metric: str | None = None
    """The name as the cited lines print it."""
    split: str | None = None
    run: str | None = None
    steps: tuple[float, float] | None = None
    """First and last step (or epoch); None: the whole series."""
    comparator: Comparator | None = None
    value: str | None = None
    """The number as printed: its digits are the tolerance."""
    lines: tuple[int, ...] = Field((), max_length=MAX_LINES)
    session: str | None = None
    """None: the session that is analysed."""

    @model_validator(mode="before")
    @classmethod
    def _pairs(cls, given: Any) -> Any:
        """Lines given as (session, line), the form in which findings cite them, name the session, too."""
        if not isinstance(given, dict) or not isinstance(given.get("lines"), list | tuple):
            return given
        lines = given["lines"]
        if not lines or not all(isinstance(one, list | tuple) and len(one) == 2 for one in lines):
            return given
        sessions = {one[0] for one in lines}
        if len(sessions) != 1 or given.get("session") not in (None, *sessions):
            raise ValueError("lines of one session: make a claim for each")
        return {**given, "session": next(iter(sessions)), "lines": [one[1] for one in lines]}

    @field_validator("comparator", mode="before")
    @classmethod
    def _signs(cls, given: Any) -> Any:
        return _SIGNS.get(given, given) if isinstance(given, str) else given

    @field_validator("steps", mode="before")
    @classmethod
    def _steps(cls, given: Any) -> Any:
        if isinstance(given, int | float) and not isinstance(given, bool):
            return (given, given)
        if isinstance(given, list | tuple) and len(given) == 1:
            return (given[0], given[0])
        if isinstance(given, list | tuple) and len(given) > 2 and list(given) == sorted(given):
            return (given[0], given[-1])
        return given

    @field_validator("steps")
    @classmethod
    def _ordered(cls, given: tuple[float, float] | None) -> tuple[float, float] | None:
        if given is not None and given[0] > given[1]:
            raise ValueError("the first step lies behind the last")
        return given

    @field_validator("value", mode="before")
    @classmethod
    def _number(cls, given: Any) -> Any:
        if isinstance(given, int | float) and not isinstance(given, bool):
            return repr(given)
        if isinstance(given, str) and given.strip():
            if number_in(given) is None or number_in(given) != given.strip():
                raise ValueError("value is a plain number such as 0.52, without a unit")
            return given.strip()
        return given

    @property
    def id(self) -> str:
        """The same claim has the same id."""
        return f"claim-{content_id(self.model_dump_json(), length=12)}"


class Checked(BaseModel):
    """A claim with its verdict."""

    model_config = ConfigDict(extra="allow")

    id: str
    claim: Claim
    verified: Verified
    statement: str
    """The machine form in words; empty where there is none."""
    reason: str
    """What was compared, or why it is not verified."""
    untested: str | None = None
    """The text, where it says more than the machine form."""
    evidence: list[Evidence] = Field(default_factory=list)
    metric: Metric | None = None


def claims_from(given: Sequence[Mapping[str, Any]]) -> list[Claim]:
    """Claims as an agent sends them. Raises ClaimError."""
    if len(given) > MAX_CLAIMS:
        raise ClaimError(f"{len(given)} claims at once are too many: send at most {MAX_CLAIMS}")
    found = []
    for number, one in enumerate(given, start=1):
        try:
            found.append(Claim.model_validate(dict(one)))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "claim"
            raise ClaimError(
                f"claim {number}: {where}: {first['msg']}. A claim holds text, metric, split, run, "
                f"steps [first, last], comparator ({', '.join(Comparator)}), value, lines [numbers], session"
            ) from error
    return found


def check_claim(claim: Claim, books: Mapping[str, SeriesBook], events: Mapping[str, Sequence[Event]]) -> Checked:
    """The verdict on a claim. `books` and `events` are those of the sessions that are analysed."""
    given = {
        "metric": claim.metric, "comparator": claim.comparator, "value": claim.value, "lines": claim.lines or None
    }  # fmt: skip
    missing = [name for name, value in given.items() if value is None]
    if missing:
        return _no(claim, "", f"not in machine form ({', '.join(missing)} missing): free text alone is not tested")
    session = _session_of(claim, books)
    if session is None:
        known = ", ".join(sorted(books)) or "none"
        asked = f"session {claim.session!r} is not one of" if claim.session else "name the session: there are"
        return _no(claim, statement_of(claim), f"{asked} the sessions analysed ({known})")
    if claim.metric in _CALL_COUNTS:
        return _check_calls(claim, session, events[session])
    return _check_series(claim, session, books[session], {event.line for event in events[session]})


def statement_of(claim: Claim) -> str:
    """The machine form in words."""
    if claim.metric is None or claim.comparator is None or claim.value is None:
        return ""
    where = f" of {claim.run}" if claim.run else ""
    split = f" on {claim.split}" if claim.split else ""
    steps = ""
    if claim.steps is not None:
        first, last = (f"{one:g}" for one in claim.steps)
        steps = f" at step {first}" if first == last else f" over steps {first} to {last}"
    return f"{claim.metric}{where}{split}{steps} {claim.comparator.words} {claim.value}"


def finding_of(checked: Checked, layer: str) -> Finding | None:
    """The finding that a claim which holds stands for: its machine form, never its text."""
    if checked.verified is Verified.NO or checked.metric is None:
        return None
    return Finding(
        id=f"finding-{content_id(checked.id, length=12)}",
        kind="agent_claim",
        what=f"{checked.statement}: {checked.reason}",
        evidence=checked.evidence,
        metrics=[checked.metric],
        confidence=1.0,
        layer=layer,
    )


def _session_of(claim: Claim, books: Mapping[str, SeriesBook]) -> str | None:
    if claim.session is None:
        return next(iter(books)) if len(books) == 1 else None
    matching = [name for name in books if name == claim.session] or [
        name for name in books if name.startswith(claim.session)
    ]
    return matching[0] if len(matching) == 1 else None


def _check_series(claim: Claim, session: str, book: SeriesBook, known_lines: set[int]) -> Checked:
    assert claim.metric is not None
    assert claim.comparator is not None
    assert claim.value is not None
    statement = statement_of(claim)
    absent = [line for line in claim.lines if line not in known_lines]
    if absent:
        return _no(claim, statement, f"session {session} has no event in line {absent[0]}")
    shown = book.at_lines(claim.lines)
    named = [(one, points) for one, points in shown if same_name(claim.metric, one.name)]
    exact = [(one, points) for one, points in named if plain(claim.metric) == plain(one.name)]
    named = exact or named
    if not named:
        return _no(claim, statement, f"the cited lines do not show {claim.metric!r}; they show {_names(shown)}")
    if len({plain(one.name) for one, _ in named}) > 1:
        return _no(claim, statement, f"{claim.metric!r} may be any of {_names(named)}: give the whole name")
    measured = [(one, [point for point in points if not point.own]) for one, points in named]
    measured = [(one, points) for one, points in measured if points]
    if not measured:
        return _no(claim, statement, "the numbers in the cited lines are the agent's own text, no measurement")
    chosen = _of_run(claim, measured)
    if isinstance(chosen, str):
        return _no(claim, statement, chosen)
    chosen = _of_split(claim, chosen)
    if isinstance(chosen, str):
        return _no(claim, statement, chosen)
    picked = _one_series(claim, chosen)
    if isinstance(picked, str):
        return _no(claim, statement, picked)
    series, points = picked
    trouble = _setting_trouble(claim, series, book)
    if trouble is not None:
        return _no(claim, statement, trouble)
    by_step = series.key.axis is Axis.STEP
    steps = book.steps_of_run.get((series.key.run, series.key.launch)) if by_step else None
    if claim.comparator is Comparator.COUNT:
        steps = _steps_to_count(claim, series, steps)
    outcome = compare(claim.comparator, claim.value, points, claim.steps, steps)
    if not outcome.holds:
        return _no(claim, statement, outcome.reason)
    return _yes(claim, session, statement, series, points, outcome)


def _steps_to_count(claim: Claim, series: Series, known: int | None) -> int | None:
    """How many steps a count without a range has to reach: all that the session shows, for a training series all that
    the run is known to have."""
    if claim.steps is not None:
        return None
    shown = len(series.measured())
    return max(shown, known or 0) if series.key.split == TRAIN else shown


def _yes(claim: Claim, session: str, statement: str, series: Series, points: list[Point], outcome: Outcome) -> Checked:
    used = outcome.used or points
    numbers = {point.value for point in points} | {point.step for point in points if point.step is not None}
    more = says_more(claim.text, _allowed(claim), numbers)
    key = series.key
    told = f"{outcome.reason} (split {key.split or 'not stated'}, run {key.run or 'not stated'}"
    told += f", by {key.axis})" if key.axis is not Axis.NONE else ")"
    return Checked(
        id=claim.id,
        claim=claim,
        verified=Verified.PART if more else Verified.YES,
        statement=statement,
        reason=told,
        untested=claim.text if more else None,
        evidence=[EventEvidence(session=session, line=line) for line in sorted({point.line for point in used})],
        metric=Metric(
            name=series.name,
            split=key.split,
            value=outcome.value,
            n=outcome.n,
            standard_error=outcome.standard_error,
            run=key.run,
        ),
    )


def _no(claim: Claim, statement: str, reason: str) -> Checked:
    return Checked(
        id=claim.id, claim=claim, verified=Verified.NO, statement=statement, reason=reason, untested=claim.text or None
    )


def _allowed(claim: Claim) -> list[str]:
    """Words of a text that say nothing beyond the machine form."""
    return [one for one in (claim.metric, claim.run, claim.split, claim.value, claim.session) if one]


def _of_run(claim: Claim, found: list[tuple[Series, list[Point]]]) -> list[tuple[Series, list[Point]]] | str:
    runs = {one.key.run for one, _ in found}
    if claim.run is None:
        if len(runs) > 1:
            return f"the cited lines show it of several runs ({_listed(runs)}): name the run"
        return found
    mine = [(one, points) for one, points in found if one.key.run == claim.run]
    if mine:
        return mine
    if runs == {None}:
        return f"the cited lines do not say that it is of run {claim.run}"
    return f"the cited lines show it of {_listed(runs)}, not of {claim.run}"


def _of_split(claim: Claim, found: list[tuple[Series, list[Point]]]) -> list[tuple[Series, list[Point]]] | str:
    splits = {one.key.split for one, _ in found}
    asked = split_asked(claim.split)
    if asked is None:
        return found if len(splits) == 1 else f"it is shown on several splits ({_listed(splits)}): name the split"
    mine = [(one, points) for one, points in found if one.key.split == asked]
    if mine:
        return mine
    if splits == {None}:
        return f"the cited lines do not say on which split it was measured, so not that it was {asked}"
    return f"it was measured on {_listed(splits)}, not on {asked}"


def _one_series(claim: Claim, found: list[tuple[Series, list[Point]]]) -> tuple[Series, list[Point]] | str:
    """The one series meant: by step before by epoch, steps before single numbers."""
    launches = {one.key.launch for one, _ in found}
    if len(launches) > 1:
        return "the cited lines show several launches: cite one of them"
    wanted = [Axis.STEP, Axis.EPOCH, Axis.ROUND, Axis.INDEX, Axis.NONE]
    if claim.steps is None and claim.comparator in (Comparator.MEAN, Comparator.MIN, Comparator.MAX):
        wanted = [Axis.NONE, *wanted[:-1]]
    usable = found
    if claim.steps is not None:
        low, high = claim.steps
        usable = [(one, [p for p in points if p.step is not None and low <= p.step <= high]) for one, points in found]
        usable = [(one, points) for one, points in usable if points and one.key.axis is not Axis.INDEX]
        if not usable:
            return f"the cited lines show no value of it in steps {low:g} to {high:g}"
    for axis in wanted:
        mine = [(one, points) for one, points in usable if one.key.axis is axis]
        if mine:
            settled = [one for one in mine if not one[0].key.setting] or mine
            series = settled[0][0]
            return series, [point for _, points in settled for point in points]
    return "the cited lines show no value of it"


def _setting_trouble(claim: Claim, series: Series, book: SeriesBook) -> str | None:
    """Why a setting that a configuration holds is none that the run used."""
    if not series.key.setting:
        return None
    return book.settings.not_launched(series.key.run, series.name)


def _check_calls(claim: Claim, session: str, events: Sequence[Event]) -> Checked:
    """`tool_calls` and `failed_calls`: counted over the cited lines."""
    assert claim.value is not None
    statement = statement_of(claim)
    by_line = {event.line: event for event in events if event.is_call}
    absent = [line for line in claim.lines if line not in by_line]
    if absent:
        return _no(claim, statement, f"line {absent[0]} of session {session} is no tool call")
    if claim.comparator is not Comparator.COUNT and claim.comparator is not Comparator.EQ:
        return _no(claim, statement, "calls are counted: use comparator count")
    calls = [by_line[line] for line in sorted(set(claim.lines))]
    counted = [call for call in calls if call.failed] if claim.metric == "failed_calls" else calls
    if len(counted) != float(claim.value) or not counted:
        return _no(claim, statement, f"the cited lines hold {len(counted)}")
    more = says_more(claim.text, _allowed(claim), {float(one) for one in claim.lines})
    return Checked(
        id=claim.id,
        claim=claim,
        verified=Verified.PART if more else Verified.YES,
        statement=statement,
        reason=f"{len(counted)} of {len(calls)} cited calls",
        untested=claim.text if more else None,
        evidence=[EventEvidence(session=session, line=call.line) for call in counted],
        metric=Metric(name=claim.metric or "", value=len(counted), n=len(calls)),
    )


def plain(name: str) -> str:
    """A name without case, spaces and signs; `/` and `@` stay, because they separate what is measured."""
    return "".join(character for character in name.lower() if character.isalnum() or character in "/@")


def same_name(asked: str, name: str) -> bool:
    """Whether a claim's metric is this series: the whole name, or its last parts (`score/mean` of `critic/score/mean`).

    Nothing is translated: `reward` is not `R`, and `accuracy` is not `score`.
    """
    wanted, there = plain(asked), plain(name)
    return bool(wanted) and (wanted == there or there.endswith("/" + wanted))


def _names(found: Iterable[tuple[Series, list[Point]]]) -> str:
    names = list(dict.fromkeys(one.name for one, _ in found))
    more = "" if len(names) <= _NAMES_SHOWN else f" and {len(names) - _NAMES_SHOWN} more"
    return (", ".join(names[:_NAMES_SHOWN]) + more) if names else "no numbers that can be read"


def _listed(values: Iterable[str | None]) -> str:
    return ", ".join(sorted(one or "not stated" for one in values))
