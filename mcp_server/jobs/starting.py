"""From a request to a run, as the server does it: policy in force, values with their origin, one run for a key.

Own code (`python:` environments and rewards) is never taken from a tool's arguments: a trajectory could talk an agent
into naming a module. A person names it in a config file and starts with `mcp-evo train --config`.
"""

import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcp_server.state import ServerState
from trainer.runs.wording import counted

if TYPE_CHECKING:
    from trainer.config import TrainingConfig
    from trainer.runs.registry import Run
    from trainer.runs.types import RunDocument
    from trainer.settings import Resolved

STOP_ANSWER_S = 3.0
"""How long a stop waits for the run's end before it answers that the run is ending."""

SHOWN_DEFAULTS = frozenset({"env", "model", "difficulty", "problems", "seed"})
"""Fields that are shown even where nobody chose them."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StartRequest:
    """Arguments of a start."""

    request: str
    overrides: dict[str, Any] = field(default_factory=dict)
    profile: str | None = None
    key: str | None = None
    confirmed: bool = False
    session: str | None = None
    resume: str | None = None
    """A run to go on with, instead of a request."""


@dataclass(frozen=True)
class Started:
    """What came of it."""

    document: "RunDocument | None"
    """None: a confirmation is needed first."""
    config: "TrainingConfig"
    plan: str
    """The plan in a few words."""
    settings: tuple[tuple[str, Any, str], ...] = ()
    """(field, value, origin)."""
    skill_versions: dict[str, str] = field(default_factory=dict)
    not_understood: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    existing: bool = False


def start_training_run(state: ServerState, wanted: StartRequest) -> Started:
    """Starts a run, or finds the one of the same key. Raises ConfigError, RunError, WorkspaceError, BankError."""
    if wanted.resume is not None:
        return _go_on(state, wanted, wanted.resume)
    if not wanted.request.strip():
        raise _nothing_asked()
    from filelock import FileLock

    from mcp_server.policy_in_force import policy_in_force
    from trainer.runs.launch import start_run
    from trainer.settings import resolve

    workspace = state.workspace()
    resolve(wanted.request, wanted.overrides, folder=state.folder, override_source="override")
    policy = policy_in_force(workspace, wanted.profile)
    resolved = resolve(
        wanted.request,
        wanted.overrides,
        policy=policy.config,
        profile=wanted.profile,
        override_source="override",
        folder=state.folder,
    )
    refuse_own_code(resolved)
    if resolved.config.mode == "approve" and not wanted.confirmed:
        return _started(None, resolved, policy.versions, wanted.overrides)
    with FileLock(str(workspace.runs / ".start.lock"), mode=0o600):
        known = None if wanted.key is None else run_with_key(state, wanted.key)
        if known is not None:
            return _existing(known, wanted)
        extra = {} if wanted.key is None else {"start_key": wanted.key}
        directory = start_run(
            workspace,
            resolved,
            launcher=state.launcher(),
            session=wanted.session,
            skill_versions=policy.versions,
            **extra,
        )
    state.expect_runs()
    return _started(directory.read_document(), resolved, policy.versions, wanted.overrides)


def _nothing_asked() -> Exception:
    from trainer.runs.errors import RunError

    return RunError("request is missing: say what to train, or give resume with the id of a run that ended early")


def _go_on(state: ServerState, wanted: StartRequest, run_id: str) -> Started:
    """Resumes a run, as `mcp-evo runs resume` does: a new run, with the settings of the old one. While that one has not
    ended, asking again finds it. Raises RunError, WorkspaceError."""
    from filelock import FileLock

    from trainer.runs.errors import RunError
    from trainer.runs.registry import find_run, list_runs
    from trainer.runs.resume import resume_run
    from trainer.runs.workspace import Workspace

    if wanted.request.strip() or wanted.overrides or wanted.profile or wanted.confirmed:
        raise RunError("a resumed run keeps its request and settings: give resume alone, or with a key of its own")
    workspace = Workspace(state.root)
    launcher = state.launcher()
    if state.exists:
        launcher.tick(workspace)  # a killed run has its final state before it is looked at
    old = find_run(workspace, run_id)
    with FileLock(str(workspace.runs / ".start.lock"), mode=0o600):
        known = None if wanted.key is None else run_with_key(state, wanted.key)
        if known is not None and known.document.parent_run != old.directory.run_id:
            raise RunError(f"key {wanted.key!r} belongs to run {known.document.run_id}. Use another key")
        for run in list_runs(workspace):
            if run.document.parent_run == old.directory.run_id and not run.document.state.is_final:
                known = known or run
        if known is not None:
            from mcp_server.views.runs import run_line

            plan = f"{run_line(known.document)}, resumed from {old.directory.run_id}"
            return Started(known.document, known.directory.read_config(), plan, existing=True)
        extra = {} if wanted.key is None else {"start_key": wanted.key}
        resumed = resume_run(workspace, old, session=wanted.session, **extra)
        launcher.tick(workspace, lock_timeout_s=10.0)
    state.expect_runs()
    config = resumed.directory.read_config()
    where = f"from step {resumed.step}" if resumed.step else "from the beginning, as it left no complete checkpoint"
    document = resumed.directory.read_document()
    return Started(document, config, f"goes on with {resumed.parent} {where}: {plan_text(config)}")


def run_with_key(state: ServerState, key: str) -> "Run | None":
    """The run that was started under a key."""
    from trainer.runs.registry import list_runs
    from trainer.runs.workspace import Workspace

    for run in list_runs(Workspace(state.root)):
        if (run.document.model_extra or {}).get("start_key") == key:
            return run
    return None


def _existing(known: "Run", wanted: StartRequest) -> Started:
    from mcp_server.views.runs import run_line
    from trainer.runs.errors import RunError

    document = known.document
    if document.request != wanted.request:
        raise RunError(
            f"key {wanted.key!r} belongs to run {document.run_id}, which was started by another request "
            f"({document.request!r}). Use another key for another run"
        )
    return Started(document, known.directory.read_config(), run_line(document), existing=True)


def refuse_own_code(resolved: "Resolved") -> None:
    """Raises ConfigError where the configuration would import code of the user's, named by a tool's arguments."""
    from trainer.config import ConfigError

    config = resolved.config
    own = ["env"] if config.env.startswith("python:") else []
    own += ["reward"] if config.reward is not None else []  # whatever is written there names a function of the user's
    if own or config.folder is not None:
        what = ", ".join(own) or "folder"
        raise ConfigError(
            f"{what} names Python code of the user's, which a tool call may not choose. A person starts such a run in "
            "a terminal, with a config file that they wrote: mcp-evo train --config FILE"
        )


def overruled(resolved: "Resolved", overrides: dict[str, Any]) -> list[str]:
    """Overrides that had no effect, because the request says something else."""
    values = resolved.config.model_dump(mode="json")
    return [
        f"override {name}={value!r} had no effect: the request says {values[name]!r}, and what it says comes first"
        for name, value in overrides.items()
        if name in values and resolved.provenance[name]["source"] == "request" and values[name] != value
    ]


def _started(
    document: "RunDocument | None", resolved: "Resolved", versions: dict[str, str], overrides: dict[str, Any]
) -> Started:
    return Started(
        document=document,
        config=resolved.config,
        plan=plan_text(resolved.config),
        settings=tuple(shown_settings(resolved)),
        skill_versions=versions,
        not_understood=tuple(span.text for span in resolved.unknown),
        warnings=(*resolved.warnings, *overruled(resolved, overrides)),
    )


def plan_text(config: "TrainingConfig") -> str:
    """Model, environment, size and goal in one line."""
    goal = f", goal {config.target_reward:g} on validation" if config.target_reward is not None else ""
    problems = counted(config.problems, f"{config.difficulty} {config.env} problem")
    return (
        f"{config.model} on {problems}, at most {counted(config.planned_steps, 'step')} of "
        f"{counted(config.episodes_per_step, 'episode')}{goal}"
    )


def shown_settings(resolved: "Resolved") -> list[tuple[str, Any, str]]:
    """(field, value, origin) of everything that somebody chose."""
    shown = []
    for name, value in resolved.config.model_dump(mode="json").items():
        origin = resolved.provenance[name]
        source = str(origin["source"])
        if source == "default" and (name not in SHOWN_DEFAULTS):
            continue
        detail = origin.get("detail")
        text = source if source == "default" or not detail else f"{source}: {detail}"
        shown.append((name, value, text))
    return shown


def stop_in_background(state: ServerState, run_id: str | None) -> "RunDocument":
    """Asks a run to stop and sees to it; answers with how far that is after a moment. Raises RunError."""
    from trainer.runs import supervise
    from trainer.runs.errors import RunError
    from trainer.runs.registry import find_run
    from trainer.runs.workspace import Workspace

    directory = find_run(Workspace(state.root), run_id).directory

    def stop() -> None:
        try:
            supervise.stop_run(directory)
        except (RunError, OSError) as error:  # whoever asked learns it below, or at the next look
            logger.warning("run %s could not be stopped: %s", directory.run_id, error)

    stopping = threading.Thread(target=stop, name="stop-run", daemon=True)
    stopping.start()
    stopping.join(STOP_ANSWER_S)
    return directory.read_document()
