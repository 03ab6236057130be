"""A package of skills into another bank: what would change is shown first, and nothing of the bank's own is lost.

A skill that the bank does not have is added. One that it has is left alone if it is the same, and is a conflict
otherwise; it is replaced only where that is asked for by name. Files of the bank's own skill that the package does not
have stay (out of force: the manifest is the package's).

The new files are first written beside the bank and flushed, then a journal names them, then they are renamed into
place, `bank.yaml` last. A kill before the journal leaves the old bank, one behind it leaves a bank that the next
install, compile or rollback finishes. Renaming needs no room on the disk.
"""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from skill_bank.bank import SkillBank
from skill_bank.compile import closure, digest_of, load_bank
from skill_bank.executable import holds_command
from skill_bank.files import lock_of, write_json_atomic
from skill_bank.format import Reader
from skill_bank.index import parse_index
from skill_bank.live import build_all
from skill_bank.packages.archive import digests
from skill_bank.packages.journal import JOURNAL, STAGING, finish_install
from skill_bank.packages.sources import entry_lines, read_sources
from skill_bank.packages.types import WITH_SKILLS, Package, PackageError, PackedSkill
from skill_bank.pins import Pins
from skill_bank.swap import replace_folder

DIFF_LINES = 200
"""Lines of difference kept for each skill in conflict."""


@dataclass(frozen=True)
class InstallPlan:
    """What installing a package would do to a bank."""

    added: tuple[str, ...]
    unchanged: tuple[str, ...]
    replaced: tuple[str, ...]
    """Skills that differ and may be replaced."""
    conflicts: Mapping[str, tuple[str, ...]]
    """Skill that differs and may not → the lines of a unified difference."""
    overlay: Mapping[str, bytes]
    """Path inside the bank → new content."""
    executable: tuple[str, ...] = ()
    """What of it a client or an agent may run: scripts, commands in the text, tools that need no permission."""


def plan_install(bank: SkillBank, package: Package, replace: Collection[str] = ()) -> InstallPlan:
    """What would happen; writes nothing. `replace`: skills that may be overwritten, `all` for every one.

    Raises PackageError or BankError where the package cannot be installed at all.
    """
    manifest = package.manifest
    if manifest.kind not in WITH_SKILLS:
        raise PackageError(f"{manifest.id} is a record of a {manifest.kind}; only packages of skills are installed.")
    unknown = [one for one in replace if one != "all" and one not in {skill.name for skill in manifest.skills}]
    if unknown:
        raise PackageError(f"the package has no skill {', '.join(sorted(unknown))} that could be replaced.")
    index = bank.index()
    added: list[PackedSkill] = []
    unchanged: list[str] = []
    replaced: list[str] = []
    conflicts: dict[str, tuple[str, ...]] = {}
    overlay: dict[str, bytes] = {}
    for skill in manifest.skills:
        prefix = f"bank/{skill.group}/{skill.name}/"
        files = {path[len("bank/") :]: data for path, data in package.files.items() if path.startswith(prefix)}
        known = index.skills.get(skill.name)
        if known is None:
            if (bank.root / skill.group / skill.name).exists():
                raise PackageError(
                    f"the bank has a folder {skill.group}/{skill.name} that it does not declare; move it."
                )
            added.append(skill)
        elif known.group != skill.group:
            raise PackageError(f"{skill.name} is in group {known.group} here and in {skill.group} in the package.")
        else:
            there = read_sources(bank.root, skill.group, skill.name)
            if all(there.get(path) == data for path, data in files.items()):
                unchanged.append(skill.name)
                continue
            if skill.name not in replace and "all" not in replace:
                conflicts[skill.name] = _difference(there, files)
                continue
            replaced.append(skill.name)
        overlay.update(files)
    if added:
        overlay["bank.yaml"] = _declared(bank.root, index.groups, added, package)
    Pins(bank.root / "versions").check(replaced)
    if overlay and not conflicts:
        _check(bank, package, overlay, [*(one.name for one in added), *replaced])
    names = tuple(one.name for one in added)
    return InstallPlan(names, tuple(unchanged), tuple(replaced), conflicts, overlay, executable_content(overlay))


def executable_content(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Where files of skills hold something that runs, for a person to read before installing."""
    found: list[str] = []
    for path, data in sorted(files.items()):
        if not path.endswith((".md", ".yaml", ".json")):
            found.append(f"{path}: a file that is no text of a skill")
            continue
        for number, line in enumerate(data.decode("utf-8", errors="replace").split("\n"), start=1):
            if holds_command(line):
                found.append(f"{path}:{number}: a command that runs when the skill loads")
            elif path.endswith(".md") and line.startswith(("allowed-tools:", "hooks:")):
                found.append(f"{path}:{number}: {line.strip()[:80]}")
    return tuple(found)


def install_package(bank: SkillBank, package: Package, replace: Collection[str] = ()) -> InstallPlan:
    """Installs and compiles; what was done. Raises PackageError on conflicts; then nothing was written."""
    with lock_of(bank.root / ".bank"):
        finish_install(bank.root)
        plan = plan_install(bank, package, replace)
        if plan.conflicts:
            names = ", ".join(plan.conflicts)
            raise PackageError(f"{names}: this bank has another version. Nothing was installed; "
                               f"replace it by name (--replace {next(iter(plan.conflicts))}) after reading the difference.")  # noqa: E501 # fmt: skip
        if plan.overlay:
            staging = bank.root / STAGING
            replace_folder(staging, plan.overlay)
            write_json_atomic(bank.root / JOURNAL, {"schema_version": 1, "files": digests(plan.overlay)})
            finish_install(bank.root)
    for name in (*plan.added, *plan.replaced):
        bank.compile(name, reason=f"install {package.manifest.id}")
    return plan


def _check(bank: SkillBank, package: Package, overlay: Mapping[str, bytes], skills: Collection[str]) -> None:
    """The new bank compiles, and the package's skills to the text that they have in the package."""
    loaded = load_bank(Reader(bank.root, overlay))
    affected = [
        name for name in loaded.index.skills if name in skills or any(one in closure(loaded, [name]) for one in skills)
    ]
    built = build_all(loaded, affected).skills
    for one in package.manifest.skills:
        if one.name in skills and digest_of(built[one.name].files) != one.digest:
            why = ""
            if loaded.index.settings.get("layout", "plain") != package.manifest.layout:
                why = f": its bank has the layout {package.manifest.layout}, this one has not"
            raise PackageError(f"{one.name} would compile to another text here than in the package{why}.")


def _difference(there: Mapping[str, bytes], files: Mapping[str, bytes]) -> tuple[str, ...]:
    lines: list[str] = []
    for path in sorted(files):
        if there.get(path) == files[path]:
            continue
        old = there.get(path, b"").decode("utf-8", errors="replace").splitlines()
        new = files[path].decode("utf-8", errors="replace").splitlines()
        lines += difflib.unified_diff(old, new, f"here/{path}", f"package/{path}", lineterm="", n=1)
    return tuple(lines[:DIFF_LINES])


def _declared(root: Path, groups: Mapping[str, str], added: list[PackedSkill], package: Package) -> bytes:
    """`bank.yaml` with more skills; everything else in it stays as it is written. Raises PackageError."""
    text = (root / "bank.yaml").read_text(encoding="utf-8")
    packed, _ = parse_index(package.files["bank/bank.yaml"].decode("utf-8"))
    for group in dict.fromkeys(one.group for one in added):
        mine = [one for one in added if one.group == group]
        node = _below(yaml.compose(text, Loader=yaml.SafeLoader), "groups")
        lines = text.split("\n")
        if group in groups:
            skills = _below(node, group, "skills")
            if skills is None or skills.flow_style or not skills.value:
                raise PackageError(f"bank.yaml cannot be extended: write group {group} with a `skills:` block first.")
            at, indent = _end(skills), " " * skills.value[0][0].start_mark.column
            new = [line for one in mine for line in entry_lines(one, indent)]
        else:
            if node is None or node.flow_style or not node.value:
                raise PackageError("bank.yaml cannot be extended: write `groups:` as a block first.")
            at, indent = _end(node), " " * node.value[0][0].start_mark.column
            description = packed.groups.get(group, "").replace('"', "'")
            new = [f"{indent}{group}:", f'{indent}  description: "{description}"', f"{indent}  skills:"]
            new += [line for one in mine for line in entry_lines(one, f"{indent}    ")]
        text = "\n".join([*lines[:at], *new, *lines[at:]])
    index, problems = parse_index(text)
    if problems or any(one.name not in index.skills for one in added):
        why = f": {problems[0]}" if problems else ""
        raise PackageError(f"bank.yaml cannot be extended{why}. Add {', '.join(one.name for one in added)} by hand.")
    return text.encode("utf-8")


def _below(node: Any, *keys: str) -> Any:
    for key in keys:
        if not isinstance(node, yaml.MappingNode):
            return None
        node = next((value for name, value in node.value if name.value == key), None)
    return node if isinstance(node, yaml.MappingNode) else None


def _end(node: Any) -> int:
    """Number of lines up to and with the last line of a node's content."""
    if isinstance(node, yaml.MappingNode) and node.value and not node.flow_style:
        return max(_end(one) for pair in node.value for one in pair)
    if isinstance(node, yaml.SequenceNode) and node.value and not node.flow_style:
        return max(_end(one) for one in node.value)
    return int(node.end_mark.line) + (1 if node.end_mark.column > 0 else 0)
