"""What one server process knows: the workspace it serves and the session its calls are recorded in.

Cheap to make: nothing is imported or created until a tool needs it, so that a client that only lists the tools gets its
answer at once and leaves no folder behind.
"""

import math
import os
import re
import secrets
import shlex
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_server.in_place import InPlace
from mcp_server.workers import worker_override

if TYPE_CHECKING:
    from optimizer.home import Home
    from optimizer.store import TrajectoryStore
    from trainer.runs.detectors.feed import RunWatch
    from trainer.runs.findings import Thresholds
    from trainer.runs.launch import LocalLauncher
    from trainer.runs.processes import ProcessIdentity
    from trainer.runs.rundir import RunDirectory
    from trainer.runs.types import RunDocument
    from trainer.runs.workspace import Workspace

SESSION_VARIABLE = "MCP_EVO_SESSION"
"""Names the session that a server's calls belong to, for clients that start the server themselves."""

SESSION_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
"""What can name a session's folder; the same as `optimizer.ids.ID_PATTERN`, whose import can wait."""

PAUSE_AFTER_S = 0.3
"""No call for so long is a pause."""

MAX_WATCHES = 16
"""Runs whose judged series stay in memory."""

LAYER_VARIABLE = "MCP_EVO_LAYER"
"""Fixes the layer of a whole session."""


def named_session() -> str | None:
    """The session that `$MCP_EVO_SESSION` names, which what is launched here belongs to; None: it names none.

    Raises ValueError for one that cannot be an id.
    """
    name = os.environ.get(SESSION_VARIABLE)
    if name and SESSION_PATTERN.match(name) is None:
        raise ValueError(
            f"${SESSION_VARIABLE} {name[:80]!r} is not an id: 1 to 64 of a-z, 0-9, '-' and '_', the first one a letter "
            "or digit. Correct it or unset it"
        )
    return name or None


def new_session_id() -> str:
    """`server-20260131-154500-k3f9a0c2`: sorts by time; two servers started in one second differ."""
    return f"server-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


@dataclass
class ServerState:
    """The state of one server process, shared by its tools."""

    root: Path
    """The folder that is or would be the workspace."""
    session: str = field(default_factory=lambda: os.environ.get(SESSION_VARIABLE) or new_session_id())
    """Session of calls that do not name one themselves."""
    runs_expected: bool = True
    """Whether a run may be under way, as far as this process knows."""
    looked_at: float = -math.inf
    """When this process looked at the runs last, on the monotonic clock."""
    runs_in_place: InPlace = field(default_factory=InPlace, repr=False)
    """Whether runs that have ended are looked at without a thread."""
    called_at: float = -math.inf
    """When the last call of a tool ended, on the monotonic clock."""
    listed_runs: "dict[str, tuple[RunDocument, object]]" = field(default_factory=dict, repr=False)
    """Run → its document and its entry in a list, as they were last shown."""
    children: "list[ProcessIdentity]" = field(default_factory=list, repr=False)
    """Commands that this process started and that have not ended, as far as it knows."""
    _watches: "dict[Path, RunWatch]" = field(default_factory=dict, repr=False)
    """Runs that were looked at: what was judged once is not judged again."""
    _home: "Home | None" = field(default=None, repr=False)
    _trajectories: "TrajectoryStore | None" = field(default=None, repr=False)
    _seeding: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        if SESSION_PATTERN.match(self.session) is None:
            raise ValueError(
                f"session {self.session[:80]!r} is not an id: 1 to 64 of a-z, 0-9, '-' and '_', the first one a letter "
                f"or digit. Correct --session or ${SESSION_VARIABLE}"
            )

    @property
    def folder(self) -> Path:
        """What relative paths are relative to: the folder that holds `.mcp-evo`, not the client's working directory."""
        return self.root.parent if self.root.name == ".mcp-evo" else self.root

    @property
    def exists(self) -> bool:
        """Whether the workspace is there already."""
        return os.path.isdir(f"{self.root}/runs")

    def is_answering(self) -> bool:
        """Whether calls come one after the other just now: what nobody waits for is done in a pause."""
        return time.monotonic() - self.called_at < PAUSE_AFTER_S

    def workspace(self) -> "Workspace":
        """The workspace, created where it is missing. Raises WorkspaceError."""
        from trainer.runs.workspace import Workspace, create_workspace

        return Workspace(self.root) if self.exists else create_workspace(self.root)

    def expect_runs(self) -> None:
        """A run was started or queued: the supervisor looks again soon."""
        self.runs_expected = True

    def home(self) -> "Home":
        """The optimiser's view of the workspace, with the live skill bank, both made where they are missing.

        Raises BankError, WorkspaceError.
        """
        from optimizer.home import Home

        with self._seeding:
            if self._home is None or not (self.root / "skills" / "bank.yaml").exists():
                self._home = Home.create(self.root)
            return self._home

    def trajectories(self) -> "TrajectoryStore":
        """The recorded events of the workspace."""
        if self._trajectories is None:
            from optimizer.store import TrajectoryStore

            self._trajectories = TrajectoryStore(self.root / "trajectories")
        return self._trajectories

    def launcher(self) -> "LocalLauncher":
        """What starts workers. Raises RunError where the environment names an impossible worker."""
        from trainer.runs.launch import LocalLauncher

        return LocalLauncher(worker_override())

    def watch_of(self, directory: "RunDirectory") -> "RunWatch":
        """The watch over a run, kept between looks. Raises RunError."""
        from trainer.runs.detectors.feed import RunWatch

        with self._seeding:
            watch = self._watches.pop(directory.path, None) or RunWatch(directory)
            self._watches[directory.path] = watch
            while len(self._watches) > MAX_WATCHES:  # the one that was not looked at for longest
                del self._watches[next(iter(self._watches))]
            return watch

    def thresholds(self) -> "Thresholds":
        """Thresholds of the diagnosis by the live policy; the shipped defaults where there is no bank yet."""
        from trainer.runs.findings import DEFAULT_THRESHOLDS

        return self.home().thresholds() if (self.root / "skills" / "bank.yaml").exists() else DEFAULT_THRESHOLDS

    def acting_layer(self, layer: str) -> str:
        """The layer that proposes: `layer`, which `$MCP_EVO_LAYER` may forbid. Raises LayerError."""
        from optimizer.layers import LayerError

        fixed = os.environ.get(LAYER_VARIABLE)
        if fixed and fixed != layer:
            raise LayerError(
                f"this session is fixed to layer {fixed} (${LAYER_VARIABLE}) and may not do what layer {layer} does"
            )
        return layer

    def command(self, *arguments: str) -> str:
        """A command line that a person can paste into any terminal: executable, absolute workspace, arguments."""
        return shlex.join([*executable(), "--workspace", str(self.root), *arguments])


def executable() -> list[str]:
    """The start of a command line of this very installation."""
    beside = Path(sys.executable).parent / "mcp-evo"
    if beside.is_file() and os.access(beside, os.X_OK):
        return [str(beside)]
    return [sys.executable, "-P", "-m", "mcp_server.cli.main"]
