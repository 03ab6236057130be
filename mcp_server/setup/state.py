"""What of ours a client's configuration holds."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mcp_server.setup.entries import HOOK_NAME, our_hook_events, our_servers, server_command
from mcp_server.setup.files import read_bytes
from mcp_server.setup.json_edit import JsonTextError
from mcp_server.setup.targets import Targets
from mcp_server.setup.types import SetupError
from skill_bank.install import MANIFEST

Found = TypeVar("Found")


@dataclass(frozen=True)
class Connected:
    """What was found."""

    parts: tuple[str, ...]
    """In words: hooks, servers, skills."""
    programs: tuple[str, ...]
    """Absolute paths that the configuration runs."""


def connection_of(targets: Targets) -> Connected:
    """What of ours is there. Raises SetupError for a file that cannot be read."""
    parts: list[str] = []
    programs: list[str] = []
    servers_text = _text(targets.servers)
    hooks = _found(targets.hooks, _text(targets.hooks), our_hook_events) or {}
    servers = _found(targets.servers, servers_text, our_servers) or []
    if hooks:
        parts.append(f"hooks for {len(hooks)} events")
        words = {word for line in hooks.values() for word in shlex.split(line)}
        programs += sorted(word for word in words if Path(word).name == HOOK_NAME and Path(word).is_absolute())
    for name in servers:
        parts.append(f"server {name}")
        command = server_command(servers_text, name)
        programs += [command] if Path(command).is_absolute() else []
    if targets.skills is not None and (targets.skills / MANIFEST).is_file():
        parts.append(f"skills in {targets.skills}")
    return Connected(tuple(parts), tuple(programs))


def _found(path: Path | None, text: str, look: Callable[[str], Found]) -> Found | None:
    try:
        return look(text) if text.strip() else None
    except (JsonTextError, SetupError) as error:
        raise SetupError(f"{path}: {error}") from error


def _text(path: Path | None) -> str:
    data = None if path is None else read_bytes(path)
    if data is None:
        return ""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SetupError(f"{path} is not UTF-8 (byte {error.start})") from error
