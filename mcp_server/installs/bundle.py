"""An MCP bundle for Claude Desktop: settings and a few lines of shell that start an installed mcp-evo.

The server itself is not in it: with torch it has some gigabytes, and a client waits a minute for the first answer.
"""

import io
import json
import zipfile
from collections.abc import Mapping
from importlib.resources import files as files_of
from pathlib import Path

from mcp_server.installs.formats import BundleManifest, checked
from mcp_server.installs.product import AUTHOR, DESCRIPTION, KEYWORDS, LICENSE, PRODUCT, product_version, tools

ENTRY_POINT = "server/run.sh"

PORTABLE_EXECUTABLE = "${HOME}/.local/bin/mcp-evo"
"""Where `uv tool install` and `pipx install` put it."""

PORTABLE_WORKSPACE = "${HOME}/.mcp-evo"

_LONG = (
    "Runs the mcp-evo that is installed on this machine; its path is the first setting. Training runs in processes of "
    "their own and goes on when Claude Desktop is closed. Patches on skills need a person's approval, in a terminal "
    "(mcp-evo approve): the answer of review_patch holds the whole command."
)
_DATE = (1980, 1, 1, 0, 0, 0)
"""The first date that a ZIP archive knows: the same content is the same bytes."""


def bundle_files(executable: Path | None, workspace: Path | None) -> dict[str, bytes]:
    """Path in the bundle → content; None: the usual places of any machine. Raises FormatError."""
    manifest = {
        "manifest_version": "0.4",
        "name": PRODUCT,
        "display_name": PRODUCT,
        "version": product_version(),
        "description": DESCRIPTION,
        "long_description": _LONG,
        "author": AUTHOR,
        "license": LICENSE,
        "keywords": KEYWORDS,
        "server": {
            "type": "binary",
            "entry_point": ENTRY_POINT,
            "mcp_config": {
                "command": "/bin/sh",
                "args": ["${__dirname}/" + ENTRY_POINT],
                "env": {
                    "MCP_EVO_EXECUTABLE": "${user_config.executable}",
                    "MCP_EVO_HOME": "${user_config.workspace}",
                },
            },
        },
        "tools": tools(),
        "prompts_generated": True,
        "compatibility": {"platforms": ["darwin", "linux"]},
        "user_config": {
            "executable": {
                "type": "file",
                "title": "The mcp-evo program",
                "description": "Path of the installed program; in a terminal, `command -v mcp-evo` prints it.",
                "required": True,
                "default": PORTABLE_EXECUTABLE if executable is None else str(executable),
            },
            "workspace": {
                "type": "directory",
                "title": "Workspace",
                "description": "Folder for runs, trajectories and skills; it is made when it is first needed.",
                "required": False,
                "default": PORTABLE_WORKSPACE if workspace is None else str(workspace),
            },
        },
    }
    text = json.dumps(checked(BundleManifest, manifest, "manifest.json"), indent=2, ensure_ascii=False)
    launcher = files_of("mcp_server.installs").joinpath("run.sh").read_bytes()
    return {"manifest.json": text.encode("utf-8") + b"\n", ENTRY_POINT: launcher}


def archive(files: Mapping[str, bytes]) -> bytes:
    """The files as a ZIP archive, which is what a bundle is; the same files give the same bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in sorted(files.items()):
            info = zipfile.ZipInfo(name, _DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o755 if name.endswith(".sh") else 0o644) << 16
            packed.writestr(info, data)
    return stream.getvalue()
