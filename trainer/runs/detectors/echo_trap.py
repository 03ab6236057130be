"""Episodes that echo each other: the variance within groups goes, or answers stop depending on the problem."""

from trainer.runs.detectors.grad_spike import spikes
from trainer.runs.detectors.judging import is_solved, present
from trainer.runs.detectors.types import Detector, Evidence, Severity, Sighting, Skipped, View

WINDOW = 5
"""Steps of the mean that is compared with the early level."""


def judge(view: View) -> Sighting | Skipped | None:
    limits, history = view.limits("echo_trap"), view.history
    spread, likeness = history.now("reward_std_group"), history.now("prompt_similarity")
    if spread is None and likeness is None:
        return Skipped("neither reward_std_group nor prompt_similarity was measured")
    if spread is not None and history.now("grad_norm") is not None and not is_solved(view):
        early, now = history.early("reward_std_group", WINDOW), history.window_mean("reward_std_group", WINDOW)
        lost = early is not None and now is not None and now < limits["std_share"] * early
        found = (
            spikes(history.points("grad_norm"), int(limits["grad_steps"]), view.limits("grad_spike")) if lost else []
        )
        if early is not None and now is not None and found:
            say = (
                f"Rewards within groups differ by {now:.3g} ({early:.3g} early) and the gradient spiked to "
                f"{found[-1][0].value:.3g} at step {found[-1][0].step}."
            )
            spread_now = present(view, "reward_std_group", limits["std_share"] * early, now)
            spike = Evidence(found[-1][0].step, "grad_norm", found[-1][0].value, found[-1][1])
            return Sighting(Severity.WARN, say, (spread_now, spike), "echo")
    if likeness is not None:
        early, now = history.early("prompt_similarity", WINDOW), history.window_mean("prompt_similarity", WINDOW)
        if early is not None and now is not None and now >= early + limits["similarity"]:
            say = f"Answers to different problems are alike: similarity {now:.2f}, {early:.2f} early."
            evidence = (present(view, "prompt_similarity", early + limits["similarity"], now),)
            return Sighting(Severity.WARN, say, evidence, "template")
    return None


DETECTOR = Detector(
    id="echo_trap",
    number=20,
    severity=Severity.WARN,
    rule="reward spread within groups below `std_share` of its early value and a gradient spike within `grad_steps`; "
    "or similarity of answers to different problems up by `similarity`",
    cause="the policy answers with a template",
    advice="More varied problems, drop groups of little variance, a KL term.",
    source="catalogue 20 (RAGEN, arXiv 2504.20073; RAGEN-2, arXiv 2604.06268)",
    judge=judge,
)
