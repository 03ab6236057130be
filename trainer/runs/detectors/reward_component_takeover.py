"""An auxiliary reward that drives what is learned."""

from trainer.runs.detectors.judging import REWARD, present
from trainer.runs.detectors.types import Detector, Evidence, Severity, Sighting, Skipped, View
from trainer.runs.statistics import robust_sigma

PREFIX = "reward_parts."
"""Mean of each reward component of a step."""


def judge(view: View) -> Sighting | Skipped | None:
    limits, history = view.limits("reward_component_takeover"), view.history
    names = history.names(PREFIX)
    if len(names) < 2:
        return Skipped("fewer than two reward components (reward_parts) were measured")
    count = min(len(history.points(name)) for name in names)
    if count < limits["info_points"]:
        return Skipped(f"{count} of {int(limits['info_points'])} steps with reward components")
    tail = max(2, round(limits["tail_share"] * count))
    spread = {name: robust_sigma(history.tail(name, tail)) ** 2 for name in names}
    total = sum(spread.values())
    if total <= 0:
        return None
    cancelled = robust_sigma(history.tail(REWARD, tail))
    if min(spread.values()) > limits["cancel_std"] ** 2 and cancelled < limits["cancel_std"]:
        say = "The reward components vary and cancel each other: their sum does not move."
        return Sighting(Severity.WARN, say, (present(view, REWARD, limits["cancel_std"], cancelled),), "cancelling")
    auxiliary = {name: value for name, value in spread.items() if name != PREFIX + view.plan.main_reward}
    name = max(auxiliary, key=lambda one: auxiliary[one])
    share = auxiliary[name] / total
    if share < limits["warn"]:
        return None
    severity = Severity.CRITICAL if share >= limits["critical"] else Severity.WARN
    bound = limits["critical" if severity is Severity.CRITICAL else "warn"]
    if count < limits["min_points"]:
        severity = Severity.INFO
    say = f"{name.removeprefix(PREFIX)} makes {share:.0%} of the variance of the reward over {tail} steps."
    return Sighting(severity, say, (Evidence(history.last_step, name, share, bound),))


DETECTOR = Detector(
    id="reward_component_takeover",
    number=22,
    severity=Severity.CRITICAL,
    rule="an auxiliary component holds `warn` or `critical` of the robust variance over the last `tail_share` (info "
    "below `min_points` steps); or components vary while their sum does not",
    cause="weights of the reward components",
    advice="Lower the weight of the auxiliary component, or normalise components before they are added.",
    source="catalogue 22",
    judge=judge,
    needs=(REWARD,),
)
