"""What is said about settings that are used as asked. Free of torch."""

from typing import Any

from skill_bank.policy import ResolvedPolicy
from trainer.config import TrainingConfig
from trainer.request import ParsedRequest


def beside_the_config(parsed: ParsedRequest) -> list[str]:
    """What the request says and no field of a single run's configuration holds."""
    warnings = []
    if parsed.rounds is not None:
        warnings.append(
            f'"{parsed.phrase_of("rounds")}": rounds belong to mcp-evo evolve and mean nothing to a single training; '
            f"for passes over the training set write {parsed.rounds} epochs"
        )
    return warnings


def range_warnings(
    config: TrainingConfig, provenance: dict[str, dict[str, Any]], policy: ResolvedPolicy | None
) -> list[str]:
    if policy is None:
        return []
    warnings = []
    for name in TrainingConfig.model_fields:
        value = getattr(config, name)
        if (
            provenance[name]["source"] in ("policy", "default")
            or isinstance(value, bool)
            or not isinstance(value, (int, float))
        ):
            continue
        low, high = policy.get(f"{name}.min"), policy.get(f"{name}.max")
        if (low is not None and value < low) or (high is not None and value > high):
            span = f"{'' if low is None else f'{low:g}'} … {'' if high is None else f'{high:g}'}".strip()
            size = policy.context.get("params")
            model = f" for {policy.context.get('model')}" + (f" ({size:,} parameters)" if size else "")
            warnings.append(
                f"{name} {value:g} lies outside the range known to be safe{model}: {span}. It is used as asked."
            )
    return warnings


def sampling_warnings(config: TrainingConfig) -> list[str]:
    """Sampling that is not the distribution which training raises and lowers."""
    cut = [
        f"{name} {value:g}"
        for name, value, off in (("top_p", config.top_p, 1.0), ("top_k", config.top_k, 0))
        if value != off
    ]
    if not cut:
        return []
    return [
        f"{' and '.join(cut)}: the episodes come from a cut distribution, while the update moves the whole one, so "
        "the trained policy differs from the sampled one. Use temperature alone unless you want that."
    ]
