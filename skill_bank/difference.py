"""What differs between two states of a skill: the text line by line, the policy value by value; and its change log."""

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from skill_bank.patchfile import parse_patch
from skill_bank.policy import Assignment, CompiledPolicy, describe_condition
from skill_bank.reading import ReadableBank
from skill_bank.versions import VersionRecord

POLICY_FILE = "policy.json"


@dataclass(frozen=True)
class PolicyChange:
    """A value that holds under one condition in one state and not, or otherwise, in the other."""

    key: str
    when: Mapping[str, Any] | None
    before: Any
    """None: it was not set."""
    after: Any
    """None: it is not set any more."""
    patch: str
    """Which patch (or "base") set the newer of the two."""

    def __str__(self) -> str:
        where = "" if self.when is None else f" (where {describe_condition(self.when)})"
        old, new = (
            "not set" if one is None else json.dumps(one, ensure_ascii=False) for one in (self.before, self.after)
        )
        return f"{self.key}{where}: {old} → {new} [{self.patch}]"

    def as_dict(self) -> dict[str, Any]:
        """For a JSON document."""
        when = None if self.when is None else dict(self.when)
        return {"key": self.key, "when": when, "before": self.before, "after": self.after, "patch": self.patch}


@dataclass(frozen=True)
class Difference:
    """What differs between two states of a compiled skill."""

    text: str
    """Unified diff of everything but policy.json; empty where nothing differs."""
    policy: tuple[PolicyChange, ...]

    def __bool__(self) -> bool:
        return bool(self.text or self.policy)


def compare(before: Mapping[str, bytes], after: Mapping[str, bytes], old: str, new: str) -> Difference:
    """The difference of two compiled folders (file name → content). `old` and `new` label them in the diff."""
    lines: list[str] = []
    for name in sorted({*before, *after} - {POLICY_FILE}):
        first = before.get(name, b"").decode("utf-8", "replace").splitlines(keepends=True)
        second = after.get(name, b"").decode("utf-8", "replace").splitlines(keepends=True)
        lines += difflib.unified_diff(first, second, f"{name} ({old})", f"{name} ({new})", n=2)
    return Difference("".join(lines), tuple(_policy_changes(before.get(POLICY_FILE), after.get(POLICY_FILE))))


def _policy_changes(before: bytes | None, after: bytes | None) -> Iterable[PolicyChange]:
    old, new = _rules(before), _rules(after)
    for rule in sorted({*old, *new}):
        first, second = old.get(rule), new.get(rule)
        if first is not None and second is not None and _same(first.value, second.value):
            continue
        one = second or first
        assert one is not None
        yield PolicyChange(
            one.key,
            one.when,
            None if first is None else first.value,
            None if second is None else second.value,
            one.origin.patch,
        )


def _same(first: Any, second: Any) -> bool:
    """Equal in value and type: 1 and 1.0 are two values."""
    return json.dumps(first) == json.dumps(second)


def _rules(data: bytes | None) -> dict[tuple[str, str], Assignment]:
    """(key, condition) → the assignment that wins there."""
    if data is None:
        return {}
    policy = CompiledPolicy.from_document(json.loads(data))
    return {(one.key, json.dumps(one.when, sort_keys=True)): one for one in policy.assignments}


def changelog(bank: ReadableBank, skill: str) -> str:
    """The versions of a skill as Markdown, newest first: why, which patches, which lines and values changed."""
    history = bank.history(skill)
    parts = [f"# History of {skill}", ""]
    for record in reversed(history):
        earlier = next((one for one in history if one.number == record.number - 1), None)
        parts += _entry(bank, record, earlier)
    if not history:
        parts += ["No version yet.", ""]
    return "\n".join(parts)


def _entry(bank: ReadableBank, record: VersionRecord, earlier: VersionRecord | None) -> list[str]:
    day = datetime.fromtimestamp(record.created_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    lines = [f"## {record.label} ({day})", "", f"{record.reason}. Digest `{record.digest[:12]}`.", ""]
    if earlier is None:
        return [*lines, *_patches(bank, record, record.patches, "in force")]
    lines += _patches(bank, record, [one for one in record.patches if one not in earlier.patches], "now in force")
    lines += _patches(bank, earlier, [one for one in earlier.patches if one not in record.patches], "no longer applied")
    files = bank.version_files(record.skill, record.number)
    change = compare(bank.version_files(earlier.skill, earlier.number), files, "before", "after")
    lines += [f"- policy `{one.key}`{_where(one)}: {_value(one.before)} → {_value(one.after)}" for one in change.policy]
    diff = change.text.split("\n")
    added = sum(1 for line in diff if line.startswith("+") and not line.startswith("+++"))
    removed = sum(1 for line in diff if line.startswith("-") and not line.startswith("---"))
    lines.append(f"- text: {added} lines added, {removed} removed" if added or removed else "- text unchanged")
    return [*lines, ""]


def _where(change: PolicyChange) -> str:
    return "" if change.when is None else f" ({describe_condition(change.when)})"


def _value(value: Any) -> str:
    return "not set" if value is None else f"`{json.dumps(value, ensure_ascii=False)}`"


def _patches(bank: ReadableBank, record: VersionRecord, names: Iterable[str], what: str) -> list[str]:
    sources = bank.version_sources(record.skill, record.number)
    lines = []
    for name in names:
        found = next((path for path in sources if path.endswith(f"/patches/{name}.md")), None)
        patch = None if found is None else parse_patch(sources[found].decode("utf-8"), found, record.skill)[0]
        told = f": {patch.description}" if patch is not None and patch.description else ""
        lines.append(f"- `{name}` {what}{told}")
    return lines
