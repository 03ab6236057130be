"""Training reward that rises while the held-out success does not."""

import math
from collections.abc import Sequence

from trainer.runs.detectors.history import History, Validation
from trainer.runs.detectors.judging import REWARD, errors_between
from trainer.runs.detectors.types import Detector, Evidence, Occasion, Severity, Sighting, Skipped, View
from trainer.runs.statistics import mean, rank_correlation


def paired(history: History, window: int) -> list[tuple[float, Validation]]:
    """(mean training reward of the `window` steps up to a validation, the validation), of those with full windows."""
    found = []
    for validation in history.validations:
        before = [point.value for point in history.points(REWARD) if point.step <= validation.step][-window:]
        if len(before) == window:
            found.append((mean(before), validation))
    return found


def pooled(a: Validation, b: Validation) -> Validation:
    """Two neighbouring validations as one: a single low one is no trend."""
    if a.n is None or b.n is None:
        return Validation(b.step, (a.mean + b.mean) / 2, None)
    return Validation(b.step, (a.mean * a.n + b.mean * b.n) / (a.n + b.n), a.n + b.n)


def standard_error_of(one: Validation) -> float:
    """Standard error of a validation; 0 where the number of problems is not known."""
    return math.sqrt(one.mean * (1 - one.mean) / one.n) if one.n else 0.0


def judge(view: View) -> Sighting | Skipped | None:
    limits, history = view.limits("reward_hacking"), view.history
    pairs = paired(history, int(limits["window"]))
    if len(pairs) < limits["min_evals"]:
        return Skipped(f"{len(pairs)} of {int(limits['min_evals'])} validations with rewards before them")
    (first_reward, first), (reward, _) = pairs[0], pairs[-1]
    last = pooled(pairs[-2][1], pairs[-1][1])
    error = history.noise(REWARD) * math.sqrt(2 / limits["window"])
    rose, moved = reward - first_reward, errors_between(first, last)
    if rose <= limits["errors"] * error:
        return None
    evidence = (
        Evidence(last.step, REWARD, reward, first_reward + limits["errors"] * error),
        Evidence(last.step, "validation", last.mean, first.mean),
    )
    what = f"Training reward rose by {rose:+.2f} since step {first.step} while validation went {first.mean:.2f} → "
    what += f"{last.mean:.2f}"
    if moved <= -limits["errors"]:
        say = f"{what}, {abs(moved):.1f} standard errors down."
        return Sighting(Severity.CRITICAL, say, evidence, "falling")
    # rewards before a validation lag behind it while the policy learns fast: the gap must be there and have grown
    gap = min(rose - (last.mean - first.mean), reward - last.mean)
    doubt = limits["gap_errors"] * math.hypot(error / math.sqrt(2), standard_error_of(last))
    if moved < 1.0 and gap >= max(limits["gap_warn"], doubt):
        severity = Severity.CRITICAL if gap >= limits["gap_critical"] else Severity.WARN
        return Sighting(severity, f"{what}: {gap:.2f} apart.", evidence, "gap")
    return _opposed(pairs, limits["correlation_evals"], limits["correlation"], moved, what, evidence)


def _opposed(
    pairs: Sequence[tuple[float, Validation]],
    evals: float,
    bound: float,
    moved: float,
    what: str,
    evidence: tuple[Evidence, ...],
) -> Sighting | None:
    if len(pairs) < evals or moved >= 0:
        return None
    agreement = rank_correlation([reward for reward, _ in pairs], [one.mean for _, one in pairs])
    if math.isnan(agreement) or agreement > bound:
        return None
    say = f"{what}; over {len(pairs)} validations the two disagree (rank correlation {agreement:.2f})."
    return Sighting(Severity.WARN, say, evidence, "opposed")


DETECTOR = Detector(
    id="reward_hacking",
    number=21,
    severity=Severity.CRITICAL,
    rule="training reward up by more than `errors` standard errors since the first of `min_evals` validations while "
    "validation fell by `errors` (critical), or did not rise and the gap grew to `gap_warn`, `gap_critical` (and "
    "`gap_errors`); or a rank correlation up to `correlation` over `correlation_evals`",
    cause="the reward is gamed, or the training problems are learned by heart",
    advice="Read the best-paid episodes; grade with a second grader; take more problems.",
    source="catalogue 21",
    judge=judge,
    needs=(REWARD,),
    occasions=frozenset({Occasion.VALIDATION}),
)
