"""What the training commands are told, and what they show of it before a run starts."""

from dataclasses import dataclass
from pathlib import Path

from trainer.config import TrainingConfig
from trainer.runs.wording import counted
from trainer.settings import Resolved

SHOWN_FIELDS = (
    "env",
    "model",
    "difficulty",
    "problems",
    "epochs",
    "max_steps",
    "target_reward",
    "learning_rate",
    "batch_size",
    "num_generations",
    "temperature",
    "max_completion_tokens",
    "seed",
)
"""Fields whose value and origin are shown before a run starts."""


@dataclass(frozen=True)
class TrainArguments:
    """What the command was told about a run."""

    request: str
    overrides: list[str]
    config: Path | None
    profile: str | None
    name: str | None
    yes: bool
    detach: bool
    as_json: bool


@dataclass(frozen=True)
class CampaignOptions:
    """The options that belong to a campaign (`--auto`)."""

    max_runs: int | None = None
    target: float | None = None
    max_episodes: int | None = None
    max_minutes: float | None = None
    ask: bool = False
    confirm: bool = True
    resume: str | None = None

    def given(self) -> list[str]:
        """Those that were given, as they are written."""
        told = {
            "--max-runs": self.max_runs,
            "--target": self.target,
            "--max-episodes": self.max_episodes,
            "--max-minutes": self.max_minutes,
            "--ask": self.ask or None,
            "--no-confirm": None if self.confirm else True,
            "--resume": self.resume,
        }
        return [name for name, value in told.items() if value is not None]


def settings_lines(resolved: Resolved) -> list[str]:
    """What will run and where each value came from."""
    lines = []
    for name in SHOWN_FIELDS:
        value = resolved.config.model_dump()[name]
        origin = resolved.provenance[name]
        if value is None and origin["source"] == "default":
            continue
        detail = origin.get("detail", "")
        where = (
            origin["source"]
            if origin["source"] == "default" and "profile" not in detail
            else f"{origin['source']}: {detail}"
        )
        lines.append(f"{name:22} {value!s:12} {where}")
    lines.append(f"{'steps':22} {_amount(resolved.config):12} {_arithmetic(resolved.config)}")
    return lines


def _amount(config: TrainingConfig) -> str:
    return f"<= {config.planned_steps}"


def _arithmetic(config: TrainingConfig) -> str:
    return (
        f"{counted(config.batch_size, 'problem')} x {counted(config.num_generations, 'episode')} = "
        f"{counted(config.episodes_per_step, 'episode')} a step"
    )
