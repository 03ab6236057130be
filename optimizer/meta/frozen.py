"""The optimiser's policy as a round keeps it: a round goes on with the values it began with, whatever is promoted
meanwhile. Otherwise a meta patch that is approved while a round waits would change how that round is judged."""

from typing import Any

from optimizer.home import Home
from optimizer.promote import version_label
from optimizer.round_types import Round
from skill_bank.policy import ResolvedPolicy, nest

OPTIMIZE_SKILL = "traj-optimize"
"""The skill whose policy bounds a round."""


def policy_to_keep(home: Home) -> dict[str, Any]:
    """Fields of a round that begins now."""
    return {
        "optimizer_policy": dict(home.policy_of(OPTIMIZE_SKILL).flat),
        "optimizer_version": version_label(home, OPTIMIZE_SKILL),
    }


def policy_kept(home: Home, current: Round) -> ResolvedPolicy:
    """The policy the round began with; the live one for a round that was written without it."""
    if current.optimizer_policy is None:
        return home.policy_of(OPTIMIZE_SKILL)
    flat = dict(current.optimizer_policy)
    return ResolvedPolicy(OPTIMIZE_SKILL, {}, flat, {}, nest(flat))
