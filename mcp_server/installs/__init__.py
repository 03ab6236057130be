"""What connects mcp-evo to clients that install it themselves: a Claude Code plugin, an MCP bundle, a registry entry.

1. Everything is made from the code that it describes (tools, hooks, compiled skills, version), so that nothing here can
   go out of date; `server.json` and `claude_config.example.json` of the repository are checked against it by tests.
2. Each file is checked against its documented format (`formats`) before it is written.
3. Nothing downloads anything when a client starts it: all of them run an mcp-evo that is installed.
"""
