"""The scripted explorer: walks of calls with values that question, answers and tool descriptions show, until one wins.

A value costs what it takes to come by it: nothing in the question, one more than the call that answered it elsewhere.
Of many random calls the cheapest is made, so that chains are followed from the question on. The tools that end an
episode are tried with what the question says, and with each answer, behind the calls that led to it. Where no tool ends
one, short walks are graded as they are. What wins is shortened as far as it still wins and every argument still comes
from somewhere.

The draws are keyed by seed and original; what is learned about one original is not used for another.
"""

import copy
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainer.datafiles import Row
from trainer.experience.slots import needed
from trainer.experience.trajectories import Call
from trainer.generation.play import EnvironmentTrouble, Player, Stage, plain
from trainer.generation.profile import MAX_VALUE, EnvironmentProfile, ToolProfile, question_of, values_in
from trainer.generation.types import FULL_REWARD, Attempt, FoundBy

WALK = 24
"""Calls of one walk at most, where a tool ends episodes."""
SHORT_WALK = 4
"""… where none does: then the state at the end is what counts."""
KEPT = 3
"""Different ways to win that are kept of one original: one may have won by luck, the templates tell."""
DRAWS = 64
"""Random calls of which the cheapest is made."""
AT_ONCE = 40
"""Calls of each ending tool that are tried without any before them."""


class Search:
    """One original, explored within a number of calls."""

    def __init__(self, player: Player, profile: EnvironmentProfile, row: Row, number: int, calls: int, seed: int):
        self._player, self._row, self._number = player, row, number
        self._tools = [tool for tool in profile.tools if tool.callable]
        self._rng = random.Random(f"search|{seed}|{number}")
        self._budget = calls
        self._question = question_of(row)
        self._costs: dict[str, int] = {}
        self._learn([value for value in values_in(self._question) if not _phrase(value)], 0)
        self._learn([*values_in(self._question), *profile.shown], 1)
        self._sources = [self._question, *profile.shown]
        self._ending: set[str] = set()
        self._made: set[str] = set()
        self._answered: list[Call] = []
        """Of all walks, in order: a value may come from an earlier one."""
        self._found: dict[str, tuple[Call, ...]] = {}
        self._limit: int | None = None
        """Cost of the first way: dearer ones are left alone."""

    def run(self) -> list[Attempt]:
        """The ways that were found, the shortest first. Raises EnvironmentTrouble where nothing can be played."""
        if not self._tools:
            return []
        self._learn_endings()
        self._end_at_once()
        while self._budget > 0 and len(self._found) < KEPT:
            before = self._budget
            self._walk()
            if self._budget == before:
                break
        ways = sorted(self._found.items(), key=lambda item: (len(item[1]), item[0]))
        return [
            Attempt(self._number, FoundBy.SEARCH, f"way {place}", calls) for place, (_, calls) in enumerate(ways, 1)
        ]

    def _learn_endings(self) -> None:
        """Tries each tool once: which of them end an episode."""
        for tool in self._tools:
            stage = self._player.open(self._row)
            try:
                self._spend(stage, tool.name, self._arguments(tool))
                if stage.finished:
                    self._ending.add(tool.name)
            finally:
                stage.close()

    def _end_at_once(self) -> None:
        """Tries the ending tools with the nearest values; a way that is found so does not end the search."""
        for tool in self._tools:
            for _ in range(AT_ONCE if tool.name in self._ending else 0):
                drawn = self._cheapest([tool])
                if drawn is None or self._budget <= 0:
                    break
                self._keep([Call(tool.name, drawn[2], "", False)], None)

    def _spend(self, stage: Stage, tool: str, arguments: dict[str, Any]) -> Call:
        self._budget -= 1
        return stage.call(tool, arguments)

    def _walk(self) -> None:
        stage = self._player.open(self._row)
        self._learn(values_in(stage.observation), 0)
        if stage.observation not in self._sources:
            self._sources.append(stage.observation)
        length = WALK if self._ending else self._rng.randint(1, SHORT_WALK)
        try:
            while len(stage.calls) < length and self._budget > 0 and len(self._found) < KEPT and not stage.finished:
                drawn = self._draw()
                if drawn is None:
                    break
                cost, tool, arguments = drawn
                made = self._spend(stage, tool.name, arguments)
                if stage.finished:
                    self._ending.add(tool.name)
                    if stage.reward() >= FULL_REWARD:
                        self._keep([call for call in stage.calls if not call.failed], cost)
                elif not made.failed:
                    self._answered.append(made)
                    self._learn(_short(made.result), cost + 1)
                    self._submit(stage.calls, cost)
            if not self._ending and stage.calls and stage.reward() >= FULL_REWARD:
                self._keep([call for call in stage.calls if not call.failed], None)
        finally:
            stage.close()

    def _learn(self, values: Iterable[str], cost: int) -> None:
        for value in values:
            self._costs[value] = min(cost, self._costs.get(value, cost))

    # ---- what to call

    def _draw(self) -> tuple[int, ToolProfile, dict[str, Any]] | None:
        """The next call of a walk; None where there is none, or only dearer ones than what was found."""
        best = self._cheapest([tool for tool in self._tools if tool.name not in self._ending])
        return None if best is None or (self._limit is not None and best[0] > self._limit) else best

    def _cheapest(self, tools: Sequence[ToolProfile]) -> tuple[int, ToolProfile, dict[str, Any]] | None:
        """(cost, tool, arguments) of a call not made yet; of any where no tool ends episodes (states differ)."""
        best: tuple[int, ToolProfile, dict[str, Any]] | None = None
        for _ in range(DRAWS if tools else 0):
            tool = self._rng.choice(tools)
            arguments = self._arguments(tool)
            cost = self._cost(arguments)
            if (best is None or cost < best[0]) and not (self._ending and _name(tool.name, arguments) in self._made):
                best = (cost, tool, arguments)
        if best is not None:
            self._made.add(_name(best[1].name, best[2]))
        return best

    def _cost(self, arguments: Mapping[str, Any]) -> int:
        return sum(self._costs.get(str(value), 0) for value in arguments.values())

    def _arguments(self, tool: ToolProfile) -> dict[str, Any]:
        given = {}
        for one in tool.arguments:
            if one.kind is None or (not one.required and self._rng.random() < 0.5):
                continue
            if one.choices:
                given[one.name] = self._rng.choice(one.choices)
                continue
            value = self._rng.choice(list(self._costs) or [""])
            given[one.name] = value if one.kind is str else _number(value, one.kind, self._numbers(one.kind), self._rng)
        return given

    def _numbers(self, kind: type) -> list[Any]:
        return [number for value in self._costs if (number := _read(value, kind)) is not None]

    # ---- what wins

    def _submit(self, calls: Sequence[Call], cost: int) -> None:
        """Ends an episode with the newest answer, behind the calls that led to it."""
        newest = calls[-1]
        for tool in self._tools:
            if tool.name not in self._ending:
                continue
            for one in tool.arguments:
                value = newest.result if one.kind is str else _read(newest.result, one.kind)
                if not one.required or one.choices or value is None or self._budget <= 0:
                    continue
                others = min((self._arguments(tool) for _ in range(8)), key=self._cost)
                end = Call(tool.name, {**others, one.name: value}, "", False)
                led = needed([*self._answered, end])
                self._keep([*(call for call in calls if not call.failed), end], cost, led)

    def _keep(self, calls: Sequence[Call], cost: int | None, led: Sequence[Call] = ()) -> None:
        """Keeps calls that win, without those that are not needed.

        `cost` bounds the search from now on; `led`: calls to try first.
        """
        last = calls[-2:]  # a grader may count calls, and `led` holds all that an argument may come from
        ways = [way for way in (led, calls, last if self._founded(last) else ()) if way]
        best = next((won for way in ways if (won := self._winning(way)) is not None), None)
        if best is None:
            return
        for place in reversed(range(len(best))):
            fewer = [call for at, call in enumerate(best) if at != place]
            if fewer and self._founded(fewer):
                best = self._winning(fewer) or best
        self._limit = cost if self._limit is None else self._limit
        self._found.setdefault("; ".join(_name(call.tool, call.arguments) for call in best), best)

    def _winning(self, calls: Sequence[Call]) -> tuple[Call, ...] | None:
        """The calls as they are answered in a fresh instance, where they win there."""
        self._budget -= len(calls)
        played = self._player.play(self._row, plain(calls))
        fine = played.reward >= FULL_REWARD and not any(call.failed for call in played.calls)
        return played.calls if fine else None

    def _founded(self, calls: Sequence[Call]) -> bool:
        """Whether every argument comes from the texts or from an earlier answer."""
        return all(
            any(str(value) in text for text in (*self._sources, *(earlier.result for earlier in calls[:number])))
            for number, call in enumerate(calls)
            for value in call.arguments.values()
            if not isinstance(value, bool)
        )


def _name(tool: str, arguments: Mapping[str, Any]) -> str:
    return f"{tool}({', '.join(f'{name}={value!r}' for name, value in sorted(arguments.items()))})"


def _phrase(value: str) -> bool:
    """Whether a value is several words."""
    return " " in value and any(c.isalpha() for c in value)


def search(
    player: Player, profile: EnvironmentProfile, row: Row, number: int, *, calls: int, seed: int
) -> list[Attempt]:
    """Attempts at one original. Raises EnvironmentTrouble."""
    return Search(player, profile, row, number, calls, seed).run()


def solved_by_class(player: Player, row: Row, number: int) -> list[Attempt]:
    """What the class's own `solution` says, where it has one and it wins. Raises EnvironmentTrouble."""
    if player.spec.solution is None:
        return []
    try:
        calls = player.spec.solution(copy.deepcopy(row))
    except (Exception, SystemExit) as error:
        raise EnvironmentTrouble(f"solution: {type(error).__name__}: {error}") from error
    played = player.play(row, calls)
    if played.reward < FULL_REWARD or len(played.calls) < len(calls):
        return []
    return [Attempt(number, FoundBy.SOLUTION, "solution", played.calls)]


def _short(result: str) -> list[str]:
    """What an answer offers as a value: itself where it is short, and what it shows."""
    whole = [result.strip()] if 0 < len(result.strip()) <= MAX_VALUE and "\n" not in result else []
    return [*values_in(result)[:12], *whole]


def _read(value: str, kind: type | None) -> Any:
    """A text as a number of this kind, or None."""
    try:
        return int(value) if kind is int else float(value) if kind is float else None
    except ValueError:
        return None


def _number(value: str, kind: type, known: list[Any], rng: random.Random) -> Any:
    read = _read(value, kind)
    if read is not None:
        return read
    return rng.choice(known) if known else kind(rng.randint(0, 9))
