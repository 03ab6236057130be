"""The documents of the dashboard by their paths: `runs`, `runs/<id>/steps`, `patches/<id>` and so on.

A path is split at its slashes before anything is looked up, and each part must be a plain name: no part reaches a file
system that has not been checked as an id by the module that knows it.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mcp_server.dashboard.episodes import episode_list, episode_page, episode_steps
from mcp_server.dashboard.lessons import pool_list, pool_page
from mcp_server.dashboard.patches import patch_list, patch_page, waits_for_a_person
from mcp_server.dashboard.rounds import round_list, round_page
from mcp_server.dashboard.runs import run_list, run_page, run_steps
from mcp_server.dashboard.shaping import NotThere, Question, shaped
from mcp_server.dashboard.skills import skill_difference, skill_list, skill_page
from mcp_server.dashboard.source import Source
from mcp_server.tooling import is_domain_error

_PART = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")

MAX_PATH = 400

Answer = Callable[[Source, list[str], Question], dict[str, Any]]


def overview(source: Source) -> dict[str, Any]:
    """Where things stand: what runs, what waits for a person, how much there is of everything."""
    from optimizer.round_store import RoundStore
    from trainer.runs.registry import list_runs

    runs = list_runs(source.workspace())
    home = source.home()
    records = [] if home is None else home.patches.all()
    return {
        "workspace": source.state.folder.name,
        "active": [one.document.run_id for one in runs if not one.document.state.is_final],
        "runs": len(runs),
        "rounds": len(RoundStore(source.root).numbers()),
        "waiting": [one.patch_id for one in records if waits_for_a_person(one)],
        "patches": len(records),
        "in_force": sum(one.stage == "active" for one in records),
        "pools": _count(source.root / "experience", "*.db"),
        "skills": 0 if home is None else len(home.bank.skills()),
    }


def _count(folder: Path, pattern: str) -> int:
    return sum(1 for _ in folder.glob(pattern)) if folder.is_dir() else 0


ANSWERS: tuple[tuple[str, Answer], ...] = (
    ("overview", lambda source, names, question: overview(source)),
    ("runs", lambda source, names, question: run_list(source, question)),
    ("runs/*", lambda source, names, question: run_page(source, *names)),
    ("runs/*/steps", lambda source, names, question: run_steps(source, names[0], question)),
    ("runs/*/episodes", lambda source, names, question: episode_steps(source, *names)),
    ("runs/*/episodes/*", lambda source, names, question: episode_list(source, *names)),
    ("runs/*/episodes/*/*", lambda source, names, question: episode_page(source, *names)),
    ("rounds", lambda source, names, question: round_list(source, question)),
    ("rounds/*", lambda source, names, question: round_page(source, *names)),
    ("patches", lambda source, names, question: patch_list(source, question)),
    ("patches/*", lambda source, names, question: patch_page(source, *names)),
    ("experience", lambda source, names, question: pool_list(source)),
    ("experience/*", lambda source, names, question: pool_page(source, names[0], question)),
    ("skills", lambda source, names, question: skill_list(source)),
    ("skills/*", lambda source, names, question: skill_page(source, *names)),
    ("skills/*/changes", lambda source, names, question: skill_difference(source, names[0], question)),
)
"""Path with `*` for names → what answers it."""


def answer(source: Source, path: str, values: Mapping[str, str]) -> dict[str, Any]:
    """The document of a path. Raises NotThere, BadQuestion."""
    source.workspace()
    parts = path.split("/") if len(path) <= MAX_PATH else []
    if not parts or any(_PART.match(part) is None for part in parts):
        raise NotThere("there is no such document")
    for pattern, function in ANSWERS:
        names = _names(pattern.split("/"), parts)
        if names is not None:
            try:
                found = shaped(function(source, names, Question(values)))
            except Exception as error:
                if not is_domain_error(error):
                    raise
                raise NotThere(str(error)) from error
            assert isinstance(found, dict)
            return found
    raise NotThere("there is no such document")


def _names(pattern: list[str], parts: list[str]) -> list[str] | None:
    """What stands in the places of `*`; None where the path is another one."""
    if len(pattern) != len(parts):
        return None
    if any(wanted not in ("*", part) for wanted, part in zip(pattern, parts, strict=True)):
        return None
    return [part for wanted, part in zip(pattern, parts, strict=True) if wanted == "*"]
