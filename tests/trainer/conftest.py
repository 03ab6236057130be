"""The bundled model, loaded once, and an engine whose model says what a test tells it to."""

import os
from collections.abc import Callable, Iterator

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from trainer.envs import registry
from trainer.envs.base import EnvironmentSpec
from trainer.models.catalog import resolve_model
from trainer.models.load import LoadedModel, load
from trainer.rollout import engine as engine_module
from trainer.rollout.engine import RolloutEngine
from trainer.rollout.types import EpisodeRequest, Limits

torch.set_num_threads(1)  # spinning threads of a second test or run on the same cores cost more than they bring


@pytest.fixture(scope="session")
def tiny() -> LoadedModel:
    """The bundled model on the CPU in float32."""
    torch.manual_seed(0)
    return load(resolve_model("tiny"), "cpu", "float32")


class Script:
    """A backend that makes the model say given texts, turn by turn, row by row."""

    def __init__(self, loaded: LoadedModel, turns: list[list[str]]) -> None:
        self.vocabulary = loaded.model.config.vocab_size
        end = loaded.tokenizer.eos_token_id
        self.rows = [
            [t for text in row for t in [*loaded.tokenizer(text, add_special_tokens=False)["input_ids"], end]]
            for row in turns
        ]
        self.fed: list[list[int]] = [[] for _ in turns]
        self.place = [0] * len(turns)
        self.slots = list(range(len(turns)))

    def _logits(self) -> torch.Tensor:
        logits = torch.full((len(self.slots), self.vocabulary), -50.0)
        for i, row in enumerate(self.slots):
            script = self.rows[row]
            logits[i, script[self.place[row] % len(script)]] = 50.0
        return logits

    def first(self, prompts: list[list[int]], group: list[int], capacity: int) -> torch.Tensor:
        return self._logits()

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        for i, row in enumerate(self.slots):
            token = int(tokens[i])
            self.fed[row].append(token)
            # only a token that the script offered moves it on: environment tokens are fed in between
            if (
                self.place[row] < len(self.rows[row])
                and token == self.rows[row][self.place[row]]
                and self._speaking(row)
            ):
                self.place[row] += 1
        return self._logits()

    def _speaking(self, row: int) -> bool:
        episode = self.episodes()[row] if self.episodes is not None else None
        return episode is None or episode.mask[-1] == 1

    episodes: Callable[[], list] | None = None

    def keep(self, rows: torch.Tensor) -> None:
        self.slots = [self.slots[i] for i in rows.tolist()]


@pytest.fixture
def scripted(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[list, Script]]]:
    """scripted(turns per row, environment name or spec, limits, reward function) → (episodes, script)."""

    def run(
        turns: list[list[str]],
        spec: EnvironmentSpec | str = "calculator",
        limits: Limits | None = None,
        reward: Callable[..., object] | None = None,
        **row: object,
    ) -> tuple[list, Script]:
        found = registry.load(spec) if isinstance(spec, str) else spec
        script = Script(tiny, turns)
        living: list = []
        original = RolloutEngine._begin

        def begin(self: RolloutEngine, request: EpisodeRequest):  # type: ignore[no-untyped-def]
            made = original(self, request)
            living.append(made.episode)
            return made

        monkeypatch.setattr(RolloutEngine, "_begin", begin)
        monkeypatch.setattr(engine_module, "backend_for", lambda model: script)
        script.episodes = lambda: living
        player = RolloutEngine(tiny.model, tiny.tokenizer, found, limits or Limits(), seed=1, reward=reward)
        message = [{"role": "user", "content": "What is 2 + 3?"}]
        requests = [EpisodeRequest(message, dict({"answer": "5"}, **row), 0, 0, g) for g in range(len(turns))]
        return player.run(requests, 1.0), script

    return run
