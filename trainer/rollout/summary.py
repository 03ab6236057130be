"""Episodes to numbers: a metrics line of a step, or an evaluation. Pure; a missing number is left out, never zero."""

from collections.abc import Sequence
from typing import Any

import torch

from trainer.algorithms import text_checks
from trainer.algorithms.advantages import group_moments
from trainer.rollout.types import Episode, StopReason
from trainer.runs.statistics import wilson
from trainer.runs.types import Eval

SUCCESS = 0.5
"""An episode succeeded when its reward is above this (shipped rewards are 0 or 1)."""


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _rates(episodes: Sequence[Episode]) -> dict[str, float | None]:
    attempted = sum(e.attempted_calls for e in episodes)
    answered = sum(e.tool_calls + e.tool_errors for e in episodes)
    return {
        "tool_call_rate": _mean([float(e.tool_calls > 0) for e in episodes]),
        "parse_ok_rate": 1 - sum(e.parse_errors for e in episodes) / attempted if attempted else None,
        "finish_rate": _mean([float(e.stop_reason is StopReason.FINISHED) for e in episodes]),
        "truncated_rate": _mean([float(e.stop_reason is StopReason.MAX_TOKENS) for e in episodes]),
        "tool_error_rate": sum(e.tool_errors for e in episodes) / answered if answered else None,
        "env_error_rate": _mean(
            [float(e.stop_reason in (StopReason.ENVIRONMENT_ERROR, StopReason.TOOL_TIMEOUT)) for e in episodes]
        ),
        "turns_mean": _mean([float(e.turns) for e in episodes]),
    }


def step_metrics(episodes: Sequence[Episode], group_size: int) -> dict[str, Any]:
    """The part of a metrics line that the episodes of one step decide."""
    valid = [e for e in episodes if e.valid]
    rewards = torch.tensor([e.reward for e in episodes])
    mask = torch.tensor([e.valid for e in episodes])
    mean_N, std_N, count_N = group_moments(rewards, mask, group_size)
    graded = count_N >= 2
    flat = (std_N < 1e-6) & graded
    groups = int(graded.sum())
    tokens = sum(e.model_tokens for e in episodes)
    lengths = [len(e.completion_ids) for e in episodes]
    values: dict[str, Any] = {
        "episodes": len(episodes),
        "reward_mean": _mean([e.reward for e in valid]),
        "reward_std": float(rewards[mask].std()) if len(valid) > 1 else None,
        "reward_max": max((e.reward for e in valid), default=None),
        "frac_zero_variance": float(flat.sum()) / groups if groups else None,
        "frac_groups_all_one": float((flat & (mean_N > SUCCESS)).sum()) / groups if groups else None,
        "frac_groups_all_zero": float((flat & (mean_N <= SUCCESS)).sum()) / groups if groups else None,
        "entropy": sum(e.entropy_sum for e in episodes) / tokens if tokens else None,
        "tokens_prompt": sum(len(e.prompt_ids) for e in episodes),
        "tokens_model": tokens,
        "tokens_environment": sum(lengths) - tokens,
        "completion_mean": _mean([float(n) for n in lengths]),
        "completion_max": max(lengths, default=None),
        "unique_completions": _unique_share(episodes, group_size),
        "reward_std_group": float(std_N[graded].mean()) if groups else None,
        "repetition_rate": text_checks.repetition_rate([e.said_ids for e in episodes]),
        "new_script_rate": text_checks.new_script_rate([(e.heard_text, e.said_text) for e in episodes]),
        **_rates(episodes),
    }
    return {key: value for key, value in values.items() if value is not None}


def _unique_share(episodes: Sequence[Episode], group_size: int) -> float:
    """Mean over groups of the share of different completions: 1 all differ, 1/G all alike."""
    shares = []
    for at in range(0, len(episodes), group_size):
        group = episodes[at : at + group_size]
        shares.append(len({tuple(e.completion_ids) for e in group}) / len(group))
    return sum(shares) / len(shares) if shares else 0.0


def evaluation(episodes: Sequence[Episode], split: str, seconds: float) -> Eval:
    """Success with its Wilson interval, split into format, tool use and correctness. A broken episode is a failure."""
    successes = [e.valid and e.reward > SUCCESS for e in episodes]
    called = [good for e, good in zip(episodes, successes, strict=True) if e.tool_calls > 0]
    rates = _rates(episodes)
    return Eval.model_validate(
        {
            "metric": "success",
            "split": split,
            "n": len(episodes),
            "mean": sum(successes) / len(successes),
            "ci95": wilson(sum(successes), len(successes)),
            "parse_ok_rate": rates["parse_ok_rate"],
            "tool_call_rate": rates["tool_call_rate"],
            "correct_given_valid_call": _mean([float(good) for good in called]),
            "finish_rate": rates["finish_rate"],
            "truncated_rate": rates["truncated_rate"],
            "env_error_rate": rates["env_error_rate"],
            "turns_mean": rates["turns_mean"],
            "reward_mean": _mean([e.reward for e in episodes if e.valid]),
            "tokens_mean": _mean([float(len(e.completion_ids)) for e in episodes]),
            "seconds": round(seconds, 3),
        }
    )
