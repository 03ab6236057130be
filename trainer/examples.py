"""Worked examples in the prompt: problems of the training split, solved by the environment's own solution.

An environment that can be shown has a class method `solution(row) -> [(tool, arguments), …]`: the calls of a good
episode, one a turn. They are played against a fresh environment, so every result is a real one. Small general models
follow a tool format that they see before them far better than one that is described to them.
"""

from collections.abc import Callable
from typing import Any

from trainer.config import TrainingConfig
from trainer.envs.base import EnvironmentFault, EnvironmentSpec, Row, Split

Message = dict[str, Any]
Solution = Callable[[Row], list[tuple[str, dict[str, Any]]]]

EXAMPLE_SEED = 7_000_003
"""Examples come from the run's seed plus this, so that they are hardly ever problems that are trained on."""


def worked_examples(config: TrainingConfig, spec: EnvironmentSpec) -> list[Message]:
    """`config.examples` solved problems as chat messages, one after another; empty for 0.

    Raises EnvironmentFault where the environment cannot be shown or its solution earns no full reward.
    """
    if not config.examples:
        return []
    if spec.solution is None or spec.tasks is None:
        raise EnvironmentFault(
            f"environment {spec.name} has no worked examples: it needs the class methods tasks(split, n, seed, "
            "difficulty) and solution(row) -> [(tool, arguments), …]. Set examples=0."
        )
    rows = spec.tasks(Split.TRAIN, config.examples, config.seed + EXAMPLE_SEED, config.difficulty, **config.env_args)
    return [message for row in rows for message in _played(spec, spec.solution, row)]


def _played(spec: EnvironmentSpec, solution: Solution, row: Row) -> list[Message]:
    messages: list[Message] = [{"role": "user", "content": row["prompt"]}]
    try:
        environment = spec.factory()
        environment.reset(**{key: value for key, value in row.items() if key != "prompt"})
        for number, (tool, arguments) in enumerate(solution(row)):
            call = {"type": "function", "id": f"call{number:05d}", "function": {"name": tool, "arguments": arguments}}
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            result = getattr(environment, tool)(**arguments)
            messages.append({"role": "tool", "name": tool, "tool_call_id": call["id"], "content": str(result)})
        reward = environment.get_reward() if spec.grades else None
    except Exception as error:
        raise EnvironmentFault(f"environment {spec.name}: its solution of {row} failed: {error}") from error
    if reward is not None and reward < 1:
        raise EnvironmentFault(f"environment {spec.name}: its solution of {row} earns {reward:g}, not 1.")
    return messages[:-1]  # the result of the call that ends an episode is never shown to a model
