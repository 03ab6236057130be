"""Whether what is trained on is what the model wrote."""

from trainer.runs.detectors.history import History
from trainer.runs.detectors.judging import present
from trainer.runs.detectors.types import Detector, Severity, Sighting, View

MIN_CALLS = 0.05
"""Share of episodes with a tool call from which there must be environment text in the completions."""

MIN_ENVIRONMENT = 0.1
"""Environment tokens per model token below which a missing mask could not be told from chance."""


def judge(view: View) -> Sighting | None:
    history = view.history
    trained, model = history.now("trained_tokens"), history.now("tokens_model")
    if trained is None or model is None:
        return None
    if trained > model:
        say = f"{trained:.0f} tokens were trained on, the model wrote only {model:.0f}: the mask lets other text in."
        return Sighting(Severity.CRITICAL, say, (present(view, "trained_tokens", model),), "foreign_text")
    flat = history.now("frac_zero_variance")
    if trained == 0 and flat is not None and flat < 1 and history.now("update_skipped") is None:
        say = "No token was trained on although groups carried signal: the mask hides everything."
        return Sighting(Severity.CRITICAL, say, (present(view, "trained_tokens", 0.0),), "empty")
    return _share(view, model) or _excess(view)


def _share(view: View, model: float) -> Sighting | None:
    limits, history = view.limits("mask_integrity"), view.history
    foreign, calls, turns = history.now("tokens_environment"), history.now("tool_call_rate"), history.now("turns_mean")
    if foreign is None or calls is None or turns is None or calls < MIN_CALLS or turns <= 1 + MIN_CALLS:
        return None
    share = model / (model + foreign) if model + foreign else 0.0
    if limits["min_share"] <= share <= limits["max_share"]:
        return None
    say = f"{share:.1%} of the tokens count as the model's although {calls:.0%} of the episodes hold tool answers."
    bound = limits["max_share" if share > limits["max_share"] else "min_share"]
    return Sighting(Severity.CRITICAL, say, (present(view, "tokens_model_share", bound, share),), "share")


def expected_tokens(history: History, window: int, all_groups: bool) -> tuple[float, float, float] | None:
    """Sums over the last `window` steps with signal: trained, expected by the share of groups that are trained on, and
    the environment's tokens in the same share."""
    trained = expected = foreign = 0.0
    steps = 0
    for point in reversed(history.points("trained_tokens")):
        flat, model = history.at("frac_zero_variance", point.step), history.at("tokens_model", point.step)
        environment = history.at("tokens_environment", point.step)
        if flat is None or flat >= 1 or model is None or environment is None:
            continue
        live = 1.0 if all_groups else 1 - flat
        trained, expected, foreign = trained + point.value, expected + live * model, foreign + live * environment
        steps += 1
        if steps == window:
            return trained, expected, foreign
    return None


def _excess(view: View) -> Sighting | None:
    limits = view.limits("mask_integrity")
    sums = expected_tokens(view.history, int(limits["window"]), view.plan.trains_flat_groups)
    if sums is None or sums[1] <= 0 or sums[2] < MIN_ENVIRONMENT * sums[1]:
        return None
    trained, expected, foreign = sums
    bound = expected + limits["excess"] * foreign
    if trained <= bound:
        return None
    say = (
        f"{trained:.0f} tokens were trained on in {int(limits['window'])} steps; groups with signal hold about "
        f"{expected:.0f} of the model and {foreign:.0f} of the environment: the mask lets those in."
    )
    return Sighting(Severity.CRITICAL, say, (present(view, "trained_tokens", bound, trained),), "foreign_text")


DETECTOR = Detector(
    id="mask_integrity",
    number=29,
    severity=Severity.CRITICAL,
    rule="more tokens trained than the model wrote, none although groups had signal, a share of model tokens outside "
    "`min_share` to `max_share` where tools answered; or `excess` of the environment's tokens over `window` steps",
    cause="a loss mask that is wrong",
    advice="Stop: what is learned is not the agent's own behaviour. Check the mask of one episode.",
    source="catalogue 29",
    judge=judge,
    needs=("trained_tokens", "tokens_model"),
    warmup_steps=0,
)
