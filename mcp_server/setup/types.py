"""Values of the setup: clients, scopes, changes, and the one error."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class SetupError(Exception):
    """A configuration that cannot be changed: says which file, why, and what to do. Nothing was written."""


class Client(StrEnum):
    """A program that mcp-evo is connected to."""

    CLAUDE_CODE = "claude-code"
    CLAUDE_DESKTOP = "claude-desktop"


class Scope(StrEnum):
    """Where a connection holds."""

    PROJECT = "project"
    """One folder; its files may be shared with others."""
    USER = "user"
    """All projects of this user."""


class Action(StrEnum):
    """What becomes of a file."""

    CREATE = "create"
    UPDATE = "update"
    RESTORE = "restore"
    """Back to the bytes of before."""
    DELETE = "delete"
    UNCHANGED = "unchanged"


@dataclass(frozen=True)
class FileChange:
    """One file, before and after."""

    path: Path
    before: bytes | None
    """None: not there."""
    after: bytes | None
    """None: to be deleted."""
    mode: int = 0o644
    """For a file that is made anew; one that is there keeps its own."""
    restores: bool = False

    @property
    def action(self) -> Action:
        if self.before == self.after:
            return Action.UNCHANGED
        if self.before is None:
            return Action.CREATE
        if self.after is None:
            return Action.DELETE
        return Action.RESTORE if self.restores else Action.UPDATE


@dataclass(frozen=True)
class Connection:
    """What is to be written into a client's configuration."""

    server: str
    """Absolute path of `mcp-evo`."""
    hook: str
    """Absolute path of `mcp-evo-hook`."""
    workspace: Path | None
    """Absolute; None: the client's working directory decides (user scope)."""
    hook_needs_workspace: bool = False
    """The hook would not find the workspace by itself."""
    name: str = "evo"
    """Name of the server in the client."""
