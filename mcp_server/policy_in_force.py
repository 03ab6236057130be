"""The policy that runs are started and judged by: that of the workspace's live skill bank."""

from dataclasses import dataclass

from optimizer.analyze.thresholds import thresholds_from
from skill_bank.bank import SkillBank
from skill_bank.policy import CompiledPolicy
from trainer.runs.findings import Thresholds
from trainer.runs.workspace import Workspace

CONFIG_SKILL = "rllm-config"
"""Skill whose policy gives defaults and safe ranges."""

MONITOR_SKILL = "rllm-monitor"
"""Skill whose policy gives thresholds."""


@dataclass(frozen=True)
class PolicyInForce:
    """The policy of the workspace's live bank."""

    config: CompiledPolicy
    versions: dict[str, str]
    """Skill → version of the bank that it comes from."""
    thresholds: Thresholds
    """When the diagnosis speaks."""


def policy_in_force(workspace: Workspace, profile: str | None = None) -> PolicyInForce:
    """Policy of the live bank, which is seeded from the shipped one where it is missing. Raises BankError."""
    bank = SkillBank.seed(workspace.root / "skills")
    versions = {}
    for skill in (CONFIG_SKILL, MONITOR_SKILL):
        record = bank.version(skill)
        if record is not None:
            versions[skill] = f"v{record.number}"
    return PolicyInForce(bank.policy(CONFIG_SKILL, profile), versions, thresholds_from(bank.resolve(MONITOR_SKILL, {})))
