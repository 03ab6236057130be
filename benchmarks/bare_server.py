"""The least server that the SDK makes: one read-only tool, over stdio or HTTP. The peer of `benchmarks/server.py`.

python benchmarks/bare_server.py [PORT]
"""

import sys

from mcp.server.mcpserver import MCPServer

server: MCPServer = MCPServer("bare", log_level="WARNING")


@server.tool(structured_output=False)
def ping(size: int = 4) -> str:
    """Answers with so many characters."""
    return "x" * size


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
