"""The entry of the MCP registry, `server.json` at the top of the repository, where its publisher looks for it.

`python -m mcp_server.installs.registry > server.json` writes it anew, for instance after a new version.
"""

import json
from typing import Any

from mcp_server.installs.formats import RegistryServer, checked
from mcp_server.installs.product import DESCRIPTION, PRODUCT, product_version

NAME = "io.github.mcp-evo/mcp-evo"
"""Reverse DNS of whoever publishes. The README names it in a comment, which shows the registry who owns the package."""


def registry_document() -> dict[str, Any]:
    """The entry. Raises FormatError."""
    version = product_version()
    document = {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": NAME,
        "title": PRODUCT,
        "description": DESCRIPTION,
        "version": version,
        "packages": [
            {
                "registryType": "pypi",
                "identifier": PRODUCT,
                "version": version,
                "transport": {"type": "stdio"},
                "packageArguments": [{"type": "positional", "value": "serve"}],
                "environmentVariables": [
                    {
                        "name": "MCP_EVO_HOME",
                        "description": "Workspace folder; by default .mcp-evo of the folder that the client starts in.",
                        "format": "filepath",
                        "isRequired": False,
                    }
                ],
            }
        ],
    }
    checked(RegistryServer, document, "server.json")
    return document


if __name__ == "__main__":
    print(json.dumps(registry_document(), indent=2))
