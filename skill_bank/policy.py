"""Policy: typed values with conditions, compiled from the policy blocks of a skill, resolved for one run.

1. A compiled policy is an ordered list of *assignments*: a dotted key (`learning_rate.default`), a value, an optional
   condition (`when`) and its *origin* (which section of which patch of which file said so).
2. Resolving in a context folds the assignments whose condition holds, in order; the later one wins, value by value.
3. A condition names context keys. One that asks for a key the context does not know (missing or None) does not hold.

`policy.json` is self-contained: reading and resolving it needs no bank. Parsing and checking blocks is
`skill_bank.blocks`, `skill_bank.schema` and `skill_bank.policy_check`.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from skill_bank.files import read_json, write_bytes_atomic

POLICY_SCHEMA_VERSION = 1

CONTEXT_KEYS = ("params", "model", "env", "difficulty", "lora", "device")
"""What a condition may ask about: parameters of the model, its name, the environment, its difficulty, LoRA, device."""

KEY_PATTERN = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*\Z")
"""A dotted key: lower-case words joined by dots."""

_UNIT = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}
_COUNT = r"(\d+(?:\.\d+)?)\s*([KMBkmb]?)"
_BOUND = re.compile(rf"(<=|>=|<|>)\s*{_COUNT}\Z")
_SPAN = re.compile(rf"{_COUNT}\s*-\s*{_COUNT}\Z")


class PolicyError(ValueError):
    """A policy document, condition or key that cannot be used: says what was wrong and what is allowed."""


@dataclass(frozen=True)
class ParamRange:
    """Model sizes in parameters: `low` included, `high` excluded."""

    low: int
    high: float
    """An integer, or infinity."""

    def __contains__(self, params: int) -> bool:
        return self.low <= params < self.high

    def within(self, other: Self) -> bool:
        """Whether every size of this range lies in `other`."""
        return other.low <= self.low and self.high <= other.high


def _count(digits: str, unit: str) -> int:
    value = float(digits) * _UNIT[unit.upper()]
    if value != int(value):
        raise PolicyError(f"'{digits}{unit}' is not a whole number of parameters")
    return int(value)


@lru_cache(maxsize=4096)
def parse_params(text: str) -> ParamRange:
    """`<10M`, `<=10M`, `>2B`, `>=2B` or `300M-2B` (lower bound included, upper excluded). Units: K, M, B."""
    bound = _BOUND.match(text.strip())
    if bound is not None:
        sign, count = bound[1], _count(bound[2], bound[3])
        found = {
            "<": ParamRange(0, count),
            "<=": ParamRange(0, count + 1),
            ">": ParamRange(count + 1, math.inf),
            ">=": ParamRange(count, math.inf),
        }[sign]
    else:
        span = _SPAN.match(text.strip())
        if span is None:
            raise PolicyError(f"params '{text}' is not a range. Write one like '<10M', '>=2B' or '300M-2B'")
        found = ParamRange(_count(span[1], span[2]), _count(span[3], span[4]))
    if found.low >= found.high:
        raise PolicyError(f"params '{text}' holds no model size: its lower bound is not below its upper one")
    return found


def _allowed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def check_condition(when: Any) -> None:
    """Raises PolicyError unless `when` is a condition: {context key: range (params), value or list of values}."""
    if not isinstance(when, Mapping) or not when:
        raise PolicyError(f"`when` must be a mapping of {', '.join(CONTEXT_KEYS)}; leave it out to match always")
    for key, value in when.items():
        if key not in CONTEXT_KEYS:
            raise PolicyError(f"`when` knows no key '{key}'. It may ask about: {', '.join(CONTEXT_KEYS)}")
        if key == "params":
            if not isinstance(value, str):
                raise PolicyError(f"params {value!r} is not a range. Write one like '<10M', '>=2B' or '300M-2B'")
            parse_params(value)
            continue
        kind = bool if key == "lora" else str
        values = _allowed(value)
        if not values or not all(type(one) is kind for one in values):
            raise PolicyError(f"`when.{key}` must be a {kind.__name__} or a list of them, not {value!r}")


def matches(when: Mapping[str, Any] | None, context: Mapping[str, Any]) -> bool:
    """Whether the condition holds in the context; None always holds."""
    if when is None:
        return True
    for key, value in when.items():
        known = context.get(key)
        if known is None:
            return False
        if key == "params":
            if known not in parse_params(value):
                return False
        elif known not in _allowed(value):
            return False
    return True


def implies(narrow: Mapping[str, Any] | None, wide: Mapping[str, Any]) -> bool:
    """Whether `narrow` holds only where `wide` holds too (so a rule under `narrow` stays inside the scope `wide`)."""
    narrow = narrow or {}
    for key, value in wide.items():
        if key not in narrow:
            return False
        if key == "params":
            if not parse_params(narrow[key]).within(parse_params(value)):
                return False
        elif not all(one in _allowed(value) for one in _allowed(narrow[key])):
            return False
    return True


def describe_condition(when: Mapping[str, Any] | None) -> str:
    """A condition as a short phrase: `params <10M, env calculator or lookup`."""
    if not when:
        return "always"
    parts = []
    for key in sorted(when, key=CONTEXT_KEYS.index):
        values = [str(one).lower() if isinstance(one, bool) else str(one) for one in _allowed(when[key])]
        parts.append(f"{key} {' or '.join(values)}")
    return ", ".join(parts)


@dataclass(frozen=True)
class Origin:
    """Where an assignment was written."""

    skill: str
    section: str
    patch: str
    """Patch id, or "base"."""
    file: str
    """Path inside the bank."""
    line: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "skill": self.skill,
            "section": self.section,
            "patch": self.patch,
            "file": self.file,
            "line": self.line,
        }


@dataclass(frozen=True)
class Assignment:
    """One value of one key, perhaps under a condition."""

    key: str
    value: Any
    when: Mapping[str, Any] | None
    origin: Origin

    def as_dict(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "value": self.value,
            "when": None if self.when is None else dict(self.when),
            "from": self.origin.as_dict(),
        }


@dataclass(frozen=True)
class ResolvedPolicy:
    """The values that hold in one context."""

    skill: str
    context: dict[str, Any]
    flat: dict[str, Any]
    """Dotted key → value."""
    provenance: dict[str, dict[str, Any]]
    """Dotted key → {skill, section, patch (id or "base"), when, file, line} of the assignment that won."""
    values: dict[str, Any] = field(default_factory=dict)
    """The same values as nested mappings."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a dotted key, the nested mapping below it, or `default` where the policy says nothing."""
        node: Any = self.values
        for part in key.split("."):
            if not isinstance(node, dict) or part not in node:
                return default
            node = node[part]
        return node

    def require(self, key: str) -> Any:
        """Like `get`, but raises PolicyError where the policy says nothing."""
        found = self.get(key)
        if found is None:
            known = ", ".join(sorted(self.values)) or "nothing"
            raise PolicyError(f"the policy of {self.skill} sets no '{key}' here. It sets: {known}")
        return found

    def to_json(self) -> str:
        """Values and provenance as canonical JSON: equal text means equal policy in this context."""
        document = {"skill": self.skill, "values": self.values, "provenance": self.provenance}
        return json.dumps(document, ensure_ascii=False, sort_keys=True, indent=1)


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested mappings, keys sorted. Raises PolicyError when one key is a value and a mapping."""
    root: dict[str, Any] = {}
    for key in sorted(flat):
        *parents, last = key.split(".")
        node = root
        for part in parents:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise PolicyError(f"policy key '{key}': '{part}' is a plain value and a mapping at the same time")
        if isinstance(node.get(last), dict):
            raise PolicyError(f"policy key '{key}' is a plain value and a mapping at the same time")
        node[last] = flat[key]
    return root


@dataclass(frozen=True)
class CompiledPolicy:
    """The policy of one skill, as its `policy.json` holds it."""

    skill: str
    assignments: tuple[Assignment, ...]
    """In order of merging: base first, then patches in compiled order."""
    profile: str | None = None
    """Profile of the manifest it was compiled with."""

    def resolve(self, context: Mapping[str, Any] | None = None) -> ResolvedPolicy:
        """The values in `context` ({params: int, model: str, env: str, difficulty: str, lora: bool, device: str}).

        Raises PolicyError for a context key that does not exist or a size that is no integer.
        """
        known = dict(context or {})
        for key, value in known.items():
            if key not in CONTEXT_KEYS:
                raise PolicyError(f"a policy context knows no key '{key}'. It may hold: {', '.join(CONTEXT_KEYS)}")
            if key == "params" and value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise PolicyError(f"the policy context's params must be a number of parameters, not {value!r}")
        flat: dict[str, Any] = {}
        provenance: dict[str, dict[str, Any]] = {}
        for one in self.assignments:
            if matches(one.when, known):
                flat[one.key] = one.value
                provenance[one.key] = {
                    **one.origin.as_dict(),
                    "when": None if one.when is None else dict(one.when),
                }
        ordered = {key: provenance[key] for key in sorted(provenance)}
        return ResolvedPolicy(self.skill, known, {key: flat[key] for key in sorted(flat)}, ordered, nest(flat))

    def explain(self, key: str) -> tuple[Assignment, ...]:
        """Every assignment of a dotted key or of the keys below it, in order of merging."""
        return tuple(one for one in self.assignments if one.key == key or one.key.startswith(key + "."))

    @property
    def keys(self) -> tuple[str, ...]:
        """All dotted keys, sorted."""
        return tuple(sorted({one.key for one in self.assignments}))

    @property
    def digest(self) -> str:
        """SHA-256 of `policy.json`, in hex."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """`policy.json`: UTF-8, one assignment a line, the same bytes for the same policy."""
        head = {"schema_version": POLICY_SCHEMA_VERSION, "skill": self.skill, "profile": self.profile}
        lines = [json.dumps(one.as_dict(), ensure_ascii=False, allow_nan=False) for one in self.assignments]
        text = json.dumps(head, ensure_ascii=False)[:-1] + ', "assignments": ['
        text += "\n " + ",\n ".join(lines) + "\n" if lines else ""
        return (text + "]}\n").encode("utf-8")

    def save(self, path: Path) -> None:
        """Writes `policy.json`."""
        write_bytes_atomic(path, self.to_bytes())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a `policy.json`. Raises FileNotFoundError, or PolicyError that names the file."""
        try:
            document = read_json(path)
        except FileNotFoundError:
            raise
        except ValueError as error:
            raise PolicyError(f"{error}. Compile the skill again: mcp-evo skills compile") from error
        return cls.from_document(document, name=str(path))

    @classmethod
    def from_document(cls, document: Any, name: str = "policy") -> Self:
        """The policy of a parsed `policy.json`; unknown fields are ignored. Raises PolicyError that names `name`."""
        if not isinstance(document, dict) or document.get("schema_version") != POLICY_SCHEMA_VERSION:
            raise PolicyError(
                f"{name}: not a policy of version {POLICY_SCHEMA_VERSION}. "
                "Compile the skill again with this version of mcp-evo: mcp-evo skills compile"
            )
        try:
            assignments = tuple(_assignment(row) for row in document["assignments"])
            policy = cls(document["skill"], assignments, document.get("profile"))
        except (KeyError, TypeError, PolicyError) as error:
            raise PolicyError(f"{name}: damaged policy ({error}). Compile the skill again") from error
        return policy


def _assignment(row: Any) -> Assignment:
    origin = row["from"]
    key, when = row["key"], row["when"]
    if not isinstance(key, str) or KEY_PATTERN.match(key) is None:
        raise PolicyError(f"'{key}' is not a policy key")
    if when is not None:
        check_condition(when)
    return Assignment(
        key,
        row["value"],
        when,
        Origin(origin["skill"], origin["section"], origin["patch"], origin["file"], int(origin["line"])),
    )
