"""A person at a terminal, for tests: runs a command on a pseudo terminal and types what they would."""

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from server_helpers import COMMAND, environment

DIGEST = re.compile(r"digest\s+([0-9a-f]{64})")


def approve_in_terminal(
    root: Path,
    patch_id: str,
    *,
    wrong: bool = False,
    meanwhile: Callable[[], None] | None = None,
    timeout_s: float = 60,
) -> tuple[int, str]:
    """Runs `mcp-evo approve` and types the beginning of the digest it shows; `meanwhile` happens before that. Returns
    exit code and what was shown."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "--workspace", str(root), "approve", patch_id],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment(TERM="dumb", COLUMNS="200"),
        start_new_session=True,
    )
    os.close(slave)
    shown, typed = "", False
    deadline = time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline:
            ready, _, _ = select.select([master], [], [], 0.2)
            if ready:
                try:
                    data = os.read(master, 65536)
                except OSError:  # the other end is closed: the command has ended
                    break
                if not data:
                    break
                shown += data.decode("utf-8", errors="replace")
            found = DIGEST.search(shown)
            if not typed and found is not None and "Type its first" in shown:
                typed = True
                if meanwhile is not None:
                    meanwhile()
                os.write(master, (("zzzzzz" if wrong else found[1][:6]) + "\n").encode())
        return process.wait(timeout=10), shown
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)


def command(root: Path, *arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Runs `mcp-evo ARGUMENTS` on the workspace, without a terminal."""
    return subprocess.run(
        [*COMMAND, "--workspace", str(root), *arguments],
        capture_output=True,
        text=True,
        env=environment(),
        stdin=subprocess.DEVNULL,
        timeout=timeout_s,
    )
