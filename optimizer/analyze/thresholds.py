"""Thresholds of the diagnosis from the policy of rllm-monitor, where the two mean the same.

The monitor's other thresholds are about a run in progress (windows, repeats); the diagnosis looks back at a whole run.
"""

from skill_bank.policy import ResolvedPolicy
from trainer.runs.findings import Thresholds

SAME = {
    "min_steps": "warmup.steps",
    "environment_errors": "env_errors.warn",
    "finish": "never_submits.finish",
    "unique": "no_diversity.unique_share",
    "easy_reward": "zero_variance.easy_reward",
    "hard_reward": "zero_variance.hard_reward",
    "flat_groups": "zero_variance.warn",
}
"""Threshold of the diagnosis → key of the monitor's policy."""


def thresholds_from(policy: ResolvedPolicy) -> Thresholds:
    """The diagnosis's thresholds under the monitor's policy; what the policy does not set keeps its default."""
    return Thresholds.from_policy({name: policy.get(key) for name, key in SAME.items()})
