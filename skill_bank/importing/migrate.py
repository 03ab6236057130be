"""A bank of our format with the text of one of the original's format.

Three forms are tried for each skill, and the first whose compiled text is the same, byte for byte, is taken: (1) base
and patches as they are, with what ours wants said (order, what a replace supersedes) written down; (2) the patches
folded into the base, sections kept; (3) folded, without sections. What that changes in form is reported.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from skill_bank.compile import compile_skills, load_bank
from skill_bank.format import Reader
from skill_bank.importing.as_is import AsIsReport, compile_bank
from skill_bank.importing.assembly import compile_as_is
from skill_bank.importing.forms import Form, Rendered, render_skill
from skill_bank.importing.types import AsIs, Kind, Oddity, RawBank, RawSkill, Severity
from skill_bank.index import NAME
from skill_bank.swap import replace_folder
from skill_bank.types import BankError, Problem

REPORT_FILE = "import-report.json"
"""What was odd and what changed, kept with the bank."""


@dataclass(frozen=True)
class Migration:
    """A bank of our format, in memory."""

    files: Mapping[str, bytes]
    """Path inside the new bank → content; empty where an oddity is an error."""
    texts: Mapping[str, str]
    """Skill → compiled text, before and after."""
    forms: Mapping[str, Form]
    left_out: tuple[str, ...]
    """Skills that the new bank does not have."""
    oddities: tuple[Oddity, ...] = field(default=())

    @property
    def errors(self) -> tuple[Oddity, ...]:
        """Why nothing may be written."""
        return tuple(one for one in self.oddities if one.severity is Severity.ERROR)


def migrate_bank(root: Path, *, skip_broken: bool = False) -> Migration:
    """The whole bank. `skip_broken`: skills that do not compile are left out instead of being errors."""
    report = compile_bank(root)
    bank = report.bank
    found = list(report.oddities)
    good = {name: one for name, one in report.compiled.items() if one.text is not None}
    rendered: dict[str, Rendered] = {}
    for name, done in good.items():
        one = _render(bank.skills[name], done)
        rendered[name] = one
        found.extend(one.oddities)
    broken = {name for name in report.compiled if name not in good or rendered[name].failed}
    if skip_broken:
        found = [_downgraded(one) if one.skill in broken else one for one in found]
    kept = {name: one for name, one in rendered.items() if name not in broken}
    left_out = tuple(name for name in bank.skills if name not in kept)
    if not kept and not _has_error(found):
        found.append(Oddity("bank.yaml", 0, Kind.NOT_IN_BANK, "no skill of this bank can be migrated", Severity.ERROR))
    files: dict[str, bytes] = {}
    if not _has_error(found):
        files, more = _whole(bank, report, kept)
        found.extend(more)
    oddities = tuple(sorted(set(found)))
    if _has_error(oddities):
        files = {}
    else:
        files[REPORT_FILE] = _report(kept, left_out, oddities)
    texts = {name: str(good[name].text) for name in kept}
    return Migration(files, texts, {name: one.form for name, one in kept.items()}, left_out, oddities)


def write_migration(migration: Migration, target: Path) -> None:
    """Writes the new bank in one step. Raises BankError where it may not; then nothing was written."""
    if migration.errors:
        raise BankError([Problem(one.file, one.line, one.message, "Correct it") for one in migration.errors])
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise BankError([Problem(str(target), 0, "the target is no folder", "Name a folder that is not there yet")])
    if target.exists() and any(target.iterdir()):
        raise BankError([Problem(str(target), 0, "the target is not empty", "Name a folder that is not there yet")])
    replace_folder(target, migration.files)


def _has_error(oddities: Sequence[Oddity]) -> bool:
    return any(one.severity is Severity.ERROR for one in oddities)


def _downgraded(one: Oddity) -> Oddity:
    if one.severity is not Severity.ERROR:
        return one
    return Oddity(one.file, one.line, one.kind, f"{one.message} (the skill is left out)", Severity.WARNING, one.skill)


def _render(skill: RawSkill, done: AsIs) -> Rendered:
    """The first form that compiles to the same text, alone."""
    assert done.text is not None
    why: tuple[Problem, ...] = ()
    first: Rendered | None = None
    for form in Form:
        try:
            one = render_skill(skill, done, form)
        except (ValueError, RecursionError) as error:
            cannot = f"cannot be migrated: {error}"
            oddity = Oddity(done_file(skill), 0, Kind.FIELD, cannot, Severity.ERROR, skill.name)
            return Rendered(form, {}, done.text, {}, (), (oddity,), failed=True)
        first = first or one
        text, problems = _compiled(skill, one)
        if text == one.expected:
            return one
        why = why or problems
    assert first is not None
    reasons = [
        Oddity(done_file(skill), 0, Kind.CHANGED, f"cannot be migrated: {problem}", Severity.ERROR, skill.name)
        for problem in why or (Problem(done_file(skill), 0, "the text would change", "Report this bank"),)
    ]
    return Rendered(first.form, {}, first.expected, {}, (), tuple(reasons), failed=True)


def done_file(skill: RawSkill) -> str:
    """The file that messages about a whole skill name."""
    return skill.base.file if skill.base is not None else f"{skill.folder}/base.md"


def _compiled(skill: RawSkill, one: Rendered, profile: str | None = None) -> tuple[str | None, tuple[Problem, ...]]:
    """What our compiler makes of the skill alone."""
    files = {f"{skill.folder}/{name}": data for name, data in one.files.items()}
    files["bank.yaml"] = index_text({skill.group: ""}, {skill.name: skill.group}, {}, "1.0")
    return _compile(files, skill.name, profile)


def _compile(files: Mapping[str, bytes], skill: str, profile: str | None) -> tuple[str | None, tuple[Problem, ...]]:
    bank = load_bank(Reader(Path("/nonexistent"), files))
    try:
        built = compile_skills(bank, [skill], profile=profile)[skill]
    except BankError as error:
        return None, error.problems
    return built.files["SKILL.md"].decode("utf-8"), ()


def _whole(bank: RawBank, report: AsIsReport, kept: Mapping[str, Rendered]) -> tuple[dict[str, bytes], list[Oddity]]:
    """Every file of the new bank, and what its profiles no longer do."""
    found: list[Oddity] = []
    used = {bank.skills[name].group for name in kept}
    for group in sorted(used):
        if NAME.match(group) is None:
            found.append(Oddity("bank.yaml", 0, Kind.CHANGED, f"'{group}' is no group name: a-z, 0-9, hyphens",
                                Severity.ERROR))  # fmt: skip
    groups = {group: text for group, text in bank.groups.items() if NAME.match(group) is not None}
    files = {
        "bank.yaml": index_text(groups, {name: bank.skills[name].group for name in kept}, bank.outputs, bank.version)
    }
    for name, one in kept.items():
        skill = bank.skills[name]
        with_needs = one.with_cross_needs(kept)
        files.update({f"{skill.folder}/{path}": data for path, data in with_needs.files.items()})
        found.extend(with_needs.oddities)
    for name, one in kept.items():
        text, problems = _compile(files, name, None)
        if text != one.expected:
            why = "; ".join(map(str, problems)) or "the text changes"
            found.append(Oddity(done_file(bank.skills[name]), 0, Kind.CHANGED, f"cannot be migrated: {why}",
                                Severity.ERROR, name))  # fmt: skip
        found.extend(_profiles(bank, files, bank.skills[name], one))
    return files, found


def _profiles(bank: RawBank, files: Mapping[str, bytes], skill: RawSkill, one: Rendered) -> list[Oddity]:
    manifest = skill.manifest
    assert manifest is not None
    found: list[Oddity] = []
    for name in one.profiles:
        before = compile_as_is(bank, skill, name).text
        after, problems = _compile(files, skill.name, name)
        if after != before:
            why = "; ".join(map(str, problems)) or "its text is another one than before"
            found.append(Oddity(manifest.file, manifest.profiles[name].line, Kind.PROFILE,
                                f"profile '{name}' does not survive the migration unchanged: {why}",
                                skill=skill.name))  # fmt: skip
    return found


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def index_text(groups: Mapping[str, str], skills: Mapping[str, str], outputs: Mapping[str, str], version: str) -> bytes:
    """`bank.yaml`: group → description, skill → group, skill → output."""
    lines = [f"version: {_quoted(version or '1.0')}", "", "groups:"]
    for group, description in groups.items():
        lines += [f"  {group}:", f"    description: {_quoted(description)}"]
        mine = [name for name, where in skills.items() if where == group]
        lines.append("    skills:" if mine else "    skills: {}")
        for name in mine:
            output = outputs.get(name, f".claude/skills/{name}/SKILL.md")
            lines += [f"      {name}:", f"        output: {_quoted(output)}"]
    lines += ["", "settings:", "  layout: verbatim"]
    return ("\n".join(lines) + "\n").encode("utf-8")


def _report(kept: Mapping[str, Rendered], left_out: Sequence[str], oddities: Sequence[Oddity]) -> bytes:
    document = {
        "schema_version": 1,
        "skills": {name: str(one.form) for name, one in kept.items()},
        "left_out": list(left_out),
        "oddities": [one.as_dict() for one in oddities],
    }
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode("utf-8")
