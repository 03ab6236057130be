"""Which dashboard of a workspace is open: a small file for others to find it by. It holds no secret."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_server.state import executable
from skill_bank.files import read_json, write_bytes_atomic

if TYPE_CHECKING:
    from trainer.runs.processes import ProcessIdentity

NOTE = "dashboard.json"
"""In the workspace folder."""


@dataclass(frozen=True)
class Open:
    """A dashboard that is open."""

    port: int
    decides: bool
    """People may decide on it."""
    process: "ProcessIdentity"

    @property
    def url(self) -> str:
        return address_of(self.port)


def address_of(port: int) -> str:
    """Where a dashboard is."""
    return f"http://127.0.0.1:{port}/"


def note_open(root: Path, port: int, decides: bool, pid: int) -> None:
    """Writes the file, for its owner alone. Raises OSError."""
    from trainer.runs.processes import identify

    identity = identify(pid)
    note = None if identity is None else identity.note()
    document = {"schema_version": 1, "workspace": str(root), "port": port, "decides": decides, "process": note}
    write_bytes_atomic(root / NOTE, json.dumps(document).encode("ascii"), mode=0o600)


def note_closed(root: Path, port: int) -> None:
    """Takes the file away, unless a dashboard opened later has written its own."""
    try:
        if read_json(root / NOTE).get("port") == port:
            (root / NOTE).unlink(missing_ok=True)
    except (OSError, ValueError, AttributeError):
        return


def open_dashboard(root: Path) -> Open | None:
    """The dashboard that is open; None where there is none, or its process has ended."""
    from trainer.runs.processes import ProcessIdentity, is_alive

    try:
        document = read_json(root / NOTE)
        found = Open(int(document["port"]), document["decides"] is True, ProcessIdentity.from_note(document["process"]))
        mine = document["workspace"] == str(root)  # not a copy of one that is open
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if mine and 0 < found.port < 65536 and is_alive(found.process) else None


def dashboard_command(root: Path) -> str:
    """The command line that opens a dashboard, for any terminal."""
    return shlex.join([*executable(), "--workspace", str(root), "dashboard"])


def dashboard_hint(root: Path) -> str:
    """How a person decides in a browser, as the end of a sentence: the command, and the address of an open one."""
    found = open_dashboard(root)
    hint = f"or in a browser: {dashboard_command(root)}"
    return hint if found is None or not found.decides else f"{hint} (open now: {found.url}#/patches)"
