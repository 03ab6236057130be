"""Plugins that Claude Code has installed, as far as ours is one of them.

Claude Code keeps them in `plugins/installed_plugins.json` of its folder: `plugins` → `name@marketplace` → a list of
`{scope, installPath, version, projectPath?}`. A plugin of scope `user` works everywhere, one of scope `project` or
`local` in its project. `enabledPlugins` of the settings switches plugins off.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_server.installs.product import PRODUCT
from mcp_server.setup.files import read_bytes
from mcp_server.setup.state import Connected, connection_of
from mcp_server.setup.targets import Targets
from mcp_server.setup.types import SetupError

REGISTER = "plugins/installed_plugins.json"

SETTINGS = ("settings.json", "settings.local.json")
"""In the client's folder and in a project's `.claude`; the later ones count more."""


@dataclass(frozen=True)
class InstalledPlugin:
    """A plugin that runs our hook or our server."""

    name: str
    """`name@marketplace`."""
    version: str
    scope: str
    folder: Path
    enabled: bool
    connected: Connected
    """Nothing where its folder is gone."""


def our_plugins(claude: Path, project: Path) -> list[InstalledPlugin]:
    """Those that work in a project. `claude`: the client's own folder. Raises SetupError for what cannot be read."""
    switched = _switched(claude, project)
    found = []
    for name, entry in _entries(claude / REGISTER):
        if not _reaches(entry, project):
            continue
        folder = Path(str(entry.get("installPath") or ""))
        connected = connection_of(Targets(folder, folder / "hooks" / "hooks.json", folder / ".mcp.json"))
        if connected.parts or (name.partition("@")[0] == PRODUCT and not folder.is_dir()):
            version, scope = str(entry.get("version", "")), str(entry.get("scope", "user"))
            found.append(InstalledPlugin(name, version, scope, folder, switched.get(name, True), connected))
    return found


def _entries(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    plugins = _object(path).get("plugins", {})
    if not isinstance(plugins, dict):
        raise SetupError(f"{path}: `plugins` must be an object of plugins")
    for name, entries in plugins.items():
        for entry in entries if isinstance(entries, list) else [entries]:  # the first format had no list
            if isinstance(entry, dict):
                yield name, entry


def _reaches(entry: dict[str, Any], project: Path) -> bool:
    place = entry.get("projectPath")
    if not isinstance(place, str) or not place:
        return True
    return project.resolve().is_relative_to(Path(place).resolve())


def _switched(claude: Path, project: Path) -> dict[str, bool]:
    """Plugin → whether it is on, where the settings say so."""
    found: dict[str, bool] = {}
    for folder in (claude, project / ".claude"):
        for name in SETTINGS:
            said = _object(folder / name).get("enabledPlugins", {})
            if isinstance(said, dict):
                found |= {plugin: value for plugin, value in said.items() if isinstance(value, bool)}
    return found


def _object(path: Path) -> dict[str, Any]:
    data = read_bytes(path)
    try:
        document = {} if data is None or not data.strip() else json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SetupError(f"{path} is not JSON ({error})") from error
    if not isinstance(document, dict):
        raise SetupError(f"{path}: must hold one JSON object")
    return document
