"""Environments by name: entry points of the group `mcp_evo.environments`, and `python:module:Class` for your own.

A package whose metadata or module is broken is named when its environment is asked for, and hurts no other.
"""

import difflib
import importlib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint, distributions, entry_points
from pathlib import Path
from typing import Any

from trainer.envs import adapters, openenv
from trainer.envs.base import EnvironmentFault, EnvironmentSpec

GROUP = "mcp_evo.environments"


_MALFORMED = (OSError, TypeError, ValueError, KeyError, AttributeError)
"""What `importlib.metadata` raises on files it cannot parse."""


def _registered() -> list[EntryPoint]:
    """The entry points of the group.

    `entry_points` fails as a whole where one installed package has a malformed `entry_points.txt`; then distribution
    by distribution, which is ten times slower. Of two installations of one distribution the first on the path counts,
    as it does for an import.
    """
    try:
        return list(entry_points(group=GROUP))
    except _MALFORMED:
        found: dict[str, list[EntryPoint]] = {}
        for distribution in distributions():
            try:
                found.setdefault(distribution.name, list(distribution.entry_points.select(group=GROUP)))
            except _MALFORMED:
                continue
        return [point for points in found.values() for point in points]


def _points() -> dict[str, dict[str, EntryPoint]]:
    """Environment name → {distribution: its entry point}."""
    found: dict[str, dict[str, EntryPoint]] = {}
    for point in _registered():
        who = point.dist.name if point.dist is not None else "an unnamed package"
        found.setdefault(point.name, {})[who] = point
    return found


def names() -> list[str]:
    """The registered names."""
    return sorted(_points())


def is_shipped(name: str) -> bool:
    """Whether an environment is ours: its module needs no torch, so that any process may load it."""
    points = _points().get(name, {})
    return len(points) == 1 and all(point.value.startswith("trainer.envs.") for point in points.values())


def load(name: str, folders: tuple[Path, ...] = (), env_args: Mapping[str, Any] | None = None) -> EnvironmentSpec:
    """The environment called `name`.

    `folders` are appended to `sys.path`, never prepended, so that a user's `trainer.py` cannot hide ours. `env_args`
    reach an OpenEnv client's constructor (`base_url`); other classes get them in `tasks`. Raises EnvironmentFault that
    lists what is allowed.
    """
    if name.startswith("python:"):
        return spec_of(name, load_object(name, folders), env_args or {})
    points = _points()
    if name not in points:
        near = difflib.get_close_matches(name, points, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise EnvironmentFault(
            f"unknown environment {name!r}. Allowed: {', '.join(sorted(points))}, or python:module:Class for your own."
            f"{hint}"
        )
    return spec_of(name, _load_point(name, points[name]), env_args or {})


def _load_point(name: str, points: dict[str, EntryPoint]) -> Any:
    if len({point.value for point in points.values()}) > 1:
        who = ", ".join(f"{distribution} ({point.value})" for distribution, point in sorted(points.items()))
        raise EnvironmentFault(
            f"environment {name} is registered by several packages: {who}. Uninstall one, or name the class: "
            "env=python:module:Class."
        )
    distribution, point = next(iter(points.items()))
    try:
        return point.load()
    except Exception as error:  # a package may raise anything while it is imported
        raise EnvironmentFault(
            f"environment {name} of the package {distribution} cannot be loaded ({point.value}): "
            f"{type(error).__name__}: {error}. Mend or uninstall {distribution}."
        ) from error


def spec_of(name: str, thing: Any, env_args: Mapping[str, Any]) -> EnvironmentSpec:
    """The environment that a class, or a function that builds one, stands for. Raises EnvironmentFault."""
    environment, factory = (thing, thing) if isinstance(thing, type) else adapters.from_factory(name, thing)
    if openenv.is_openenv(environment):
        return openenv.spec_of(name, environment, factory, env_args)
    if environment is factory and not adapters.needs_facade(environment):
        return EnvironmentSpec.of(name, environment)
    facade = EnvironmentSpec.of(name, adapters.facade_of(environment, factory))
    own = dict(inspect.getmembers(environment, inspect.ismethod))
    return replace(facade, tasks=own.get("tasks"), solution=own.get("solution"), owner=own.get("owner"))


def load_object(reference: str, folders: tuple[Path, ...] = ()) -> object:
    """What `python:module:name` points at. Raises EnvironmentFault."""
    parts = reference.split(":")
    if len(parts) != 3 or not all(parts) or parts[0] != "python":
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
