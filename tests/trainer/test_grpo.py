"""The trainer against TRL's own pass, its invariances, its guard, and the phases that add up."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.algorithms.advantages import kept_rows
from trainer.config import TrainingConfig
from trainer.envs import registry
from trainer.evaluate import limits_of
from trainer.grpo import AgentGRPO
from trainer.models import shared_prefix
from trainer.models.adapters import with_adapters
from trainer.models.catalog import resolve_model
from trainer.models.load import load
from trainer.rollout.engine import RolloutEngine
from trainer.rollout.types import Episode, StopReason
from trainer.step_recorder import NonFinite
from trainer.tasks import build_tasks

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:You are using 'rollout_func'")

SMALL = {
    "problems": 8,
    "batch_size": 2,
    "num_generations": 4,
    "max_steps": 2,
    "test_problems": 8,
    "validation_problems": 8,
}


class Recorder:
    """What a run says."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.episodes: list[list[Any]] = []


def make(tmp_path: Path, **more: Any) -> tuple[AgentGRPO, Recorder]:
    config = TrainingConfig.model_validate(SMALL | more)
    torch.manual_seed(0)
    loaded = load(resolve_model("tiny"), "cpu", "float32")
    if config.lora:
        loaded = with_adapters(loaded, config.lora_rank)
    spec = registry.load(config.env)
    record = Recorder()
    trainer = AgentGRPO(
        config,
        loaded,
        build_tasks(config, spec, tmp_path),
        RolloutEngine(loaded.model, loaded.tokenizer, spec, limits_of(config), seed=config.seed),
        tmp_path,
        on_episodes=lambda step, episodes: record.episodes.append(episodes),
        on_step=record.lines.append,
        on_event=lambda kind, **fields: record.events.append((kind, fields)),
        after_step=lambda step: None,
    )
    return trainer, record


def weights(trainer: AgentGRPO) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def test_one_step_equals_trls_plain_pass(tmp_path: Path) -> None:
    """Same episodes through our packed pass and through TRL's own: same loss, gradient norm and weights."""
    results = []
    for packed in (True, False):
        trainer, record = make(tmp_path, max_steps=1, batch_size=4)
        if not packed:
            trainer._shared_prefix = False
        trainer.train()
        results.append((record.lines[0], weights(trainer)))
    (ours, a), (trl, b) = results
    assert ours["trained_tokens"] == trl["trained_tokens"] > 0
    assert ours["loss"] == pytest.approx(trl["loss"], abs=1e-5)
    assert ours["grad_norm"] == pytest.approx(trl["grad_norm"], rel=1e-3)
    # Adam divides by the gradient's own size, so tiny gradients may differ; the weights must agree all the same
    assert (a - b).norm() < 1e-3 * a.norm()
    assert (a - b).abs().mean() < 1e-6


def test_packed_log_probabilities_equal_trls(tmp_path: Path) -> None:
    trainer, _ = make(tmp_path, temperature=0.7)
    prompts = torch.randint(10, 500, (2, 30)).repeat_interleave(4, 0)
    completions = torch.randint(10, 500, (8, 20))
    lengths = torch.tensor([20, 3, 7, 1, 12, 20, 5, 9])
    mask = (torch.arange(20) < lengths[:, None]).long()
    left = (torch.arange(30) >= torch.tensor([0] * 4 + [11] * 4)[:, None]).long()
    ids, attention = torch.cat([prompts, completions], 1), torch.cat([left, mask], 1)
    with torch.no_grad():
        packed = trainer._get_per_token_logps_and_entropies(trainer.model, ids, attention, 20, compute_entropy=True)
        trainer._shared_prefix = False
        plain = trainer._get_per_token_logps_and_entropies(trainer.model, ids, attention, 20, compute_entropy=True)
    assert packed[1] is not None
    assert plain[1] is not None
    assert ((packed[0] - plain[0]).abs() * mask).max() < 1e-4
    assert ((packed[1] - plain[1]).abs() * mask).max() < 1e-4


def test_masked_tokens_do_not_change_the_loss(tmp_path: Path) -> None:
    """Environment tokens are context: their own log-probabilities never reach the loss."""
    trainer, _ = make(tmp_path)
    prompt = torch.randint(10, 500, (1, 12)).repeat(4, 1)
    completion = torch.randint(10, 500, (4, 10))
    tool_mask = torch.ones(4, 10, dtype=torch.long)
    tool_mask[:, 4:7] = 0
    inputs = {
        "prompt_ids": prompt,
        "prompt_mask": torch.ones_like(prompt),
        "completion_ids": completion,
        "completion_mask": torch.ones(4, 10, dtype=torch.long),
        "tool_mask": tool_mask,
        "advantages": torch.tensor([1.0, -1.0, 0.5, -0.5]),
        "num_items_in_batch": tool_mask.sum(),
        "old_per_token_logps": torch.full((4, 10), -3.0),
    }
    trainer.current_gradient_accumulation_steps = 1
    loss = trainer._compute_loss(trainer.model, dict(inputs))
    changed = inputs["old_per_token_logps"].clone()
    changed[:, 4:7] = -9.0
    assert torch.equal(loss, trainer._compute_loss(trainer.model, dict(inputs, old_per_token_logps=changed)))
    changed[:, 7] = -9.0
    assert not torch.equal(loss, trainer._compute_loss(trainer.model, dict(inputs, old_per_token_logps=changed)))


def test_what_the_masked_tokens_are_does_not_matter_where_nothing_spoken_follows(tmp_path: Path) -> None:
    """Other tokens behind the last spoken one, and in a row that is masked as a whole: same loss, same gradient."""
    trainer, _ = make(tmp_path)
    prompt = torch.randint(10, 500, (1, 12)).repeat(4, 1)
    completion = torch.randint(10, 500, (4, 10))
    tool_mask = torch.ones(4, 10, dtype=torch.long)
    tool_mask[:, 7:] = 0
    tool_mask[3] = 0
    other = completion.clone()
    other[:, 7:] = torch.randint(10, 500, (4, 3))
    other[3] = torch.randint(10, 500, (10,))
    inputs = {
        "prompt_ids": prompt,
        "prompt_mask": torch.ones_like(prompt),
        "completion_ids": completion,
        "completion_mask": torch.ones(4, 10, dtype=torch.long),
        "tool_mask": tool_mask,
        "advantages": torch.tensor([1.0, -1.0, 0.5, -0.5]),
        "num_items_in_batch": tool_mask.sum(),
        "old_per_token_logps": torch.full((4, 10), -3.0),
    }
    trainer.current_gradient_accumulation_steps = 1
    found = []
    for ids in (completion, other):
        trainer.model.zero_grad()
        loss = trainer._compute_loss(trainer.model, dict(inputs, completion_ids=ids))
        loss.backward()
        found.append((loss.detach(), torch.cat([p.grad.flatten() for p in trainer.model.parameters()])))
    (loss, gradient), (same_loss, same_gradient) = found
    assert torch.allclose(loss, same_loss, rtol=1e-6, atol=0)
    assert (gradient - same_gradient).norm() <= 1e-5 * gradient.norm()
    spoken = completion.clone()
    spoken[0, 3] = (spoken[0, 3] + 1) % 500
    assert not torch.allclose(loss, trainer._compute_loss(trainer.model, dict(inputs, completion_ids=spoken)))


def test_a_group_without_variance_is_not_trained_on(tmp_path: Path) -> None:
    """With a cap that no episode survives, every reward is 0: no forward pass is spent and nothing moves."""
    trainer, record = make(tmp_path, max_completion_tokens=8)
    before = weights(trainer).clone()
    trainer.train()
    assert [line["reward_mean"] for line in record.lines] == [0.0, 0.0]
    assert [line["trained_tokens"] for line in record.lines] == [0, 0]
    assert all(line["frac_zero_variance"] == 1.0 and line["update_skipped"] for line in record.lines)
    assert torch.equal(before, weights(trainer))


def test_the_phases_add_up_to_the_step(tmp_path: Path) -> None:
    trainer, record = make(tmp_path)
    trainer.train()
    for line in record.lines:
        assert sum(line["seconds"].values()) == pytest.approx(line["time_s"], abs=2e-3)
        assert set(line["seconds"]) == {"generate", "environment", "logprob", "update", "other"}


def test_same_seed_same_run_and_other_seed_another(tmp_path: Path) -> None:
    runs = []
    for seed in (1, 1, 2):
        trainer, record = make(tmp_path, seed=seed)
        trainer.train()
        runs.append((weights(trainer), [e.completion_ids for step in record.episodes for e in step]))
    assert torch.equal(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1]
    assert runs[0][1] != runs[2][1]


def test_two_configurations_meet_the_same_problems_with_the_same_noise(tmp_path: Path) -> None:
    """Common random numbers: at the first step, before the weights part, the learning rate changes nothing."""
    a, b = (make(tmp_path, learning_rate=rate, max_steps=1) for rate in (1e-5, 1e-3))
    for trainer, _ in (a, b):
        trainer.train()
    first, second = a[1].episodes[0], b[1].episodes[0]
    assert [e.completion_ids for e in first] == [e.completion_ids for e in second]


def test_a_gradient_that_is_not_finite_never_reaches_the_weights(tmp_path: Path) -> None:
    trainer, record = make(tmp_path, batch_size=4)
    before = weights(trainer).clone()
    original = trainer._compute_loss
    trainer._compute_loss = lambda model, inputs: original(model, inputs) * math.nan  # type: ignore[method-assign]
    with pytest.raises(NonFinite, match="not finite in two updates in a row"):
        trainer.train()
    assert torch.equal(before, weights(trainer))
    assert [kind for kind, _ in record.events] == ["nonfinite", "nonfinite"]


def test_the_layout_is_not_left_on_for_models_that_do_not_support_it(tmp_path: Path) -> None:
    loaded = load(resolve_model("tiny"), "cpu", "float32")
    assert loaded.shared_prefix
    assert shared_prefix.supported(loaded.model)
    loaded.model.config.layer_types = ["sliding_attention"] * 4
    assert not shared_prefix.supported(loaded.model)


LOSSES = ["dapo", "grpo", "dr_grpo", "bnpo", "gspo", "cispo"]


@pytest.mark.parametrize("loss_type", LOSSES)
def test_micro_batches_give_the_update_of_one_pass(tmp_path: Path, loss_type: str) -> None:
    """Parts of 300 tokens against one pass: loss, gradient norm, entropy bonus included, and logged metrics."""
    results = []
    for budget in (10_000_000, 400):
        trainer, record = make(
            tmp_path, max_steps=1, batch_size=4, loss_type=loss_type, entropy_coef=0.1, micro_batch_tokens=budget
        )
        parts: list[int] = []
        original = trainer._parts
        trainer._parts = lambda inputs, f=original, seen=parts: (seen.append(len(f(dict(inputs)))), f(inputs))[1]  # type: ignore[method-assign,misc]
        trainer.train()
        results.append((record.lines[0], weights(trainer), parts, trainer.state.log_history[0]))
    (one, a, single, log), (several, b, split, logs) = results
    assert single == [1]
    assert split[0] > 2
    assert several["loss"] == pytest.approx(one["loss"], abs=1e-5)
    assert several["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-3)
    assert logs["entropy"] == pytest.approx(log["entropy"], rel=1e-4)
    assert (a - b).norm() < 1e-3 * a.norm()


@pytest.mark.parametrize("loss_type", LOSSES)
def test_each_loss_equals_trls_plain_pass(tmp_path: Path, loss_type: str) -> None:
    lines = []
    for packed in (True, False):
        trainer, record = make(tmp_path, max_steps=1, batch_size=4, loss_type=loss_type, entropy_coef=0.05)
        trainer._shared_prefix &= packed
        trainer.train()
        lines.append(record.lines[0])
    assert lines[0]["loss"] == pytest.approx(lines[1]["loss"], abs=1e-5)
    assert lines[0]["grad_norm"] == pytest.approx(lines[1]["grad_norm"], rel=1e-3)


def test_the_rows_of_a_padded_pass_are_split_too(tmp_path: Path) -> None:
    results = []
    for budget in (10_000_000, 2_000):
        trainer, record = make(tmp_path, max_steps=1, batch_size=4, micro_batch_tokens=budget)
        trainer._shared_prefix = False
        trainer.train()
        results.append(record.lines[0])
    assert results[1]["grad_norm"] == pytest.approx(results[0]["grad_norm"], rel=1e-3)
    assert results[1]["loss"] == pytest.approx(results[0]["loss"], abs=1e-5)


def test_an_entropy_bonus_raises_the_entropy(tmp_path: Path) -> None:
    """With a bonus that outweighs the rewards the policy gets more random than without."""
    entropies = []
    for weight in (0.0, 5.0):
        trainer, record = make(tmp_path, max_steps=6, batch_size=4, entropy_coef=weight)
        trainer.train()
        entropies.append(record.lines[-1]["entropy"])
    assert entropies[1] > entropies[0] + 0.05


def test_advantages_of_single_tokens_reach_the_loss(tmp_path: Path) -> None:
    """Credit that repeats the episode's advantage changes nothing; credit of zero on half of the tokens does."""

    def spread(episodes: list[Episode], advantages: torch.Tensor) -> torch.Tensor:
        return advantages[:, None].repeat(1, max(len(e.mask) for e in episodes))

    def half(episodes: list[Episode], advantages: torch.Tensor) -> torch.Tensor:
        by_token = spread(episodes, advantages)
        return by_token * (torch.arange(by_token.shape[1]) % 2)

    lines = []
    for credit in (None, spread, half):
        trainer, record = make(tmp_path, max_steps=1, batch_size=4)
        trainer.credit = credit
        trainer.train()
        lines.append(record.lines[0])
    plain, same, other = lines
    assert same["loss"] == plain["loss"]
    assert same["grad_norm"] == plain["grad_norm"]
    assert other["grad_norm"] != pytest.approx(plain["grad_norm"], rel=1e-2)
    assert other["trained_tokens"] == plain["trained_tokens"]


def test_truncated_episodes_leave_the_loss_but_stay_in_the_mean(tmp_path: Path) -> None:
    """Every second episode is called truncated: masked, it is not trained on, but its reward counts."""
    lines = []
    for masked in (False, True):
        trainer, record = make(tmp_path, max_steps=1, batch_size=8, mask_truncated=masked, difficulty="simple")
        play, learn, kept = trainer.engine.run, trainer._compute_loss, []

        def run(requests: Any, temperature: float, play: Any = play) -> Any:
            episodes = play(requests, temperature)
            for episode in episodes[::2]:
                episode.stop_reason = StopReason.MAX_TOKENS
            return episodes

        def compute(model: Any, inputs: Any, learn: Any = learn, kept: list[int] = kept) -> Any:
            kept.append(len(inputs["advantages"]))
            return learn(model, inputs)

        trainer.engine.run, trainer._compute_loss = run, compute  # type: ignore[method-assign]
        trainer.train()
        live = kept_rows(torch.tensor([e.reward for e in record.episodes[0]]), torch.ones(32, dtype=torch.bool), 4)
        assert kept == [int((live[1::2] if masked else live).sum())]
        lines.append(record.lines[0])
    assert lines[1]["trained_tokens"] < lines[0]["trained_tokens"]
    assert lines[1]["reward_mean"] == lines[0]["reward_mean"]


def test_sampling_and_training_agree_on_every_trained_token(tmp_path: Path) -> None:
    """The recorded log-probabilities are those of the training pass, in one part and in several."""
    for budget in (10_000_000, 400):
        trainer, record = make(tmp_path, max_steps=1, batch_size=4, micro_batch_tokens=budget, temperature=0.8)
        trainer.train()
        line = record.lines[0]
        assert line["logp_gap"] < 1e-4
        assert line["ess"] > 0.9999
        assert line["logp_correlation"] > 0.9999
        assert sum(len(trained) for trained, _ in trainer._pairs) == line["trained_tokens"]
