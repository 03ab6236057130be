"""Evolutions as the tools see them: written down here, run by a process of their own, read from their files.

The process has no terminal, so where a patch needs a person it stops in state `awaiting_approval`; the evolution is
taken up again after the decision. Everything is in `rounds/`: a server that is killed loses nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mcp_server.answers import clip
from mcp_server.jobs.background import Child, child_of, start_child
from mcp_server.jobs.starting import refuse_own_code
from mcp_server.state import ServerState

if TYPE_CHECKING:
    from optimizer.home import Home
    from optimizer.meta.rounds import MetaRound
    from optimizer.patch_store import PatchRecord
    from optimizer.round_types import Round


AnyRound = TypeVar("AnyRound", bound="Round | MetaRound")


@dataclass(frozen=True)
class RoundsView(Generic[AnyRound]):
    """Rounds that a process of their own works on, the oldest first."""

    rounds: tuple[AnyRound, ...]
    documents: tuple[dict[str, Any], ...]
    """The same, as reports show them."""
    child: Child | None

    @property
    def running(self) -> bool:
        return self.child is not None and self.child.alive

    @property
    def awaiting(self) -> str | None:
        """The patch that waits for a person."""
        last = self.rounds[-1] if self.rounds else None
        return last.chosen if last is not None and last.state == "awaiting_approval" else None


@dataclass(frozen=True)
class EvolutionView(RoundsView["Round"]):
    """How an evolution stands."""

    evolution: str
    request: str
    profile: str | None
    rounds_wanted: int

    @property
    def complete(self) -> bool:
        """Nothing is left to do: all rounds are closed, or the last one found nothing to propose."""
        if not self.rounds or self.rounds[-1].state != "closed":
            return False
        return len(self.rounds) >= self.rounds_wanted or not self.rounds[-1].candidates


def start_evolution(
    state: ServerState, request: str, rounds: int | None, profile: str | None, plan: str | None
) -> EvolutionView:
    """Starts an evolution in the background; one of the same request that runs already is shown instead.

    Raises RoundError while another one runs (their trials would slow each other down and mix their evidence),
    ConfigError, BankError for a request that cannot be trained.
    """
    from optimizer.evolve import new_request
    from optimizer.round_store import RoundStore
    from optimizer.round_types import RoundError
    from trainer.request import rounds_wanted
    from trainer.settings import resolve

    home = state.home()
    for known in requested_evolutions(RoundStore(home.root)):
        view = evolution_view(home, known)
        if not view.running:
            continue
        if view.request == request and view.profile == profile:
            return view
        raise RoundError(
            f"evolution {known} is running ({clip(view.request, 120)}): wait for it, or start when it ended"
        )
    wanted = new_request(home, request, rounds_wanted(request, rounds), profile, plan=plan, folder=str(state.folder))
    policy = home.bank.policy("rllm-config", profile)
    refuse_own_code(resolve(request, policy=policy, profile=profile, folder=state.folder))
    RoundStore(home.root).write_request(wanted)
    _start(state, wanted.evolution)
    return evolution_view(home, wanted.evolution)


def resume_evolution(state: ServerState, evolution: str) -> EvolutionView:
    """Takes an evolution up again; one that runs, waits for a person or is complete is shown as it is.

    Raises RoundError where there is none.
    """
    home = state.home()
    view = evolution_view(home, evolution)
    if view.running or view.complete or (view.awaiting is not None and not _decided(home, view.awaiting)):
        return view
    _start(state, evolution)
    return evolution_view(home, evolution)


def _start(state: ServerState, evolution: str) -> Child:
    child = start_child(state, ["evolve", "--resume", evolution, "--json"], _folder(state.root, evolution))
    state.expect_runs()
    return child


def _folder(root: Path, evolution: str) -> Path:
    return root / "rounds" / "processes" / evolution


def _decided(home: "Home", patch_id: str) -> bool:
    """Whether a person has said something about the patch since."""
    return home.patches.read(patch_id).stage in ("approved", "active", "rejected")


def evolution_view(home: "Home", evolution: str) -> EvolutionView:
    """Reads an evolution. Raises RoundError."""
    from optimizer.evolve import round_document
    from optimizer.round_store import RoundStore

    store = RoundStore(home.root)
    request = store.read_request(evolution)
    rounds = tuple(store.of(evolution))
    documents = tuple(round_document(home, one) for one in rounds)
    child = child_of(_folder(home.root, evolution))
    return EvolutionView(rounds, documents, child, evolution, request.request, request.profile, request.rounds)


@dataclass(frozen=True)
class Standing:
    """Where everything stands."""

    evolution: EvolutionView | None
    """The one asked for, or the latest."""
    evolutions: tuple[str, ...]
    waiting: "tuple[PatchRecord, ...]"
    """Patches that wait for a person."""
    open_patches: "tuple[PatchRecord, ...]"
    """Patches that are staged or in trial."""
    counts: dict[str, int]
    """Patches by stage."""
    active_runs: tuple[str, ...]


def standing(state: ServerState, evolution: str | None) -> Standing:
    """Where rounds, patches and runs stand. Raises RoundError for an evolution that does not exist."""
    from collections import Counter

    from optimizer.patch_store import Stage
    from optimizer.round_store import RoundStore
    from trainer.runs.registry import list_runs

    home = state.home()
    known = requested_evolutions(RoundStore(home.root))
    chosen = evolution if evolution is not None else (known[-1] if known else None)
    patches = home.patches.all()
    waiting = [
        one for one in patches if one.stage is Stage.APPROVED or (one.stage is Stage.TRIED and one.verdict == "better")
    ]
    still_open = [one for one in patches if one.stage in (Stage.STAGED, Stage.TRIED) and one not in waiting]
    active = [run.document.run_id for run in list_runs(home.workspace) if not run.document.state.is_final]
    return Standing(
        evolution=None if chosen is None else evolution_view(home, chosen),
        evolutions=tuple(known),
        waiting=tuple(waiting),
        open_patches=tuple(still_open),
        counts=dict(Counter(str(one.stage) for one in patches)),
        active_runs=tuple(active),
    )


def requested_evolutions(store: Any) -> list[str]:
    """Every evolution that was asked for, oldest first; one that has no round yet as well."""
    if not store.root.is_dir():
        return []
    paths = [path for path in store.root.glob("*.json") if not path.name.startswith("round-")]
    return [path.stem for path in sorted(paths, key=lambda path: path.stat().st_mtime_ns)]
