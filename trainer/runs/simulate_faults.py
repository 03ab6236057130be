"""One scripted failure for each detector: a healthy run that is spoiled from a random step on, by a given magnitude.

Magnitude 0 is harmless and 1 is blatant; what it means for a script is its `meaning`. Recall is a curve over it.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from trainer.runs.detectors.types import ProcessFacts
from trainer.runs.simulate import Latent, Row, Scripted, healthy
from trainer.runs.types import Failure

STEPS = 120
"""Length of a scripted failure."""

Make = Callable[[int, int, float], Scripted]
"""(seed, onset, magnitude) → run."""


@dataclass(frozen=True)
class Fault:
    """A script."""

    detector: str
    meaning: str
    """What magnitude 0 and 1 are."""
    make: Make
    onsets: tuple[int, int] = (20, 70)
    """First and last step at which it may begin."""
    kind: str | None = None
    """Kind of alert that counts; None: any of the detector."""

    def run(self, seed: int, magnitude: float) -> Scripted:
        """The script with its onset drawn from the seed."""
        onset = random.Random(f"{self.detector}|{self.kind}|{seed}").randint(*self.onsets)
        scripted = self.make(seed, onset, magnitude)
        scripted.onset = onset
        return scripted


def _state(change: Callable[[Latent, int, float], None], success: tuple[float, float] | None = None) -> Make:
    """A change of the latent state by (state, steps since the onset, magnitude)."""

    def make(seed: int, onset: int, magnitude: float) -> Scripted:
        def hook(state: Latent, step: int) -> None:
            if step >= onset:
                change(state, step - onset, magnitude)

        return healthy(seed, STEPS, latent=hook, success=success)

    return make


def _line(change: Callable[[Row, int, float, random.Random], None]) -> Make:
    """A change of the metrics by (line, steps since the onset, magnitude, random numbers)."""

    def make(seed: int, onset: int, magnitude: float) -> Scripted:
        rng = random.Random(f"fault|{seed}")

        def hook(row: Row, step: int) -> None:
            if step >= onset:
                change(row, step - onset, magnitude, rng)

        return healthy(seed, STEPS, row=hook)

    return make


def _always(change: Callable[[Row, int, float, random.Random], None]) -> Make:
    """A change of the metrics from the first step on by (line, steps since the onset or negative, …)."""

    def make(seed: int, onset: int, magnitude: float) -> Scripted:
        rng = random.Random(f"fault|{seed}")
        return healthy(seed, STEPS, row=lambda row, step: change(row, step - onset, magnitude, rng))

    return make


def _towards(value: float, goal: float, share: float) -> float:
    return value + (goal - value) * share


# ---- numbers


def _nonfinite(row: Row, age: int, magnitude: float, rng: random.Random) -> None:
    if rng.random() < magnitude:
        row["loss"] = float("nan")


def _loss_explosion(row: Row, age: int, magnitude: float, rng: random.Random) -> None:
    row["loss"] = rng.choice((-1, 1)) * 20 * magnitude * rng.uniform(0.7, 1.3)


def _grad_spike(row: Row, age: int, magnitude: float, rng: random.Random) -> None:
    if rng.random() < 0.4:
        row["grad_norm"] = max(row["grad_norm"], 0.5) * 10 ** (2.5 * magnitude)


def _grad_vanish(row: Row, age: int, magnitude: float, rng: random.Random) -> None:
    row["grad_norm"] *= 10 ** (-4 * magnitude)


# ---- reward


def _reward_collapse(state: Latent, age: int, magnitude: float) -> None:
    state.success *= max(1 - magnitude, 1 - magnitude * age / 8)


def _never_earns(state: Latent, age: int, magnitude: float) -> None:
    state.success = 0.4 * (1 - magnitude) ** 3


def _flat(state: Latent, age: int, magnitude: float) -> None:
    state.success, state.copies = min(state.success, 0.6), magnitude


def _too_hard(state: Latent, age: int, magnitude: float) -> None:
    state.success = 0.3 * (1 - magnitude) ** 2


def _too_easy(state: Latent, age: int, magnitude: float) -> None:
    state.success = 0.7 + 0.3 * magnitude


def _plateau(seed: int, onset: int, magnitude: float) -> Scripted:
    def hook(state: Latent, step: int) -> None:
        moving = 0.3 + 0.4 * min(step, onset) / onset
        state.success = moving if step <= onset else moving + 0.25 * (1 - magnitude) * (step - onset) / (STEPS - onset)

    return healthy(seed, STEPS, latent=hook)


def _lr_flat(seed: int, onset: int, magnitude: float) -> Scripted:
    def hook(state: Latent, step: int) -> None:
        state.success, state.entropy = 0.45 + 0.4 * (1 - magnitude) * step / STEPS, 0.2
        state.heterogeneity = 0.6

    return healthy(seed, STEPS, latent=hook)


def _hacking(state: Latent, age: int, magnitude: float) -> None:
    state.validation = state.success * max(1 - magnitude, 1 - magnitude * age / 30)
    state.success = min(0.98, state.success + 0.3)


def _eval_regression(state: Latent, age: int, magnitude: float) -> None:
    state.validation = state.success * max(1 - magnitude, 1 - magnitude * age / 30)


def _takeover(row: Row, age: int, magnitude: float, rng: random.Random) -> None:
    row["reward_parts"] = {
        "success": row["reward_mean"],
        "length": rng.gauss(0, 0.02 if age < 0 else 0.02 + 0.8 * magnitude),
    }


# ---- entropy and signal


def _entropy_collapse(state: Latent, age: int, magnitude: float) -> None:
    state.success = min(state.success, 0.5)
    state.entropy = 0.2 * 10 ** (-2.5 * magnitude * min(1.0, age / 10))


def _entropy_explosion(state: Latent, age: int, magnitude: float) -> None:
    state.entropy *= 1 + 15 * magnitude * min(1.0, age / 15)
    state.success *= max(1 - magnitude, 1 - magnitude * age / 15)


def _no_diversity(state: Latent, age: int, magnitude: float) -> None:
    state.success, state.copies = min(state.success, 0.6), magnitude


def _echo(row: Row, age: int, magnitude: float, rng: random.Random) -> None:
    row["reward_mean"] = min(row["reward_mean"], 0.7)
    row["reward_std_group"] *= 1 - magnitude
    if age % 8 == 3:
        row["grad_norm"] = max(row["grad_norm"], 0.5) * 30


def _gibberish(row: Row, age: int, magnitude: float, rng: random.Random) -> None:
    row["repetition_rate"] = min(1.0, magnitude * rng.uniform(0.7, 1.3))


# ---- update


def _kl(row: Row, age: int, magnitude: float, rng: random.Random) -> None:
    row["kl"] = 0.02 * rng.uniform(0.5, 1.5) if age < 0 else 0.02 + 3 * magnitude * min(1.0, age / 10)


def _clip(row: Row, age: int, magnitude: float, rng: random.Random) -> None:
    high = 0.01 if age < 0 else 0.5 * magnitude
    row["clip_low"], row["clip_high"] = high * rng.uniform(0.7, 1.3) / 2, high * rng.uniform(0.7, 1.3) / 2


def _drift(row: Row, age: int, magnitude: float, rng: random.Random) -> None:
    row["logp_gap"] += magnitude * rng.uniform(0.7, 1.3)


def _mask(row: Row, age: int, magnitude: float, rng: random.Random) -> None:
    live = 1 - row["frac_zero_variance"]
    row["trained_tokens"] += round(live * magnitude * row["tokens_environment"])


# ---- episodes


def _truncation(state: Latent, age: int, magnitude: float) -> None:
    state.cut = magnitude


def _length(state: Latent, age: int, magnitude: float) -> None:
    state.length *= 1 + 2 * magnitude * min(1.0, age / 25)
    state.success = min(state.success, 0.6)


def _format(state: Latent, age: int, magnitude: float) -> None:
    state.parse *= max(1 - magnitude, 1 - magnitude * age / 8)


def _abandoned(state: Latent, age: int, magnitude: float) -> None:
    state.calls *= max(1 - magnitude, 1 - magnitude * age / 8)


def _submits(state: Latent, age: int, magnitude: float) -> None:
    state.submits = 1 - magnitude
    state.success = min(state.success, state.submits)


def _failing(state: Latent, age: int, magnitude: float) -> None:
    state.failed = magnitude


def _experience(row: Row, age: int, magnitude: float, rng: random.Random) -> None:
    uplift = 0.1 if age < 0 else 0.1 - 0.4 * magnitude
    row["reward_unguided"] = row["reward_mean"]
    row["reward_guided"] = row["reward_mean"] + uplift + rng.gauss(0, 0.1)


# ---- process


def _throughput(state: Latent, age: int, magnitude: float) -> None:
    state.seconds *= 1 + 19 * magnitude


def _ended(kind: str, exit_code: int | None) -> Make:
    def make(seed: int, onset: int, magnitude: float) -> Scripted:
        run = healthy(seed, STEPS)
        run.rows = run.rows[:onset]
        run.events = [event for event in run.events if event["step"] <= onset]
        failure = Failure(kind=kind, message="it went down", exit_code=exit_code) if magnitude > 0 else None
        run.process = ProcessFacts(active=failure is None, heartbeat_age_s=1.0, failure=failure)
        return run

    return make


def _stalled(seed: int, onset: int, magnitude: float) -> Scripted:
    run = healthy(seed, STEPS)
    run.rows = run.rows[:onset]
    run.events = [event for event in run.events if event["step"] <= onset]
    run.process = ProcessFacts(active=True, heartbeat_age_s=600 * magnitude)
    return run


FAULTS: tuple[Fault, ...] = (
    Fault("nonfinite", "share of steps with a loss that is NaN", _line(_nonfinite)),
    Fault("loss_explosion", "|loss| 0 to 20", _line(_loss_explosion)),
    Fault("grad_spike", "four steps in ten times 1 to 316", _line(_grad_spike)),
    Fault("grad_vanish", "gradient norm times 1 to 0.0001", _line(_grad_vanish), onsets=(25, 50)),
    Fault("reward_collapse", "success loses 0 to 100 % in 8 steps", _state(_reward_collapse), onsets=(25, 70)),
    Fault("reward_stuck_zero", "success from the start 0.4 to 0", _state(_never_earns), onsets=(1, 1)),
    Fault("reward_plateau", "success goes on rising by 0.25, to 0", _plateau, onsets=(25, 45)),
    Fault("zero_variance", "success from the start 0.3 to 0", _state(_too_hard), onsets=(1, 1), kind="too_hard"),
    Fault("zero_variance", "0 to 100 % of a group copy its first episode", _state(_flat), kind="flat"),
    Fault("too_easy", "success from the start 0.7 to 1", _state(_too_easy), onsets=(1, 1)),
    Fault("entropy_collapse", "entropy times 1 to 0.003 in 10 steps, reward stays", _state(_entropy_collapse)),
    Fault("entropy_explosion", "entropy times 1 to 16 and success lost in 15 steps", _state(_entropy_explosion)),
    Fault("kl_runaway", "KL to the start model 0.02 to 3 in 10 steps", _always(_kl)),
    Fault("clip_saturation", "share of clipped tokens 0 to 0.5", _always(_clip)),
    Fault("truncation", "share of cut episodes 0 to 1", _state(_truncation)),
    Fault("length_runaway", "length times 1 to 3 in 25 steps, reward stays", _state(_length), onsets=(30, 60)),
    Fault("format_degeneration", "readable calls lose 0 to 100 % in 8 steps", _state(_format)),
    Fault("tools_abandoned", "calls lose 0 to 100 % in 8 steps", _state(_abandoned)),
    Fault("never_submits", "share of answers 1 to 0", _state(_submits)),
    Fault("gibberish", "share of completions that repeat themselves 0 to 1", _line(_gibberish)),
    Fault("echo_trap", "spread within groups loses 0 to 100 %, gradients spike", _line(_echo)),
    Fault("reward_hacking", "reward +0.3; validation loses 0 to 100 % in 30 steps", _state(_hacking)),
    Fault("reward_component_takeover", "deviation of an auxiliary reward 0.02 to 0.82", _always(_takeover)),
    Fault("eval_regression", "validation loses 0 to 100 % in 30 steps", _state(_eval_regression)),
    Fault("stall", "no heartbeat for 0 to 600 s", _stalled),
    Fault("crash", "any: killed by SIGKILL", _ended("killed", -9)),
    Fault("oom", "any: out of memory", _ended("oom", 1)),
    Fault("throughput_drop", "steps take 1 to 20 times as long", _state(_throughput), onsets=(30, 70)),
    Fault("env_errors", "share of failed episodes 0 to 1", _state(_failing)),
    Fault("mask_integrity", "share of the environment's tokens trained on", _line(_mask), kind="foreign_text"),
    Fault("off_policy_drift", "mean difference of log-probabilities 0 to 1", _line(_drift)),
    Fault("experience_harm", "uplift of experience +0.1 to -0.3", _always(_experience)),
    Fault("lr_flat", "gain over the run 0.4 to 0", _lr_flat, onsets=(1, 1)),
    Fault("no_diversity", "0 to 100 % of a group copy its first episode", _state(_no_diversity)),
)
"""At least one for each detector."""
