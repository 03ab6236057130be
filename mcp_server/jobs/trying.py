"""Trials as the tool sees them: prepared here, run by a process of their own, read from their files.

The server only prepares a trial, so that a refusal comes at once; `mcp-evo patches try` runs it in a process that
outlives the server. Everything it finds out is in `trials/<id>/`: a server that is killed loses nothing.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mcp_server.jobs.background import Child, child_of, start_child
from mcp_server.state import ServerState

if TYPE_CHECKING:
    from optimizer.home import Home
    from optimizer.patch_store import PatchRecord
    from optimizer.trial.folder import TrialFolder, TrialSpec
    from optimizer.trial.scenarios import Scenario
    from optimizer.trial.types import Decision, Pair, Summary


@dataclass(frozen=True)
class TrialView:
    """How a trial stands."""

    record: "PatchRecord"
    spec: "TrialSpec"
    pairs: "tuple[Pair, ...]"
    summary: "Summary | None"
    """What the pairs say so far; None before the second one."""
    decision: "Decision | None"
    child: Child | None
    """The process that runs it, as far as it was started by a server."""
    running: bool
    """A process runs it: one that a server started, or a command in a terminal."""
    began: bool = False
    """This call started or restarted it."""

    @property
    def seconds_per_pair(self) -> float | None:
        """Mean wall time of the pairs so far."""
        timed = [one.seconds for one in self.pairs if one.seconds is not None]
        return sum(timed) / len(timed) if timed else None


def try_or_look(state: ServerState, patch_id: str, plan: str | None, more: bool) -> TrialView:
    """Starts the trial of a patch, or goes on with it, or tells how it stands.

    Raises PatchError, TrialError, ScenarioError, BankError.
    """
    home = state.home()
    record = home.patches.read(patch_id)
    folder = latest_trial(home, record)
    if folder is not None and not more:
        view = view_of(home, patch_id, folder)
        if view.decision is not None or view.running:
            return view
    if folder is not None and more and view_of(home, patch_id, folder).running:
        return view_of(home, patch_id, folder)
    folder = _prepare(home, record, plan, more)
    start_child(state, ["patches", "try", patch_id, *(["--more"] if more else []), "--json"], folder.path)
    return replace(view_of(home, patch_id, folder), began=True)


def look_at_trial(state: ServerState, patch_id: str) -> TrialView:
    """How the patch's latest trial stands. Raises PatchError, TrialError."""
    home = state.home()
    folder = latest_trial(home, home.patches.read(patch_id))
    assert folder is not None
    return view_of(home, patch_id, folder)


def latest_trial(home: "Home", record: "PatchRecord") -> "TrialFolder | None":
    """The folder of the patch's latest trial."""
    from optimizer.trial.folder import TrialFolder

    if not record.trials:
        return None
    folder = TrialFolder(home.trials / record.trials[-1])
    return folder if folder.exists else None


def _prepare(home: "Home", record: "PatchRecord", plan: str | None, more: bool) -> "TrialFolder":
    from optimizer.trial.plan import plan_named
    from optimizer.trial.run import TrialError
    from optimizer.tryout import prepare_trial

    name = plan or home.policy_of("traj-optimize").require("trial_plan.quick")
    try:
        chosen = plan_named(name)
    except ValueError as error:
        raise TrialError(str(error)) from error
    folder = latest_trial(home, record)
    decision = None if folder is None else folder.decision()
    goes_on = more and decision is not None and not decision.final
    return prepare_trial(home, record.patch_id, chosen, own=own_scenario_of(home, record), more=goes_on)


def own_scenario_of(home: "Home", record: "PatchRecord") -> "Scenario | None":
    """The situation of the run that the patch's finding comes from; None where there is no such run any more."""
    from optimizer.trial.scenarios import own_scenario
    from trainer.runs.errors import RunError
    from trainer.runs.registry import find_run

    run_id = (record.finding or {}).get("run_id")
    if run_id is None:
        return None
    try:
        run = find_run(home.workspace, run_id)
        config: dict[str, Any] = run.directory.read_config().model_dump(mode="json")
    except RunError:
        return None
    if run.document.parameters is None:
        return None
    return own_scenario(config, run.document.parameters, run.document.provenance)


def view_of(home: "Home", patch_id: str, folder: "TrialFolder") -> TrialView:
    """Reads a trial; a verdict that a killed process left behind is entered in the patch."""
    from optimizer.trial.statistics import summarise
    from optimizer.tryout import apply_decision

    child = child_of(folder.path)
    running = (child is not None and child.alive) or is_being_run(folder)
    spec = folder.spec()
    pairs = tuple(folder.pairs(spec))
    decision = folder.decision()
    record = home.patches.read(patch_id)
    if decision is not None and running and (record.verdict is None or not decision.final):
        decision = None  # its process is about to enter the verdict in the patch, or goes on behind its budget
    elif decision is not None and record.verdict is None:
        record = apply_decision(home, spec, decision)  # its process was killed between the two
    summary = summarise(list(pairs), spec.plan) if len(pairs) >= 2 else None
    return TrialView(record, spec, pairs, summary, decision, child, running)


def is_being_run(folder: "TrialFolder") -> bool:
    """Whether some process holds the trial's lock."""
    from filelock import FileLock, Timeout

    path = folder.path / "running.lock"
    if not path.exists():
        return False
    try:
        with FileLock(str(path), timeout=0, mode=0o600):
            return False
    except Timeout:
        return True
