"""Thresholds of the detectors, from the policy of `rllm-monitor`: the only place where they are written.

A run carries the policy it was started under in `monitor.json`, so that worker, server and a later replay judge it
alike. What that document does not set (an older bank) comes from the policy that is shipped with the package.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Self

from skill_bank.files import read_json, write_json_atomic
from skill_bank.policy import CompiledPolicy, PolicyError, ResolvedPolicy

SKILL = "rllm-monitor"

FILE_NAME = "monitor.json"

SCHEMA_VERSION = 1


@lru_cache(maxsize=1)
def shipped_policy() -> CompiledPolicy:
    """The compiled policy in the package."""
    with as_file(files("skill_bank") / "bank" / "compiled" / SKILL / "policy.json") as path:
        return CompiledPolicy.load(path)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        known = merged.get(key)
        merged[key] = _merged(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return merged


@dataclass(frozen=True)
class MonitorPolicy:
    """The monitor's values in one context."""

    values: Mapping[str, Any]

    @classmethod
    def shipped(cls, context: Mapping[str, Any] | None = None) -> Self:
        """What the package says. Raises PolicyError for a context that does not exist."""
        return cls(shipped_policy().resolve(context).values)

    @classmethod
    def of(cls, resolved: ResolvedPolicy) -> Self:
        """A bank's policy in its context, over the shipped one."""
        return cls(_merged(shipped_policy().resolve(resolved.context).values, resolved.values))

    @classmethod
    def in_force(cls, workspace: Path, context: Mapping[str, Any] | None = None) -> Self:
        """What the live bank of a workspace says in a context; the shipped policy where there is no bank yet.

        Raises PolicyError that names the file.
        """
        try:
            compiled = CompiledPolicy.load(workspace / "skills" / "compiled" / SKILL / "policy.json")
        except FileNotFoundError:
            return cls.shipped(context)
        return cls.of(compiled.resolve(context))

    def with_values(self, **sections: Mapping[str, Any]) -> "MonitorPolicy":
        """A copy with some thresholds changed: `with_values(stall={"seconds": 5})`."""
        return MonitorPolicy(_merged(self.values, sections))

    def limits(self, section: str) -> Mapping[str, float]:
        """The numbers of a section. Raises PolicyError where there is no such section."""
        found = self.values.get(section)
        if not isinstance(found, Mapping):
            raise PolicyError(f"the policy of {SKILL} has no section '{section}'. Compile the skills again")
        return _Limits(section, found)

    def number(self, key: str) -> float:
        """A plain number of the top level. Raises PolicyError."""
        found = self.values.get(key)
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise PolicyError(f"the policy of {SKILL} sets no number '{key}'. Compile the skills again")
        return found

    def warmup_steps(self, planned_steps: int | None) -> int:
        """Steps in which rates are not judged: the larger of a number and a share of the plan."""
        limits = self.limits("warmup")
        return max(int(limits["steps"]), round(limits["share"] * (planned_steps or 0)))

    @property
    def cooldown_steps(self) -> int:
        return int(self.number("cooldown_steps"))

    def save(self, folder: Path) -> None:
        """Writes `monitor.json` of a run."""
        write_json_atomic(folder / FILE_NAME, {"schema_version": SCHEMA_VERSION, "values": self.values})

    @classmethod
    def load(cls, folder: Path) -> "MonitorPolicy | None":
        """The policy that a run carries; None where it carries none. Raises PolicyError that names the file."""
        path = folder / FILE_NAME
        try:
            document = read_json(path)
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            raise PolicyError(f"{path} cannot be read: {error}") from error
        values = document.get("values") if isinstance(document, dict) else None
        if not isinstance(values, dict):
            raise PolicyError(f"{path} holds no `values`. Remove it to use the policy of the package")
        return cls(_merged(shipped_policy().resolve({}).values, values))


class _Limits(dict[str, float]):
    """Numbers of a section; a missing one is a named error."""

    def __init__(self, section: str, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self._section = section

    def __missing__(self, name: str) -> float:
        raise PolicyError(f"the policy of {SKILL} sets no '{self._section}.{name}'. Compile the skills again")
