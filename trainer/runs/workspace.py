"""The workspace folder: where it is, how it is created, what an id may be.

Which folder: `--workspace`, else `$MCP_EVO_HOME`, else the nearest ancestor of the working directory that holds
`.mcp-evo`, else `./.mcp-evo` for commands that create one (`~/.mcp-evo` where the working directory is `/` or cannot
be written). A new one has mode 0700 and a `.gitignore` that holds `*`.
"""

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from skill_bank.files import write_text_atomic
from trainer.runs.errors import WorkspaceError

FOLDER_NAME = ".mcp-evo"

ENVIRONMENT_VARIABLE = "MCP_EVO_HOME"

ID_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
"""What ids of runs, patches, rounds and sessions look like; nothing that could leave a folder."""

_NAME_IT = f"no workspace can be told: name one with --workspace DIR or ${ENVIRONMENT_VARIABLE}."

FOLDERS = ("runs", "trajectories", "reports", "patches", "trials", "rounds", "skills", "experience")


def check_id(text: str, what: str = "run id") -> str:
    """Returns `text` if it is an id, else raises WorkspaceError."""
    if ID_PATTERN.match(text) is None:
        shown = text if len(text) <= 80 else text[:77] + "…"
        raise WorkspaceError(
            f"{shown!r} is not a {what}: 1 to 64 of a-z, 0-9, _ and -, "
            f"the first one a letter or digit, no slashes or dots."
        )
    return text


class WorkspaceConfig(BaseModel):
    """`config.yaml` of a workspace, the part that the run layer uses. Keys of other parts are kept and left to them."""

    model_config = ConfigDict(extra="allow", frozen=True)

    max_concurrent_runs: int = Field(
        default=1, ge=1, le=64, description="Runs that train at the same time; others queue."
    )
    child_environment: list[str] = Field(
        default_factory=list, description="More environment variables (names, or prefixes ending in *) for workers."
    )
    keep_runs: int = Field(
        default=20, ge=0, description="So many of the newest runs `mcp-evo runs prune` leaves alone."
    )
    keep_runs_days: float = Field(
        default=30.0, ge=0, description="Runs that ended within so many days it leaves alone, too."
    )
    keep_sessions: int = Field(
        default=200, ge=0, description="So many of the newest sessions `mcp-evo trajectories prune` leaves alone."
    )
    keep_sessions_days: float = Field(
        default=90.0, ge=0, description="Sessions that changed within so many days it leaves alone, too."
    )
    keep_sessions_mb: float = Field(
        default=0.0, ge=0, description="Beyond so many MB of sessions the oldest go whatever their age; 0 is no limit."
    )
    keep_free_mb: int = Field(
        default=500, ge=0, description="Free disk space (MB) without which no run starts or goes on."
    )
    training_agent: list[str] = Field(
        default=["claude", "{prompt}"],
        min_length=1,
        description="Command of the training agent that `mcp-evo rounds launch` opens; {prompt} is its task.",
    )
    training_agent_headless: list[str] = Field(
        default=["claude", "-p", "{prompt}"],
        min_length=1,
        description="The same without a terminal (`rounds launch --headless`).",
    )
    redaction: dict[str, Any] = Field(
        default_factory=dict,
        description="What else is a secret in recorded events, as lists of patterns (regular expressions), fields "
        "(their names) and keep (regular expressions of what is none).",
    )


@dataclass(frozen=True)
class Workspace:
    """An existing workspace."""

    root: Path

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def config_path(self) -> Path:
        return self.root / "config.yaml"

    def config(self) -> WorkspaceConfig:
        """The settings of the workspace; defaults where there is no file. Raises WorkspaceError that names the file."""
        try:
            document: Any = yaml.safe_load(self.config_path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return WorkspaceConfig()
        except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
            raise WorkspaceError(f"{self.config_path} cannot be read: {' '.join(str(error).split())}") from error
        if document is None:
            return WorkspaceConfig()
        if not isinstance(document, dict):
            raise WorkspaceError(f"{self.config_path} must hold `key: value` lines, not a {type(document).__name__}.")
        try:
            return WorkspaceConfig.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = ".".join(str(part) for part in first["loc"])
            raise WorkspaceError(f"{self.config_path}: {name} {first['input']!r}: {first['msg']}") from error


def config_text() -> str:
    """A `config.yaml` that holds every setting of the run layer as a comment, with its meaning and default."""
    lines = ["# Settings of this workspace. Lines that begin with # are defaults; take the # away to set them."]
    for name, info in WorkspaceConfig.model_fields.items():
        default = info.get_default(call_default_factory=True)
        lines += ["", f"# {info.description}", f"# {name}: {default}"]
    return "\n".join(lines) + "\n"


def find_workspace(
    option: str | Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Path:
    """The folder that is or would be the workspace; nothing is created.

    Raises WorkspaceError where nothing was named and neither working directory nor home folder can be told.
    """
    variables = os.environ if environment is None else environment
    if option:
        return Path(option).expanduser().absolute()
    if variables.get(ENVIRONMENT_VARIABLE):
        return Path(variables[ENVIRONMENT_VARIABLE]).expanduser().absolute()
    try:
        here = (directory or Path.cwd()).absolute()
    except FileNotFoundError as error:
        raise WorkspaceError(f"the working directory is gone, so {_NAME_IT}") from error
    for folder in (here, *here.parents):
        if (folder / FOLDER_NAME).is_dir():
            return folder / FOLDER_NAME
    if here == Path(here.anchor) or not os.access(here, os.W_OK):
        try:
            return Path.home() / FOLDER_NAME
        except RuntimeError as error:  # no HOME, and a user that the system does not know
            raise WorkspaceError(f"nothing can be written in {here} and there is no home, so {_NAME_IT}") from error
    return here / FOLDER_NAME


def open_workspace(root: Path) -> Workspace:
    """An existing workspace. Raises WorkspaceError where there is none."""
    if not root.is_dir():
        raise WorkspaceError(
            f"there is no workspace at {root}. `mcp-evo train` creates one here; --workspace DIR or "
            f"${ENVIRONMENT_VARIABLE} name another."
        )
    return Workspace(root)


def create_workspace(root: Path) -> Workspace:
    """Opens a workspace, creating what is missing. Raises WorkspaceError where it cannot be written."""
    try:
        if not root.exists():
            root.mkdir(parents=True, mode=0o700, exist_ok=True)  # another process may be doing the same
            os.chmod(root, 0o700)  # whatever the umask says
        for name in FOLDERS:
            (root / name).mkdir(mode=0o700, exist_ok=True)
        if not (root / ".gitignore").exists():
            write_text_atomic(root / ".gitignore", "*\n")
        if not (root / "config.yaml").exists():
            write_text_atomic(root / "config.yaml", config_text())
        with tempfile.TemporaryFile(dir=root / "runs"):
            pass
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise WorkspaceError(
            f"the workspace {root} cannot be written ({reason}). Name another one with --workspace DIR or "
            f"${ENVIRONMENT_VARIABLE}, or give yourself write access to it."
        ) from error
    return Workspace(root)
