"""The source files of a skill, and a `bank.yaml` for some of them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from skill_bank.packages.types import PackageError, PackedSkill

LIMIT = 16 * 1024 * 1024
"""No source of a skill is larger (bytes)."""


def read_sources(root: Path, group: str, skill: str) -> dict[str, bytes]:
    """Path inside the bank → content, for every regular file of a skill's folder. Links are refused."""
    folder = root / group / skill
    found: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(root).as_posix()
        if path.is_symlink():
            raise PackageError(f"{relative} is a link: packages hold files only.")
        if not path.is_file() or path.name.endswith((".lock", ".tmp")) or path.name.startswith("."):
            continue
        if path.stat().st_size > LIMIT:
            raise PackageError(f"{relative} has more than {LIMIT} bytes: that is no source of a skill.")
        found[relative] = path.read_bytes()
    return found


def bank_text(groups: Mapping[str, str], skills: Sequence[PackedSkill], layout: str) -> str:
    """A `bank.yaml` that declares these skills."""
    lines = ['version: "1.0"', "", "groups:"]
    for group, description in groups.items():
        lines += [f"  {group}:", f"    description: {json.dumps(description, ensure_ascii=False)}", "    skills:"]
        for one in skills:
            if one.group == group:
                lines += entry_lines(one, "      ")
    if layout != "plain":
        lines += ["", "settings:", f"  layout: {layout}"]
    return "\n".join(lines) + "\n"


def entry_lines(skill: PackedSkill, indent: str) -> list[str]:
    """The lines of `bank.yaml` that declare a skill."""
    lines = [f"{indent}{skill.name}:", f"{indent}  output: .claude/skills/{skill.name}/SKILL.md"]
    for key, names in (("children", skill.children), ("protected", skill.protected)):
        if names:
            lines.append(f"{indent}  {key}: [{', '.join(names)}]")
    return lines
