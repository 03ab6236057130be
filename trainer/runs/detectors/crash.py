"""A run that ended by a failure."""

from trainer.runs.detectors.nonfinite import FAILURE as NONFINITE
from trainer.runs.detectors.types import Detector, Evidence, Occasion, Severity, Sighting, View

OUT_OF_MEMORY = "oom"


def judge(view: View) -> Sighting | None:
    failure = view.process.failure
    if failure is None or failure.kind in (NONFINITE, OUT_OF_MEMORY):
        return None
    step = view.history.last_step
    status = "" if failure.exit_code is None else f", exit status {failure.exit_code}"
    say = f"The run ended after step {step} ({failure.kind}{status}): {failure.message}"
    evidence = Evidence(step, "exit_code", failure.exit_code)
    return Sighting(Severity.CRITICAL, say, (evidence,), failure.kind)


DETECTOR = Detector(
    id="crash",
    number=25,
    severity=Severity.CRITICAL,
    rule="a failure, classified by exception type and exit status",
    cause="as its class says: killed, environment, data, model, disk_full, or the exception's type",
    advice="Read the end of worker.log; mend what it names and start again.",
    source="catalogue 25",
    judge=judge,
    occasions=frozenset({Occasion.PROCESS}),
    warmup_steps=0,
)
