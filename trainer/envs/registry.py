"""Environments by name: entry points of the group `mcp_evo.environments`, and `python:module:Class` for your own."""

import difflib
import importlib
import sys
from importlib.metadata import entry_points
from pathlib import Path

from trainer.envs.base import EnvironmentFault, EnvironmentSpec

GROUP = "mcp_evo.environments"


def names() -> list[str]:
    """The registered names."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def load(name: str, folders: tuple[Path, ...] = ()) -> EnvironmentSpec:
    """The environment called `name`.

    `folders` are appended to `sys.path`, never prepended, so that a user's `trainer.py` cannot hide ours.
    Raises EnvironmentFault that lists what is allowed.
    """
    if name.startswith("python:"):
        return EnvironmentSpec.of(name, _own_class(name, folders))
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        near = difflib.get_close_matches(name, points, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise EnvironmentFault(
            f"unknown environment {name!r}. Allowed: {', '.join(sorted(points))}, or python:module:Class for your own."
            f"{hint}"
        )
    return EnvironmentSpec.of(name, points[name].load())


def load_object(reference: str, folders: tuple[Path, ...] = ()) -> object:
    """What `python:module:name` points at. Raises EnvironmentFault."""
    parts = reference.split(":")
    if len(parts) != 3 or not all(parts):
        raise EnvironmentFault(f"{reference!r} does not name an object of yours; write python:module:Name.")
    for folder in folders:
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
    try:
        module = importlib.import_module(parts[1])
    except ModuleNotFoundError as error:
        if error.name != parts[1].split(".")[0]:
            raise EnvironmentFault(f"{reference}: importing {parts[1]} failed: {error}") from error
        where = ", ".join(str(f) for f in folders) or "the Python path"
        raise EnvironmentFault(f"{reference}: there is no module {parts[1]} in {where}.") from error
    except Exception as error:
        raise EnvironmentFault(f"{reference}: importing {parts[1]} failed: {type(error).__name__}: {error}") from error
    if parts[2] not in vars(module):
        raise EnvironmentFault(f"{reference}: module {parts[1]} ({module.__file__}) has no {parts[2]}.")
    found: object = vars(module)[parts[2]]
    return found


def _own_class(name: str, folders: tuple[Path, ...]) -> type:
    found = load_object(name, folders)
    if not isinstance(found, type):
        raise EnvironmentFault(f"{name} is not a class.")
    return found
