"""Held-out evaluation: temperature 1, one sample a problem, the same random streams before and after training."""

import math
import time
from collections.abc import Callable

from trainer.config import TrainingConfig
from trainer.envs.base import EnvironmentSpec, Split
from trainer.models.load import LoadedModel
from trainer.rollout.engine import EpisodeReward, RolloutEngine
from trainer.rollout.summary import evaluation
from trainer.rollout.types import Episode, EpisodeRequest, Limits
from trainer.runs.types import Eval
from trainer.tasks import TEST_SEED, Tasks, requests

EVALUATION_TEMPERATURE = 1.0

Change = Callable[[list[EpisodeRequest]], list[EpisodeRequest]]


def limits_of(config: TrainingConfig) -> Limits:
    """The bounds of an episode that a configuration states."""
    return Limits(
        max_completion_tokens=config.max_completion_tokens,
        max_turns=config.max_turns,
        tool_timeout_s=config.tool_timeout_s,
        max_seconds=math.inf if config.max_episode_s is None else config.max_episode_s,
    )


class Evaluator:
    """Evaluates one model on the splits of one run."""

    def __init__(
        self,
        config: TrainingConfig,
        loaded: LoadedModel,
        spec: EnvironmentSpec,
        tasks: Tasks,
        *,
        reward: EpisodeReward | None = None,
        on_turn: Callable[[], None] | None = None,
    ) -> None:
        self.tasks = tasks
        self.system_prompt = config.system_prompt or spec.system_prompt
        self.engine = RolloutEngine(
            loaded.model,
            loaded.tokenizer,
            spec,
            limits_of(config),
            seed=config.seed + TEST_SEED,
            reward=reward,
            on_turn=on_turn,
            max_rows=128 if loaded.parameters < 10_000_000 else 32,
        )

    def run(self, split: Split, change: Change | None = None) -> tuple[Eval, list[Episode]]:
        """Plays the split once; `change` may give requests something else to see."""
        began = time.perf_counter()
        wanted = requests(self.tasks.of(split), self.system_prompt)
        episodes = self.engine.run(wanted if change is None else change(wanted), EVALUATION_TEMPERATURE)
        return evaluation(episodes, split.value, time.perf_counter() - began), episodes
