"""Small banks for tests, written as a person would write them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SCHEMA = """schema_version: 1
keys:
  rate:
    type: mapping
    order: [min, default, max]
    fields:
      default: {type: number, above: 0, max: 1}
      min: {type: number, above: 0, max: 1}
      max: {type: number, above: 0, max: 1}
  size: {type: integer, min: 1, max: 100}
  plan: {type: string, enum: [fast, slow]}
"""


@dataclass
class SkillFiles:
    """One skill: its sections, the rest of its base, its patches and its manifest."""

    sections: Mapping[str, str]
    patches: Mapping[str, str] = field(default_factory=dict)
    active: Sequence[str] = ()
    disabled: Sequence[str] = ()
    profiles: Mapping[str, Sequence[str]] = field(default_factory=dict)
    schema: str | None = SCHEMA
    group: str = "rllm"
    head: str = ""
    """Text before the first section."""


def patch_text(
    name: str, section: str, body: str = "", *, action: str = "append", status: str = "active", **fields: str
) -> str:
    """A patch file; further front matter fields as YAML text."""
    extra = "".join(f"{key}: {value}\n" for key, value in fields.items())
    head = f"---\nid: {name}\ntarget_section: {section}\naction: {action}\nstatus: {status}\n{extra}---\n"
    return f"{head}\n{body}\n"


def base_text(name: str, skill: SkillFiles) -> str:
    """A base.md."""
    parts = [f"---\nname: {name}\ndescription: Does {name}.\n---\n"]
    if skill.head:
        parts.append(skill.head + "\n")
    for section, body in skill.sections.items():
        parts.append(f"<!-- section:{section} -->\n{body}\n<!-- /section:{section} -->\n")
    return "\n".join(parts)


def manifest_text(skill: SkillFiles) -> str:
    """A manifest.yaml."""
    lines = ["base: base.md", f"active: [{', '.join(skill.active)}]", f"disabled: [{', '.join(skill.disabled)}]"]
    if skill.profiles:
        lines.append("profiles:")
        for name, active in skill.profiles.items():
            lines.append(f"  {name}: {{description: variant, active: [{', '.join(active)}], disabled: []}}")
    else:
        lines.append("profiles: {}")
    return "\n".join(lines) + "\n"


def write_bank(root: Path, skills: Mapping[str, SkillFiles], settings: str = "") -> Path:
    """Writes a bank and returns its root."""
    root.mkdir(parents=True, exist_ok=True)
    groups: dict[str, list[str]] = {}
    for name, skill in skills.items():
        groups.setdefault(skill.group, []).append(name)
        folder = root / skill.group / name
        (folder / "patches").mkdir(parents=True, exist_ok=True)
        (folder / "base.md").write_text(base_text(name, skill), encoding="utf-8")
        (folder / "manifest.yaml").write_text(manifest_text(skill), encoding="utf-8")
        if skill.schema is not None:
            (folder / "policy_schema.yaml").write_text(skill.schema, encoding="utf-8")
        for patch, text in skill.patches.items():
            (folder / "patches" / f"{patch}.md").write_text(text, encoding="utf-8")
    lines = ['version: "1.0"', "groups:"]
    for group, names in groups.items():
        lines += [f"  {group}:", "    description: test", "    skills:"]
        lines += [f"      {name}: {{output: x}}" for name in names]
    (root / "bank.yaml").write_text("\n".join(lines) + "\n" + settings, encoding="utf-8")
    return root


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder but locks, by relative path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(".lock")
    }
