"""Calls in fresh instances of an environment, as an episode would make them: same time limits, same grader, no model.

An instance lives for one play. Rows and arguments are copied on their way in, so that nothing an environment does to
them reaches another play. Whatever it raises in reset, `finished` or grading is an `EnvironmentTrouble`.

A set takes many thousand calls, so not each call is handed to a thread of its own, but each piece of work (`guarded`):
whoever waits for it watches how long its current call takes.
"""

import copy
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from trainer.datafiles import Row
from trainer.envs.base import EnvironmentSpec
from trainer.envs.rewards import episode_reward
from trainer.experience.trajectories import Call
from trainer.models.parsing import ToolCall
from trainer.rollout.tools import ToolRunner
from trainer.rollout.types import Episode, EpisodeRequest, Message, StopReason
from trainer.tasks import conversation

Grader = Callable[[Episode, Any], float]
T = TypeVar("T")

LOOK_S = 0.5
"""How often the time of a call is looked at."""


class EnvironmentTrouble(Exception):
    """The environment raised where no tool was called, or a function of it did not return in time: says where and
    what."""


@dataclass(frozen=True)
class Played:
    """What a play gave."""

    calls: tuple[Call, ...]
    """Those that were made: none follows the one that ended the episode."""
    reward: float
    finished: bool

    @property
    def results(self) -> tuple[str, ...]:
        return tuple(call.result for call in self.calls)


class Stage:
    """One instance, from reset to reward."""

    def __init__(self, player: "Player", row: Row, seed: int) -> None:
        self._player = player
        self._row = copy.deepcopy(row)
        self.calls: list[Call] = []
        self.finished = False
        spec = player.spec
        self._messages = conversation(self._row, player.system_prompt)
        self._request = EpisodeRequest(
            self._messages, {key: value for key, value in self._row.items() if key != "prompt"}, 0, 0, 0
        )
        self._environment: Any = None
        try:
            observation = player.runner.own("reset", lambda: self._reset(spec, seed))
        except (Exception, SystemExit) as error:
            raise EnvironmentTrouble(f"reset: {type(error).__name__}: {error}") from error
        self.observation = observation if isinstance(observation, str) else ""

    def _reset(self, spec: EnvironmentSpec, seed: int) -> Any:
        self._environment = spec.factory()
        if "seed" in dir(self._environment):
            self._environment.seed(seed)
        arguments = spec.reset_arguments(copy.deepcopy(self._messages), copy.deepcopy(self._request.row))
        return self._environment.reset(**arguments)

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Call:
        """Makes one call; a refusal is an answer that failed. Raises EnvironmentTrouble."""
        given = copy.deepcopy(dict(arguments))
        text, good = self._player.runner.call(self._environment, self._player.spec.tools, ToolCall(tool, given))
        made = Call(tool, copy.deepcopy(dict(arguments)), text, not good)
        self.calls.append(made)
        try:
            self.finished = self._player.runner.own("finished", self._has_finished)
        except (Exception, SystemExit) as error:
            raise EnvironmentTrouble(f"finished: {type(error).__name__}: {error}") from error
        return made

    def _has_finished(self) -> bool:
        if "finished" not in dir(self._environment):
            return self.finished
        finished = self._environment.finished
        return bool(finished() if callable(finished) else finished)

    def reward(self) -> float:
        """Grades what was done. Raises EnvironmentTrouble."""
        episode = Episode(self._request, [], messages=[*self._messages, *_turns(self.calls)])
        episode.turns = episode.attempted_calls = len(self.calls)
        episode.tool_errors = sum(call.failed for call in self.calls)
        episode.tool_calls = len(self.calls) - episode.tool_errors
        episode.stop_reason = StopReason.FINISHED if self.finished else StopReason.COMPLETED
        try:
            grade = self._player.grade
            reward = self._player.runner.own("get_reward", lambda: grade(episode, self._environment))
        except (Exception, SystemExit) as error:
            raise EnvironmentTrouble(f"get_reward: {type(error).__name__}: {error}") from error
        if not math.isfinite(reward):
            raise EnvironmentTrouble(f"get_reward: the reward is {reward}")
        return reward

    def close(self) -> None:
        """Lets the instance go. Raises EnvironmentTrouble."""
        if self._environment is None or "close" not in dir(self._environment):
            return
        try:
            self._player.runner.own("close", self._environment.close)
        except (Exception, SystemExit) as error:
            raise EnvironmentTrouble(f"close: {type(error).__name__}: {error}") from error

    @property
    def played(self) -> Played:
        """Grades and sums up. Raises EnvironmentTrouble."""
        return Played(tuple(self.calls), self.reward(), self.finished)


class _Abandoned(BaseException):
    """Ends a piece of work that nobody waits for any more. Not an Exception: no tool's handler may swallow it."""


class _Watched:
    """Runs calls where it is, and knows since when the current one runs."""

    def __init__(self) -> None:
        self.abandoned = False
        self._current: tuple[float, float, str] | None = None

    def run(self, job: Callable[[], Any], timeout_s: float, name: str) -> Any:
        self._current = (time.monotonic(), timeout_s, name)
        try:
            return job()
        finally:
            self._current = None
            if self.abandoned:
                raise _Abandoned

    @property
    def overdue(self) -> tuple[float, str] | None:
        """Limit and name of a call that runs for longer."""
        current = self._current
        return current[1:] if current is not None and time.monotonic() - current[0] > current[1] else None


class Player:
    """Plays lists of calls. Not thread safe."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        reward: Grader | None = None,
        *,
        timeout_s: float = 10.0,
        system_prompt: str | None = None,
    ) -> None:
        """Raises EnvironmentFault where nothing grades an episode."""
        self.spec = spec
        self.grade = episode_reward(reward, spec)
        self._timeout_s = timeout_s
        self._watched = _Watched()
        self.runner = ToolRunner(timeout_s, spec.timeouts, self._watched)
        self.system_prompt = system_prompt or spec.system_prompt

    def guarded(self, work: Callable[[], T]) -> T:
        """The result of work that plays. Raises what it raises, and EnvironmentTrouble where a call takes too long."""
        answer: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
        watched = self._watched

        def serve() -> None:
            try:
                answer.put((True, work()))
            except BaseException as error:
                answer.put((False, error))

        threading.Thread(target=serve, name="plays", daemon=True).start()
        while True:
            try:
                good, value = answer.get(timeout=LOOK_S)
                break
            except queue.Empty:
                overdue = watched.overdue
                if overdue is None:
                    continue
                limit, name = overdue
                watched.abandoned = True
                self._watched = _Watched()
                self.runner = ToolRunner(self._timeout_s, self.spec.timeouts, self._watched)
                raise EnvironmentTrouble(f"{name} gave no answer within {limit:g} s") from None
        if good:
            result: T = value
            return result
        raise value

    def open(self, row: Row, seed: int = 0) -> Stage:
        """A fresh instance that was reset. Raises EnvironmentTrouble."""
        return Stage(self, row, seed)

    def play(self, row: Row, calls: Sequence[tuple[str, Mapping[str, Any]]], seed: int = 0) -> Played:
        """Makes the calls until the episode ends, and grades. Raises EnvironmentTrouble."""
        stage = self.open(row, seed)
        try:
            for tool, arguments in calls:
                if stage.finished:
                    break
                stage.call(tool, arguments)
            return stage.played
        finally:
            stage.close()


def plain(calls: Sequence[Call]) -> list[tuple[str, Mapping[str, Any]]]:
    """Calls without their answers."""
    return [(call.tool, call.arguments) for call in calls]


def _turns(calls: Sequence[Call]) -> list[Message]:
    """Calls as an episode's messages, one a turn."""
    turns: list[Message] = []
    for call in calls:
        function = {"name": call.tool, "arguments": dict(call.arguments)}
        turns.append({"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]})
        turns.append({"role": "tool", "content": call.result})
    return turns
