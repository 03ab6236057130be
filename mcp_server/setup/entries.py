"""What mcp-evo writes into a configuration, and how it is told from everybody else's: pure functions over JSON texts.

Hooks: `hooks` → event → a list of groups `{matcher?, hooks: [{type, command, async, timeout}]}`; ours is a group of its
own whose command runs `mcp-evo-hook`. Servers: `mcpServers` → name → `{command, args, env}`; ours runs `mcp-evo`.
"""

import json
import shlex
from pathlib import PurePath
from typing import Any

from mcp_server.setup.json_edit import append_item, find, parse, remove, set_member
from mcp_server.setup.types import Connection, SetupError

EVENTS = (
    *("PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "Stop"),
    *("SubagentStart", "SubagentStop", "SessionStart", "SessionEnd"),
)
"""Events that are captured."""

WITH_MATCHER = frozenset({"PostToolUse", "PostToolUseFailure"})
"""Events whose groups are chosen by the tool's name."""

WAITED_FOR = frozenset({"Stop", "SubagentStop", "SessionEnd"})
"""Events that the client waits for, some hundredths of a second each; all others are recorded beside its work. Without
a terminal (`claude -p`) it exits as soon as a turn has ended and takes asynchronous hooks with it: waiting for the end
of the turn keeps that event, and those that came before it."""

HOOK_TIMEOUT_S = 30
"""Seconds; a hook takes a few hundredths."""

HOOK_NAME, SERVER_NAME = "mcp-evo-hook", "mcp-evo"


def hook_command(connection: Connection) -> str:
    """The command line of the hook, for a shell."""
    words = shlex.quote(connection.hook)
    if connection.hook_needs_workspace and connection.workspace is not None:
        return f"MCP_EVO_HOME={shlex.quote(str(connection.workspace))} {words}"
    return words


def hook_group(event: str, command: str) -> dict[str, Any]:
    """The group of one event."""
    beside = {} if event in WAITED_FOR else {"async": True}
    handler = {"type": "command", "command": command, **beside, "timeout": HOOK_TIMEOUT_S}
    return {"matcher": "*", "hooks": [handler]} if event in WITH_MATCHER else {"hooks": [handler]}


def server_entry(connection: Connection, existing: Any = None, *, typed: bool = True) -> dict[str, Any]:
    """The server's entry; what a person added to one of ours stays. `typed`: with the transport's name."""
    base = dict(existing) if isinstance(existing, dict) else {}
    arguments = base.get("args")
    kept = isinstance(arguments, list) and arguments[:1] == ["serve"]
    entry = ({"type": "stdio"} if typed else {}) | base
    entry |= {"command": connection.server, "args": arguments if kept else ["serve"]}
    environment = dict(base["env"]) if isinstance(base.get("env"), dict) else {}
    if connection.workspace is not None:
        environment["MCP_EVO_HOME"] = str(connection.workspace)
    if environment or "env" in base:
        entry["env"] = environment
    return entry


def is_our_handler(handler: Any) -> bool:
    """Whether a hook's handler runs our hook."""
    command = handler.get("command") if isinstance(handler, dict) else None
    return isinstance(command, str) and _runs(command, HOOK_NAME)


def is_our_server(entry: Any) -> bool:
    """Whether a server's entry runs our server."""
    command = entry.get("command") if isinstance(entry, dict) else None
    return isinstance(command, str) and PurePath(command).name == SERVER_NAME


def _runs(command: str, program: str) -> bool:
    try:
        words = shlex.split(command)
    except ValueError:  # quotation marks that do not close
        return False
    return any(PurePath(word).name == program for word in words)


def with_hooks(text: str, command: str) -> str:
    """`text` with our hooks. Raises SetupError where `hooks` is not what Claude Code documents."""
    current = _checked_hooks(text)
    for event in EVENTS:
        wanted = hook_group(event, command)
        groups = current.get(event, [])
        ours = [group for group in groups if any(is_our_handler(one) for one in _handlers(group))]
        if ours == [wanted]:
            continue
        text = _without_event(text, event)
        if find(parse(text), ("hooks",)) is None:
            text = set_member(text, ("hooks",), {event: [wanted]})
        elif find(parse(text), ("hooks", event)) is None:
            text = set_member(text, ("hooks", event), [wanted])
        else:
            text = append_item(text, ("hooks", event), wanted)
    return text


def without_hooks(text: str) -> str:
    """`text` without our hooks; what would be left empty by that goes, too."""
    for event in _checked_hooks(text):
        text = _without_event(text, event)
    return text


def _without_event(text: str, event: str) -> str:
    """`text` without our handlers of one event."""
    while True:
        node = find(parse(text), ("hooks", event))
        groups = [] if node is None else node.value
        found = _first_of_ours(groups)
        if found is None:
            return text
        group, handler = found
        path: tuple[str | int, ...] = ("hooks", event, group, "hooks", handler)
        if len(_handlers(groups[group])) == 1:  # the group was there for us
            path = ("hooks", event, group)
            if len(groups) == 1:
                path = ("hooks", event)
                hooks = find(parse(text), ("hooks",))
                if hooks is not None and len(hooks.value) == 1:
                    path = ("hooks",)
        text = remove(text, path)


def _first_of_ours(groups: list[Any]) -> tuple[int, int] | None:
    for number, group in enumerate(groups):
        for position, handler in enumerate(_handlers(group)):
            if is_our_handler(handler):
                return number, position
    return None


def _handlers(group: Any) -> list[Any]:
    handlers = group.get("hooks") if isinstance(group, dict) else None
    return handlers if isinstance(handlers, list) else []


def _checked_hooks(text: str) -> dict[str, list[Any]]:
    document = parse(text).value
    if not isinstance(document, dict):
        raise SetupError("must hold one JSON object")
    hooks = document.get("hooks", {})
    if not isinstance(hooks, dict):
        raise SetupError("`hooks` must be an object of events")
    for event, groups in hooks.items():
        if not isinstance(groups, list):
            raise SetupError(f"`hooks.{event}` must be a list of groups")
    return hooks


def with_server(text: str, connection: Connection, *, typed: bool = True) -> str:
    """`text` with our server. Raises SetupError where another server has the name or the format is another."""
    servers = _checked_servers(text)
    existing = servers.get(connection.name)
    if existing is not None and not is_our_server(existing):
        shown = json.dumps(existing.get("command") if isinstance(existing, dict) else existing)[:80]
        raise SetupError(
            f"`mcpServers.{connection.name}` is another server (command {shown}); "
            f"give ours another name with --name, or take that one out"
        )
    entry = server_entry(connection, existing, typed=typed)
    if existing == entry:
        return text
    if find(parse(text), ("mcpServers",)) is None:
        return set_member(text, ("mcpServers",), {connection.name: entry})
    return set_member(text, ("mcpServers", connection.name), entry)


def without_server(text: str) -> str:
    """`text` without the servers that are ours, whatever their names."""
    servers = _checked_servers(text)
    ours = [name for name, entry in servers.items() if is_our_server(entry)]
    for name in ours:
        left = find(parse(text), ("mcpServers",))
        alone = left is not None and len(left.value) == 1
        text = remove(text, ("mcpServers",) if alone else ("mcpServers", name))
    return text


def our_servers(text: str) -> list[str]:
    """Names of the servers that are ours."""
    return [name for name, entry in _checked_servers(text).items() if is_our_server(entry)]


def server_command(text: str, name: str) -> str:
    """The command of a server."""
    return str(_checked_servers(text)[name].get("command"))


def our_hook_events(text: str) -> dict[str, str]:
    """Event → command of our hook."""
    found: dict[str, str] = {}
    for event, groups in _checked_hooks(text).items():
        for group in groups:
            for handler in _handlers(group):
                if is_our_handler(handler):
                    found[event] = handler["command"]
    return found


def _checked_servers(text: str) -> dict[str, Any]:
    document = parse(text).value
    if not isinstance(document, dict):
        raise SetupError("must hold one JSON object")
    servers = document.get("mcpServers", {})
    if not isinstance(servers, dict):
        raise SetupError("`mcpServers` must be an object of servers")
    return servers
