"""The protocol surface: MCP server and command line. No domain logic; never imports torch."""
