"""Sampling and training that disagree about the same tokens."""

from trainer.runs.detectors.judging import present
from trainer.runs.detectors.types import Detector, Severity, Sighting, Skipped, View


def judge(view: View) -> Sighting | Skipped | None:
    limits, history = view.limits("off_policy_drift"), view.history
    names = [name for name in ("logp_gap", "ess", "logp_correlation") if history.now(name) is not None]
    if not names:
        return Skipped("logp_gap, ess and logp_correlation were not measured")
    window = int(limits["window"])
    means = {name: history.window_mean(name, window) for name in names}
    gap, ess, agreement = means.get("logp_gap"), means.get("ess"), means.get("logp_correlation")
    if gap is not None and gap > limits["warn"]:
        severity = Severity.CRITICAL if gap > limits["critical"] else Severity.WARN
        bound = limits["critical" if severity is Severity.CRITICAL else "warn"]
        say = f"Log-probabilities of sampling and training differ by {gap:.3g} on average over {window} steps."
        return Sighting(severity, say, (present(view, "logp_gap", bound, gap),))
    if ess is not None and ess < limits["ess"]:
        say = f"The effective sample size is {ess:.0%} over {window} steps."
        return Sighting(Severity.WARN, say, (present(view, "ess", limits["ess"], ess),), "ess")
    if agreement is not None and agreement < limits["correlation"]:
        say = f"Probabilities of sampling and training correlate by {agreement:.2f} over {window} steps."
        evidence = (present(view, "logp_correlation", limits["correlation"], agreement),)
        return Sighting(Severity.WARN, say, evidence, "correlation")
    return None


DETECTOR = Detector(
    id="off_policy_drift",
    number=30,
    severity=Severity.CRITICAL,
    rule="mean |log-probability difference| above `warn`, `critical`; effective sample size below `ess`; correlation "
    "below `correlation`; means over `window` steps",
    cause="another precision, template or temperature in sampling than in training",
    advice="Compare temperature and template of both sides; truncate importance weights.",
    source="catalogue 30",
    judge=judge,
)
