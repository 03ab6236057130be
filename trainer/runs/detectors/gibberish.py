"""Text that repeats itself, or changes its script."""

from trainer.runs.detectors.judging import last_points, present
from trainer.runs.detectors.types import Detector, Severity, Sighting, Skipped, View


def judge(view: View) -> Sighting | Skipped | None:
    limits, history = view.limits("gibberish"), view.history
    if history.now("repetition_rate") is None and history.now("new_script_rate") is None:
        return Skipped("neither repetition_rate nor new_script_rate was measured")
    repeat = int(limits["repeat"])
    last = history.full_tail("repetition_rate", repeat)
    if history.now("repetition_rate") is not None and last is not None and min(last) >= limits["repetition"]:
        say = f"{last[-1]:.0%} of the completions repeat one token or phrase, {repeat} steps in a row."
        evidence = last_points(view, "repetition_rate", repeat, limits["repetition"])
        return Sighting(Severity.CRITICAL, say, evidence, "repetition")
    now, points = history.now("new_script_rate"), history.points("new_script_rate")
    if now is not None and now >= points[0].value + limits["script"]:
        say = f"{now:.0%} of the completions hold a script that the start model did not use."
        return Sighting(Severity.WARN, say, (present(view, "new_script_rate", limits["script"]),), "script")
    return None


DETECTOR = Detector(
    id="gibberish",
    number=19,
    severity=Severity.CRITICAL,
    rule="share of completions that repeat themselves from `repetition` for `repeat` steps; share with a new script "
    "`script` above the first step",
    cause="the policy collapsed into one token or left the language",
    advice="Stop and go back to the best checkpoint; halve the learning rate.",
    source="catalogue 19",
    judge=judge,
)
