#!/bin/sh
# Starts the mcp-evo that is installed on this machine, for a client that knows neither PATH nor a working folder.
# It needs no other program than the shell. MCP_EVO_EXECUTABLE and MCP_EVO_HOME come from the bundle's settings.

# Settings that the client left as they stand in the manifest: nothing was chosen, or a path from the home folder.
settled() {
    case $1 in
        '${HOME}'*) printf '%s' "$HOME${1#'${HOME}'}" ;;
        '${'*) ;;
        *) printf '%s' "$1" ;;
    esac
}

# A client shows the error that answers its first message, which is one line of JSON, and hides what goes to stderr.
refuse() {
    printf 'mcp-evo: %s\n' "$1" >&2
    IFS= read -r line || exit 1
    rest=${line#*\"id\"}
    rest=${rest#*:}
    printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"%s"}}\n' "${rest%%[,\}]*}" "$1"
    exit 1
}

executable=$(settled "$MCP_EVO_EXECUTABLE")
MCP_EVO_HOME=$(settled "$MCP_EVO_HOME")
[ -n "$MCP_EVO_HOME" ] || unset MCP_EVO_HOME
unset MCP_EVO_EXECUTABLE

case $executable in
    '') refuse 'no mcp-evo is chosen: name its path in the settings of this extension (a terminal prints it: command -v mcp-evo)' ;;
    *[\"\\]*) refuse 'the path of mcp-evo in the settings of this extension holds a quotation mark or backslash' ;;
esac
[ -f "$executable" ] && [ -x "$executable" ] ||
    refuse "there is no program at $executable: install mcp-evo (uv tool install mcp-evo, or pip in a virtual environment) and name its path in the settings of this extension (a terminal prints it: command -v mcp-evo)"
[ -z "$MCP_EVO_HOME" ] || export MCP_EVO_HOME
exec "$executable" serve
