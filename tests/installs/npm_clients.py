"""Clients from npm, run in a home of their own, without an account."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from npm_tools import NpmTool, ToolsUnavailable

MCPB = NpmTool("mcpb", ("@anthropic-ai/mcpb@2.1.2",), "mcpb")

CLAUDE_CODE = NpmTool("claude-code", ("@anthropic-ai/claude-code@2.1.332",), "claude")

QUIET = {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
"""Nothing but what the test is about."""

Run = Callable[..., subprocess.CompletedProcess[str]]


def runner(tool: NpmTool, home: Path) -> Run:
    """Runs the program: its words, and the exit code that they must have. Skips where it cannot be had."""
    try:
        tool.install()
    except ToolsUnavailable as error:
        pytest.skip(str(error))
    home.mkdir()
    base = {**tool.environment(home), **QUIET}
    base["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{base['PATH']}"

    def run(*words: str, folder: Path = home, code: int = 0, **more: Any) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*tool.command, *words],
            env={**base, **more},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


def installed_program() -> Path:
    """The installed `mcp-evo`. Skips where there is none beside this Python."""
    installed = Path(sys.executable).with_name("mcp-evo")
    if not installed.is_file():
        pytest.skip(f"mcp-evo is not installed beside {sys.executable}")
    return installed
