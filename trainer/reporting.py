"""Trackers beside the TensorBoard files: which there are, what each needs, what its process may see. Free of torch.

1. A tracker that is not installed is refused before a worker starts: whoever asked for it wants its curves.
2. Everything later (no network, an account that says no) costs the curves, never the run (`trainer.trackers`).
3. A tracker's variables, its key among them, reach only workers of runs that report to it.
"""

import importlib.util
import netrc
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from trainer.config import ConfigError, TrainingConfig

VARIABLES: dict[str, tuple[str, ...]] = {"tensorboard": (), "wandb": ("WANDB_*",), "trackio": ("TRACKIO_*",)}
"""Tracker → environment variables (a name ending in * is a prefix) of its own."""

WANDB_HOSTS = ("api.wandb.ai", "api.forge.coreweave.com")
"""Hosts that `wandb login` writes a key for: the name of old and the one since wandb 0.31."""

PROJECT = "mcp-evo"
"""Project under which runs appear where the user names none."""


def external(config: TrainingConfig) -> tuple[str, ...]:
    """Trackers that are asked for, TensorBoard left out: its files are always written."""
    return tuple(name for name in config.report_to if name != "tensorboard")


def variables(config: TrainingConfig) -> tuple[str, ...]:
    """Environment variables that a worker of this run may see beside the usual ones."""
    return tuple(one for name in external(config) for one in VARIABLES[name])


def needs_hub_token(environment: Mapping[str, str], config: TrainingConfig) -> bool:
    """Whether a tracker of this run writes to the hub: trackio with a Space; without one it stays on this machine."""
    return "trackio" in config.report_to and bool(environment.get("TRACKIO_SPACE_ID"))


def check_trackers(config: TrainingConfig, environment: Mapping[str, str] | None = None) -> list[str]:
    """Warnings about the trackers of a run. Raises ConfigError for one that is not installed."""
    for name in external(config):
        if importlib.util.find_spec(name) is None:
            raise ConfigError(
                f"report_to {name}: the package {name} is not installed beside mcp-evo. Install it there "
                f"(pip install {name}), or leave it out: TensorBoard files are written in any case."
            )
    if "wandb" in config.report_to and wandb_mode(os.environ if environment is None else environment) == "offline":
        return [
            "report_to wandb: no key was found (WANDB_API_KEY, or `wandb login`), so the run is recorded offline in "
            "its own folder; `wandb sync` sends it later."
        ]
    return []


def wandb_mode(environment: Mapping[str, str]) -> str:
    """`WANDB_MODE` where it is set, else `online` with a key and `offline` without one (wandb itself would ask a
    terminal that a worker does not have, and fail)."""
    if environment.get("WANDB_MODE"):
        return environment["WANDB_MODE"]
    if environment.get("WANDB_API_KEY"):
        return "online"
    own = urlsplit(environment.get("WANDB_BASE_URL", "")).hostname
    file = environment.get("NETRC") or str(Path(environment.get("HOME", "~")).expanduser() / ".netrc")
    try:
        logins = netrc.netrc(file)
        return "online" if any(logins.authenticators(host) for host in ((own,) if own else WANDB_HOSTS)) else "offline"
    except (OSError, netrc.NetrcParseError):
        return "offline"
