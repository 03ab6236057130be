"""Files that `mcp-evo init` writes; not used by the program itself."""
