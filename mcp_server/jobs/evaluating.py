"""Evaluations and questions to a model as the tools see them: started here, run by processes of their own."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mcp_server.state import ServerState

if TYPE_CHECKING:
    from pathlib import Path

    from trainer.evaluation.chat_types import ChatAnswer
    from trainer.evaluation.folder import EvaluationFolder
    from trainer.evaluation.types import EvaluationPlan, Standing
    from trainer.runs.workspace import Workspace

RECENT = 50
"""Evaluations looked at to see whether one is running."""


@dataclass(frozen=True)
class EvaluationWish:
    """The arguments of the tool."""

    target: str | None
    env: str | None
    difficulty: str | None
    n: int
    samples: int
    split: Literal["test", "validation", "train", "all"]
    seeds: tuple[int, ...]
    against: tuple[str, ...]


@dataclass(frozen=True)
class EvaluationView:
    """How an evaluation stands."""

    plan: "EvaluationPlan"
    standing: "Standing"
    folder: "Path"


def start(state: ServerState, wish: EvaluationWish) -> EvaluationView:
    """Starts an evaluation. Raises EvaluationError, ConfigError, RunError."""
    from mcp_server.policy_in_force import policy_in_force
    from skill_bank.files import lock_of
    from trainer.evaluation.folder import evaluations_of, start_evaluation
    from trainer.evaluation.plan import SPLITS, Wishes, plan_evaluation

    refuse_code_of_the_user(wish.env)
    wishes = Wishes(
        env=wish.env,
        difficulty=wish.difficulty,
        n=wish.n,
        samples=wish.samples,
        splits=SPLITS if wish.split == "all" else (wish.split,),
        seeds=wish.seeds or None,
        against=wish.against,
    )
    workspace = state.workspace()
    policy = policy_in_force(workspace).config
    plan = plan_evaluation(workspace, wish.target or "latest", wishes, policy=policy, folder=state.folder)
    with lock_of(evaluations_of(workspace)):  # two calls at once must not both find the last place free
        _refuse_too_many(workspace)
        folder = start_evaluation(workspace, plan)
    identity = folder.identity()
    if identity is not None:
        state.children.append(identity)  # so that its end is taken note of
    return view_of(folder)


def _refuse_too_many(workspace: "Workspace") -> None:
    """As many evaluations side by side as runs; more would slow each other down and everything else."""
    from skill_bank.files import read_json
    from trainer.evaluation.folder import EvaluationFolder, evaluations_of
    from trainer.evaluation.types import EvaluationError
    from trainer.runs.workspace import ID_PATTERN

    parent = evaluations_of(workspace)
    names = [path.name for path in parent.iterdir() if ID_PATTERN.match(path.name)] if parent.is_dir() else []
    folders = [EvaluationFolder(parent / name) for name in sorted(names)[-RECENT:]]
    running = [one.path.name for one in folders if one.standing().state == "running"]
    limit = workspace.config().max_concurrent_runs
    if len(running) >= limit:
        target = read_json(parent / running[0] / "plan.json").get("target")
        raise EvaluationError(
            f"evaluation {running[0]} of {target} is running and {limit} may run at the same time (max_concurrent_runs "
            f"of config.yaml). Wait for it: evaluate_model with evaluation_id {running[0]}"
        )


def look(state: ServerState, evaluation_id: str) -> EvaluationView:
    """How an evaluation stands. Raises EvaluationError, WorkspaceError."""
    from trainer.evaluation.folder import find_evaluation

    return view_of(find_evaluation(state.workspace(), evaluation_id))


def view_of(folder: "EvaluationFolder") -> EvaluationView:
    """Reads a folder. Raises EvaluationError."""
    return EvaluationView(folder.read_plan(), folder.standing(), folder.path)


def refuse_code_of_the_user(env: str | None) -> None:
    """Raises ConfigError for an environment that is the user's own Python code, named by a tool's argument."""
    from trainer.config import ConfigError

    if env is not None and env.startswith("python:"):
        raise ConfigError(
            f"env {env!r} names Python code of the user's, which a tool call may not choose. A run that a person began "
            "with it can be evaluated by its id; anything else in a terminal: mcp-evo evaluate"
        )


def ask_model(
    state: ServerState,
    target: str | None,
    prompt: str | None,
    problem: int | None,
    env: str | None,
    temperature: float,
    seed: int | None,
) -> "ChatAnswer":
    """One answer of a model in a process that ends with it. Raises EvaluationError, ConfigError, RunError."""
    from mcp_server.policy_in_force import policy_in_force
    from trainer.evaluation.chat import ChatProcess, plan_chat
    from trainer.evaluation.chat_types import ChatQuestion
    from trainer.evaluation.plan import Wishes
    from trainer.evaluation.types import EvaluationError

    if (prompt is None or not prompt.strip()) == (problem is None):
        raise EvaluationError("try_model needs a prompt or the number of a problem, one of the two")
    refuse_code_of_the_user(env)
    workspace = state.workspace()
    wishes = Wishes(env=env, temperature=temperature, seeds=None if seed is None else (seed,))
    policy = policy_in_force(workspace).config
    plan = plan_chat(workspace, target or "latest", wishes, policy=policy, folder=state.folder)
    with ChatProcess.start(workspace, plan) as process:
        messages = [] if prompt is None else [{"role": "user", "content": prompt}]
        return process.ask(ChatQuestion(messages=messages, problem=problem))
