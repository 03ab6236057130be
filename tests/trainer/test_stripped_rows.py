"""Rows trained without the lessons they were sampled with: loss, gradient and statistics against numbers by hand."""

from pathlib import Path
from typing import Any

import pytest
import torch
from test_grpo import make, weights

from trainer import grpo
from trainer.algorithms.advantages import cohort_advantages, cohorts, group_advantages, kept_rows
from trainer.algorithms.offpolicy import ClipRange, LossPart, off_policy_metrics, row_bounds

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:You are using 'rollout_func'")

BEHAVIOUR = {"preset": "ei", "experience_old_logps": "behaviour"}


def batch(ratios: list[list[float]], advantages: list[float], stripped: list[bool]) -> tuple[dict[str, Any], Any]:
    """A batch whose ratio to the sampling policy is as given, and the log-probabilities that make it so."""
    ratio = torch.tensor(ratios)
    logps = torch.full_like(ratio, -2.0).requires_grad_()
    rows, width = ratio.shape
    ones = torch.ones(rows, width, dtype=torch.long)
    return {
        "prompt_ids": torch.full((rows, 3), 20),
        "prompt_mask": torch.ones(rows, 3, dtype=torch.long),
        "completion_ids": torch.full((rows, width), 21),
        "completion_mask": ones,
        "tool_mask": ones.clone(),
        "advantages": torch.tensor(advantages),
        "sampling_per_token_logps": logps.detach() - ratio.log(),
        "stripped": torch.tensor(stripped),
        "num_items_in_batch": torch.tensor(float(rows * width)),
    }, logps


def loss_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: dict[str, Any], logps: torch.Tensor, **more: Any
) -> tuple[float, torch.Tensor, Any]:
    trainer, _ = make(tmp_path, **({"experience": BEHAVIOUR} | more))
    monkeypatch.setattr(grpo, "packed_logps", lambda *_, **__: (logps, torch.zeros_like(logps).detach()))
    trainer._shared_prefix = True
    trainer.pass_tokens = 10**9
    trainer.current_gradient_accumulation_steps = 1
    before = trainer.epsilon_low, trainer.epsilon_high, trainer.args.delta
    loss = trainer._compute_loss(trainer.model, inputs)
    assert (trainer.epsilon_low, trainer.epsilon_high, trainer.args.delta) == before
    (gradient,) = torch.autograd.grad(loss, logps)
    return float(loss.detach()), gradient, trainer


def test_the_loss_of_stripped_rows_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """dapo: the sum over tokens / 6. Range 0.2 … 0.6, dual clip 3; unstripped rows have ratio 1 whatever was sampled.

    stripped, A = 1:  r 1.5 → -1.5 (kept: below 1.6); r 2 → -1.6, no gradient
    stripped, A = -1: r 4 → 3, no gradient; r 0.5 → 0.8, no gradient
    unstripped: A = 1 → -1; A = -1 → 1.      Sum: -1.5 - 1.6 + 3 + 0.8 - 1 + 1 = 0.7
    """
    inputs, logps = batch(
        [[1.5], [2.0], [4.0], [0.5], [1.7], [0.4]], [1, 1, -1, -1, 1, -1], [True, True, True, True, False, False]
    )
    loss, gradient, trainer = loss_of(tmp_path, monkeypatch, inputs, logps)
    assert loss == pytest.approx(0.7 / 6, rel=1e-5)
    assert (gradient[:, 0] * 6).tolist() == pytest.approx([-1.5, 0, 0, 0, -1, 1], abs=1e-5)
    found = trainer.stripped.metrics()
    # held back: r 2 (high), r 4 (dual), r 0.5 (low) of four; the others' ratio is 1
    assert found["clip_off"] == pytest.approx(0.75)
    assert found["clip_on"] == 0
    assert found["ratio_used"] == found["ratio_behaviour"] == pytest.approx((1.5 + 2 + 4 + 0.5) / 4)
    assert found["ess_stripped"] == pytest.approx(8**2 / (4 * (2.25 + 4 + 16 + 0.25)), rel=1e-5)


def test_recomputed_ratios_are_one_and_the_other_statistic_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, logps = batch([[1.5, 1.0], [4.0, 1.0]], [1.0, -1.0], [True, False])
    loss, gradient, trainer = loss_of(tmp_path, monkeypatch, inputs, logps, experience="ei")
    assert loss == pytest.approx(0.0, abs=1e-6)
    assert (gradient * 4).tolist() == [[-1, -1], [1, 1]]
    found = trainer.stripped.metrics()
    assert found["ratio_used"] == 1
    assert found["ratio_behaviour"] == pytest.approx(1.25)
    # what the two probabilities disagree on is no fault of the engine: only the unstripped row is compared
    assert [len(one) for one, _ in trainer._pairs] == [2]


def plain_loss(inputs: dict[str, Any], logps: torch.Tensor, experience: dict[str, Any]) -> torch.Tensor:
    """AgentEvolver's formula, token by token."""
    total = torch.zeros(())
    for row, stripped in enumerate(inputs["stripped"].tolist()):
        advantage = float(inputs["advantages"][row])
        for token in range(logps.shape[1]):
            new = logps[row, token]
            old = inputs["sampling_per_token_logps"][row, token] if stripped else new.detach()
            low, high = (experience["off_clip_low"], experience["off_clip_high"]) if stripped else (0.2, 0.2)
            ratio = (new - old).exp()
            one = torch.max(-advantage * ratio, -advantage * ratio.clamp(1 - low, 1 + high))
            if stripped and advantage < 0:
                one = torch.min(torch.tensor(-advantage * experience["off_dual_clip"]), one)
            total = total + one
    return total / logps.numel()


def test_the_loss_equals_a_plain_reimplementation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    rows, width = 12, 7
    ratio = (torch.randn(rows, width) * 0.8).exp().tolist()
    inputs, logps = batch(ratio, torch.randn(rows).tolist(), [i % 3 > 0 for i in range(rows)])
    experience = {"off_clip_low": 0.3, "off_clip_high": 0.9, "off_dual_clip": 2.5}
    wanted = plain_loss(inputs, logps, experience)
    (wanted_gradient,) = torch.autograd.grad(wanted, logps)
    loss, gradient, _ = loss_of(tmp_path, monkeypatch, inputs, logps, experience=BEHAVIOUR | experience)
    assert loss == pytest.approx(float(wanted.detach()), abs=1e-6)
    assert (gradient - wanted_gradient).abs().max() < 1e-6


def test_bounds_are_those_of_the_row() -> None:
    found = row_bounds(torch.tensor([True, False]), ClipRange(0.2, 0.25), ClipRange(0.3, 0.6, 3.0))
    assert found.low.flatten().tolist() == pytest.approx([0.3, 0.2])
    assert found.high.flatten().tolist() == pytest.approx([0.6, 0.25])
    assert found.delta.flatten().tolist() == [3.0, float("inf")]


def test_without_stripped_tokens_only_the_other_share_is_told() -> None:
    one = torch.zeros(2, 3)
    part = LossPart(one, one, one, torch.ones(2), torch.tensor([False, False]), one == 0)
    assert off_policy_metrics([part], ClipRange(0.2, 0.2), ClipRange(0.2, 0.6)) == {"clip_on": 0.0}
    assert off_policy_metrics([], ClipRange(0.2, 0.2), ClipRange(0.2, 0.6)) == {}


def test_guided_and_unguided_attempts_have_baselines_of_their_own() -> None:
    """Group 1: guided 1, 0 (mean 0.5), unguided 0, 0 (flat). Group 2: one guided attempt: one baseline, mean 0.25."""
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    guided = torch.tensor([True, True, False, False, True, False, False, False])
    valid = torch.ones(8, dtype=torch.bool)
    assert cohorts(valid, guided, 4).tolist() == [1, 1, 0, 0, 2, 2, 2, 2]
    advantages, live = cohort_advantages(rewards, valid, guided, 4, "none")
    assert advantages.tolist() == [0.5, -0.5, 0, 0, 0.75, -0.25, -0.25, -0.25]
    assert live.tolist() == [True, True, False, False, True, True, True, True]
    scaled, _ = cohort_advantages(rewards, valid, guided, 4)
    assert scaled[0].item() == pytest.approx(0.5 / (0.5**0.5 + 1e-4))
    # a broken attempt leaves one guided member: one baseline again
    valid[1] = False
    assert cohorts(valid, guided, 4).tolist()[:4] == [0, 0, 0, 0]


def test_without_guided_attempts_advantages_are_the_ordinary_ones() -> None:
    torch.manual_seed(0)
    rewards, valid = torch.rand(32), torch.rand(32) > 0.1
    for scale in ("group", "batch", "none"):
        advantages, live = cohort_advantages(rewards, valid, torch.zeros(32, dtype=torch.bool), 4, scale)
        assert torch.equal(advantages, group_advantages(rewards, valid, 4, scale))
        assert torch.equal(live, kept_rows(rewards, valid, 4))


def test_ratio_zero_and_keep_is_ordinary_training_bit_for_bit(tmp_path: Path) -> None:
    from trainer.experience.run_pool import RunPool
    from trainer.experience.training import ExperienceRun

    nothing = {
        "train_rollout_mode": "mixed",
        "rollout_ratio": 0.0,
        "train_sample_mode": "allkeep",
        "enable_context_generator": True,
        "init_exp_before_training": True,
    }
    results = []
    for experience in (None, nothing):
        trainer, record = make(tmp_path, max_steps=1, experience=experience)
        if experience is not None:
            config = trainer.settings
            assert config.experience is not None
            pool = RunPool(config.experience, tmp_path / "run", config.env)
            trainer.experience = ExperienceRun(config, trainer.tasks, pool, "run", None)
        trainer.train()
        lines = [{k: v for k, v in line.items() if k not in ("time_s", "seconds")} for line in record.lines]
        results.append((lines, weights(trainer)))
    (plain, a), (mixed, b) = results
    assert torch.equal(a, b)
    added = {"guided", "guided_stripped", "reward_unguided", "experience_failed"}
    assert [{k: v for k, v in line.items() if k not in added} for line in mixed] == plain
    assert all(line["guided"] == 0 for line in mixed)
