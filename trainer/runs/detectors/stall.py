"""A process that lives and does not get on."""

from trainer.runs.detectors.throughput_drop import step_seconds
from trainer.runs.detectors.types import Detector, Evidence, Occasion, Severity, Sighting, Skipped, View
from trainer.runs.statistics import median

RECENT = 20
"""Steps of the median duration."""


def judge(view: View) -> Sighting | Skipped | None:
    """The heartbeat comes with every turn of a rollout, so that a slow step is not taken for a stall."""
    limits, history, age = view.limits("stall"), view.history, view.process.heartbeat_age_s
    if not view.process.active:
        return None
    if age is None:
        return Skipped("there is no heartbeat yet")
    durations = step_seconds(history, RECENT)
    bound = max(limits["seconds"], limits["factor"] * median(durations) if durations else 0.0)
    if age <= bound:
        return None
    say = f"No heartbeat for {age:.0f} s, more than {bound:.0f} s, since step {history.last_step}."
    return Sighting(Severity.CRITICAL, say, (Evidence(history.last_step, "heartbeat_age_s", age, bound),))


DETECTOR = Detector(
    id="stall",
    number=24,
    severity=Severity.CRITICAL,
    rule="no heartbeat for the larger of `seconds` and `factor` times the median step",
    cause="a tool that does not return, a deadlock, or a machine that swaps",
    advice="Look at the tool; stop the run (it is killed when it does not answer).",
    source="catalogue 24",
    judge=judge,
    occasions=frozenset({Occasion.PROCESS}),
    warmup_steps=0,
)
