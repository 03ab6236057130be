"""The optimiser's own rounds (layer `meta`) as the tools see them: run by a process of their own, read from files.

Nothing is trained: patches of the optimiser's policy are tried on recorded trials. Where one needs a person, the
process ends and the round waits; it is taken up again after the decision.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_server.jobs.background import child_of, start_child
from mcp_server.jobs.evolving import RoundsView
from mcp_server.state import ServerState

if TYPE_CHECKING:
    from optimizer.home import Home
    from optimizer.meta.rounds import MetaRound  # noqa: F401 - names the type of the rounds below

META = "meta"
"""Names these rounds where the id of an evolution is asked for."""

MAX_ROUNDS_READ = 6


@dataclass(frozen=True)
class MetaView(RoundsView["MetaRound"]):
    """How the newest rounds stand."""

    total: int

    @property
    def complete(self) -> bool:
        """The last round is closed, with or without a promotion."""
        return bool(self.rounds) and self.rounds[-1].state == "closed"


def evolve_meta_layer(state: ServerState, rounds: int | None) -> MetaView:
    """Starts up to `rounds` rounds (one by default) in the background, an open one first.

    Rounds that run already, or that wait for a person, are shown as they are. Raises LayerError in a session that is
    fixed to another layer.
    """
    state.acting_layer(META)
    home = state.home()
    view = meta_view(home)
    if view.running or (view.awaiting is not None and not _decided(home, view.awaiting)):
        return view
    start_child(state, ["evolve", "--layer", META, "--rounds", str(rounds or 1), "--json"], _folder(home.root))
    return meta_view(home)


def meta_view(home: "Home") -> MetaView:
    """Reads the newest rounds. Raises RoundError for one that cannot be read."""
    from optimizer.meta.evolve import round_document
    from optimizer.meta.rounds import MetaRounds

    store = MetaRounds(home.root)
    numbers = store.numbers()
    rounds = tuple(store.read(number) for number in numbers[-MAX_ROUNDS_READ:])
    documents = tuple(round_document(home, one) for one in rounds)
    return MetaView(rounds, documents, child_of(_folder(home.root)), len(numbers))


def _folder(root: Path) -> Path:
    return root / "meta" / "process"


def _decided(home: "Home", patch_id: str) -> bool:
    return home.patches.read(patch_id).stage in ("approved", "active", "rejected")
