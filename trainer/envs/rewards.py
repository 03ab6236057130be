"""Reward functions of the user: ours, `reward(episode, environment)`, and TRL's, `reward(completions, **kwargs)`.

TRL calls a function once per batch with lists. Here it is called once per episode with lists of one, so it must not
compare the completions of a group. It gets `prompts`, `completions` (the messages after the prompt), `completion_ids`,
`environments` and every column of the task's row; `log_extra` and `log_metric` are accepted and do nothing,
`trainer_state` is None.
"""

import inspect
from collections.abc import Callable
from typing import Any

from trainer.envs.adapters import inner_of, settle
from trainer.envs.base import EnvironmentFault, EnvironmentSpec
from trainer.rollout.types import Episode

EpisodeReward = Callable[[Episode, Any], float]

_TRL_NAMES = frozenset({"prompts", "completions", "completion_ids", "environments"})
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def episode_reward(function: Callable[..., Any] | None, spec: EnvironmentSpec) -> EpisodeReward:
    """What grades an episode: a reward function of either kind, or else the environment itself.

    Raises EnvironmentFault where nothing does, or where the function's arguments are neither ours nor TRL's.
    """
    if function is None:
        spec.check_graded()
        return lambda episode, environment: _number(environment.get_reward(), "get_reward")
    name = getattr(function, "__name__", type(function).__name__)
    parameters = inspect.signature(function).parameters
    positional = [p for p in parameters.values() if p.kind in _POSITIONAL]
    required = [p for p in positional if p.default is inspect.Parameter.empty]
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    if "episode" not in parameters and (_TRL_NAMES & set(parameters) or (open_ended and len(required) != 2)):
        return _trl(function, name, None if open_ended else frozenset(parameters))
    if len(required) == 2 or (len(required) < 2 <= len(positional)):
        return lambda episode, environment: _number(settle(function(episode, inner_of(environment))), name)
    if len(positional) == 1:
        return lambda episode, environment: _number(settle(function(episode)), name)
    raise EnvironmentFault(
        f"reward function {name}{inspect.signature(function)}: it must be function(episode, environment) -> float, or "
        "TRL's function(completions, environments, **kwargs) -> list[float]."
    )


def _trl(function: Callable[..., Any], name: str, accepted: frozenset[str] | None) -> EpisodeReward:
    """One call of TRL's kind for one episode. `accepted`: the arguments it takes; None: any."""

    def reward(episode: Episode, environment: Any) -> float:
        request = episode.request
        start = len(request.messages)
        given: dict[str, Any] = {key: [value] for key, value in request.row.items()}
        given |= {
            "prompts": [episode.messages[:start]],
            "completions": [episode.messages[start:]],
            "completion_ids": [episode.completion_ids],
            "environments": [inner_of(environment)],
            "trainer_state": None,
            "log_extra": _ignore,
            "log_metric": _ignore,
        }
        result = settle(function(**{key: value for key, value in given.items() if accepted is None or key in accepted}))
        try:
            (value,) = result
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} must return one reward for each completion, not {result!r}") from error
        return _number(value, name)

    return reward


def _ignore(*arguments: Any, **named: Any) -> None:
    """Stands for TRL's loggers."""


def _number(value: Any, name: str) -> float:
    if value is None:
        raise ValueError(f"{name} returned None: the episode has no reward")
    return float(value)
