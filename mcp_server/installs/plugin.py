"""A plugin for Claude Code: the server, the hooks that record, the compiled skills, in the folder that it documents.

The folder is also a marketplace with this one plugin, so that `claude plugin marketplace add DIR` can add it.
"""

import json
from collections.abc import Mapping
from typing import Any

from mcp_server.installs.formats import HooksFile, Marketplace, PluginManifest, ServersFile, checked
from mcp_server.installs.product import AUTHOR, DESCRIPTION, KEYWORDS, LICENSE, PRODUCT, product_version
from mcp_server.setup.entries import EVENTS, hook_command, hook_group, server_entry
from mcp_server.setup.types import Connection

MANIFEST = ".claude-plugin/plugin.json"

README = """\
# mcp-evo

Trains small tool-using language agents by reinforcement learning on your machine, finds out what held a run back, and \
turns that into patches on the skills it trains with; a patch counts after a paired trial and your approval.

- The server `{name}` offers the tools. It runs `{server}`, which has to be installed: nothing is downloaded.
- The hooks run `{hook}` in the background. They record tool calls, outcomes and prompts in the project's folder \
`.mcp-evo`, with keys, tokens and passwords taken out, and record nothing where a project has no such folder.
- The skills lead through training, analysis and the rounds. Begin with: "Use the skill rllm-train and train the tiny \
calculator agent on 64 mixed problems until it reaches 90 %."

Only a person approves a patch, in a terminal: `mcp-evo approve`.
"""
"""What a person reads who looks at the plugin before installing it."""


def plugin_files(connection: Connection, skills: Mapping[str, Mapping[str, bytes]]) -> dict[str, bytes]:
    """Path in the plugin → content. `skills`: skill → file → content. Raises FormatError.

    A connection without a workspace leaves it to the project that Claude Code is started in.
    """
    manifest = {
        "name": PRODUCT,
        "version": product_version(),
        "description": DESCRIPTION,
        "author": AUTHOR,
        "license": LICENSE,
        "keywords": KEYWORDS,
    }
    marketplace = {
        "name": PRODUCT,
        "description": DESCRIPTION,
        "owner": AUTHOR,
        "plugins": [{"name": PRODUCT, "source": "./", "description": DESCRIPTION}],
    }
    command = hook_command(connection)
    hooks = {
        "description": "Records tool calls, their outcomes and prompts in the project's workspace, where it has one.",
        "hooks": {event: [hook_group(event, command)] for event in EVENTS},
    }
    servers = {"mcpServers": {connection.name: server_entry(connection)}}
    files = {
        MANIFEST: _json(checked(PluginManifest, manifest, MANIFEST)),
        ".claude-plugin/marketplace.json": _json(checked(Marketplace, marketplace, "marketplace.json")),
        "hooks/hooks.json": _json(checked(HooksFile, hooks, "hooks.json")),
        ".mcp.json": _json(checked(ServersFile, servers, ".mcp.json")),
    }
    readme = README.format(name=connection.name, server=connection.server, hook=connection.hook)
    files["README.md"] = readme.encode("utf-8")
    for skill, contents in skills.items():
        files |= {f"skills/{skill}/{name}": data for name, data in contents.items()}
    return dict(sorted(files.items()))


def _json(document: Any) -> bytes:
    return json.dumps(document, indent=2, ensure_ascii=False).encode("utf-8") + b"\n"
