"""Which files of a client are meant, by scope and platform."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mcp_server.setup.record import NAME
from mcp_server.setup.types import Client, Scope


@dataclass(frozen=True)
class Targets:
    """The files that a setup edits."""

    record: Path
    hooks: Path | None = None
    """Settings with hooks; None: the client has none."""
    servers: Path | None = None
    """Configuration with MCP servers."""
    skills: Path | None = None
    """Folder of skills."""
    typed_servers: bool = True
    """Entries of servers name their transport."""
    mode: int = 0o644
    """Of files that are made anew."""

    def folders(self) -> tuple[Path, ...]:
        """Folders that a setup may have to make: of the client's own, inner ones last."""
        inner = [path for path in (self.record.parent, self.skills) if path is not None]
        return tuple(dict.fromkeys((*reversed(self.record.parent.parents[:2]), *inner)))

    def only(self, *, hooks: bool = True, servers: bool = True, skills: bool = True) -> "Targets":
        """The same without the parts that are not wanted."""
        return replace(
            self,
            hooks=self.hooks if hooks else None,
            servers=self.servers if servers else None,
            skills=self.skills if skills else None,
        )


def claude_code(
    scope: Scope, folder: Path, *, environment: Mapping[str, str] | None = None, home: Path | None = None
) -> Targets:
    """Files of Claude Code: in `folder` (`.claude/settings.json`, `.mcp.json`), or the user's own."""
    if scope is Scope.PROJECT:
        claude = folder / ".claude"
        return Targets(claude / NAME, claude / "settings.json", folder / ".mcp.json", claude / "skills")
    variables = os.environ if environment is None else environment
    user = Path.home() if home is None else home
    named = variables.get("CLAUDE_CONFIG_DIR")
    claude = Path(named).expanduser().absolute() if named else user / ".claude"
    state = claude / ".claude.json" if named else user / ".claude.json"
    return Targets(claude / NAME, claude / "settings.json", state, claude / "skills", mode=0o600)


def claude_desktop(
    *, environment: Mapping[str, str] | None = None, home: Path | None = None, platform: str | None = None
) -> Targets:
    """The configuration of Claude Desktop: macOS `~/Library/Application Support/Claude`, Linux `~/.config/Claude`."""
    variables = os.environ if environment is None else environment
    user = Path.home() if home is None else home
    if (sys.platform if platform is None else platform) == "darwin":
        folder = user / "Library" / "Application Support" / "Claude"
    else:
        base = variables.get("XDG_CONFIG_HOME")
        folder = (Path(base) if base and os.path.isabs(base) else user / ".config") / "Claude"
    return Targets(folder / NAME, servers=folder / "claude_desktop_config.json", typed_servers=False, mode=0o600)


def targets_of(client: Client, scope: Scope, folder: Path) -> Targets:
    """The files of a client."""
    return claude_desktop() if client is Client.CLAUDE_DESKTOP else claude_code(scope, folder)
