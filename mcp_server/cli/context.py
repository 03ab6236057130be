"""What the commands share: the workspace, consoles, and which errors are the user's to read."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from mcp_server.cli.terminal import SafeConsole
from skill_bank.policy import PolicyError
from skill_bank.types import BankError
from trainer.config import ConfigError
from trainer.runs.errors import RunError, WorkspaceError
from trainer.runs.workspace import Workspace, create_workspace, find_workspace, open_workspace


class CommandError(Exception):
    """A command that was refused; the message says what to do."""


@dataclass(frozen=True)
class CliState:
    """Global options."""

    workspace_option: str | None = None

    @property
    def root(self) -> Path:
        """The folder that is or would be the workspace."""
        return find_workspace(self.workspace_option)

    def existing(self) -> Workspace:
        """The workspace. Raises WorkspaceError where there is none."""
        return open_workspace(self.root)

    def writable(self) -> Workspace:
        """The workspace, created where it is missing. Raises WorkspaceError."""
        return create_workspace(self.root)

    def command(self, *arguments: str) -> str:
        """A command line that a person can paste: executable, workspace, arguments."""
        return shlex.join([executable(), *arguments, "--workspace", str(self.root)])


def executable() -> str:
    """How this program was called, as a path that works elsewhere too."""
    own = Path(sys.argv[0])
    return str(own.absolute()) if own.name == "mcp-evo" else "mcp-evo"


def clean_errors() -> tuple[type[BaseException], ...]:
    """Errors whose message is for the user: shown as one line, without a traceback."""
    return (CommandError, ConfigError, RunError, WorkspaceError, BankError, PolicyError)


def to_stdout() -> Console:
    """Console for results."""
    return SafeConsole(highlight=False, soft_wrap=True)


def to_stderr() -> Console:
    """Console for everything that is not the one JSON document."""
    return SafeConsole(stderr=True, highlight=False, soft_wrap=True)
