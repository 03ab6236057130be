"""Losses, gradients or rewards that are no numbers."""

from trainer.runs.detectors.types import Detector, Evidence, Occasion, Severity, Sighting, View

FAILURE = "nonfinite"
"""Class of a failure by exceptions of this type."""


def judge(view: View) -> Sighting | None:
    history, repeat = view.history, int(view.limits("nonfinite")["repeat"])
    failure = view.process.failure
    if failure is not None and failure.kind == FAILURE:
        step = history.last_step
        return Sighting(
            Severity.CRITICAL,
            f"The run ended on updates that were not finite, after step {step}: {failure.message}",
            (Evidence(step, "failure", None),),
        )
    here = [name for step, name in history.not_numbers if step == history.last_step]
    if here:
        return Sighting(
            Severity.CRITICAL,
            f"{', '.join(here)} is no number at step {history.last_step}.",
            tuple(Evidence(history.last_step, name, None) for name in here),
        )
    if not history.bad_updates:
        return None
    last = history.bad_updates[-1]
    if last.step < history.last_step:
        return None
    return Sighting(
        Severity.CRITICAL if last.in_a_row >= repeat else Severity.WARN,
        f"The gradient of step {last.step} was not finite, {last.in_a_row} in a row; its update was skipped.",
        (Evidence(last.step, "bad_updates_in_a_row", last.in_a_row, repeat),),
    )


DETECTOR = Detector(
    id="nonfinite",
    number=1,
    severity=Severity.CRITICAL,
    rule="a value that is NaN or infinite; critical in a metric, or in `repeat` updates in a row",
    cause="learning rate too high, half precision, or a reward that is no number",
    advice="Halve the learning rate and start again from the last good model; train in float32 or bfloat16.",
    source="catalogue 1",
    judge=judge,
    occasions=frozenset({Occasion.STEP, Occasion.UPDATE, Occasion.PROCESS}),
    warmup_steps=0,
)
