"""No patch may carry the exam: text of a grader, or problems of an evaluation, inside a skill would raise a score
without making anything better.

Looked at are the validation and test problems of the workspace's newest runs (each exam once), word for word without
case, width and spacing, and the source of our environments, where the graders are, statement by statement. Problems of
a user's own Python environment are not made here, because that would run their code.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from trainer.config import TrainingConfig
from trainer.datafiles import DataFault
from trainer.envs import registry
from trainer.envs.base import EnvironmentFault
from trainer.experience.leaks import Guarded, guarded_rows
from trainer.experience.tokens import normalised
from trainer.runs.errors import RunError
from trainer.runs.registry import list_runs
from trainer.runs.workspace import Workspace
from trainer.tasks import build_tasks

NEWEST_RUNS = 20
"""Runs whose exams are known; older ones are evidence for nothing that is proposed today."""

_NO_GRADERS = ("tasks", "solution")
"""Methods of an environment that make problems and show how they are solved."""

_SHORTEST = 24
"""Characters of a statement of a grader without spaces; shorter ones occur by chance."""

_SHORTEST_PROBLEM = 8
"""Characters of a problem, for the same reason."""


def exam_text(workspace: Workspace, text: str) -> str | None:
    """What the text holds of an exam, in words; None where it holds nothing."""
    grader = grader_text(text)
    if grader is not None:
        return grader
    whole = f" {normalised(text)} "
    for one in guards_of(workspace):
        if len(one.prompt) >= _SHORTEST_PROBLEM and _stands_in(whole, one.prompt):
            return f"it holds a task of {one.origin}: {one.prompt[:80]!r}"
    return None


def _stands_in(text: str, problem: str) -> bool:
    """Whether the problem stands in the text as it is, not inside of a longer word or number."""
    at = text.find(problem)
    while at >= 0:
        before, after = text[at - 1], text[at + len(problem)]
        if not (before.isalnum() and problem[0].isalnum()) and not (after.isalnum() and problem[-1].isalnum()):
            return True
        at = text.find(problem, at + 1)
    return False


def guards_of(workspace: Workspace) -> list[Guarded]:
    """Validation and test problems of the newest runs. A run that cannot be read, or whose problems cannot be made any
    more, guards nothing."""
    found: list[Guarded] = []
    seen: set[str] = set()
    for run in list_runs(workspace)[:NEWEST_RUNS]:
        try:
            config = run.directory.read_config()
        except RunError:
            continue
        key = repr([config.env, config.difficulty, config.seed, config.data, config.problems, config.test_problems])
        if key in seen or not registry.is_shipped(config.env):
            continue
        seen.add(key)
        found += _exams(run.document.run_id, config)
    return found


def _exams(run_id: str, config: TrainingConfig) -> list[Guarded]:
    folder = Path(config.folder) if config.folder is not None else Path.cwd()
    try:
        tasks = build_tasks(config, registry.load(config.env, (), config.env_args), folder)
    except (DataFault, EnvironmentFault, OSError):
        return []
    return [
        *guarded_rows(tasks.validation, f"{run_id}:validation"),
        *guarded_rows(tasks.test, f"{run_id}:test"),
    ]


def grader_text(text: str) -> str | None:
    """A statement of one of our graders that stands in the text."""
    squeezed = "".join(text.split())
    for name, statement in _statements():
        if statement in squeezed:
            return f"it holds code of the grader of {name}: {statement[:80]!r}"
    return None


@lru_cache(maxsize=1)
def _statements() -> tuple[tuple[str, str], ...]:
    return tuple(_graders())


def _graders() -> Iterator[tuple[str, str]]:
    """(environment, statement without spaces) of the graders of the environments that come with the package."""
    for name in registry.names():
        if not registry.is_shipped(name):
            continue
        try:
            factory = registry.load(name).factory
        except EnvironmentFault:  # an extra that is not installed
            continue
        if not isinstance(factory, type):
            continue
        for member, function in inspect.getmembers(factory, inspect.isfunction):
            if member not in _NO_GRADERS:
                yield from ((name, one) for one in _parts(inspect.getsource(function)))


def _parts(source: str) -> Iterator[str]:
    """The statements of a function's body but its docstring, without spaces."""
    (function,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(function, ast.FunctionDef)
    for statement in ast.walk(function):
        if isinstance(statement, ast.Return | ast.Assign | ast.AugAssign | ast.Expr | ast.AnnAssign):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue
            squeezed = "".join(ast.unparse(statement).split())
            if len(squeezed) >= _SHORTEST:
                yield squeezed
