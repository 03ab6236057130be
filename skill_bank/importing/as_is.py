"""A bank of the original's format, compiled as the original compiles it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from skill_bank.importing.assembly import compile_as_is
from skill_bank.importing.checks import check_skill
from skill_bank.importing.reading import read_bank
from skill_bank.importing.types import AsIs, Kind, Oddity, RawBank, Severity
from skill_bank.swap import replace_folder


@dataclass(frozen=True)
class AsIsReport:
    """What a bank, or a part of it, compiles to."""

    bank: RawBank
    compiled: Mapping[str, AsIs]
    """The skills asked for that are here."""
    oddities: tuple[Oddity, ...]
    """Of the whole bank. About skills that were not asked for, none is an error."""

    @property
    def texts(self) -> dict[str, str]:
        """Skill → its SKILL.md."""
        return {name: one.text for name, one in self.compiled.items() if one.text is not None}

    @property
    def errors(self) -> tuple[Oddity, ...]:
        """Why nothing may be written."""
        return tuple(one for one in self.oddities if one.severity is Severity.ERROR)


def compile_bank(root: Path, target: str = "all", profile: str | None = None) -> AsIsReport:
    """Compiles a skill, a group or all. Nothing is written and nothing raised: `errors` says what stands in the way.

    Skills that are declared without a folder (a bank may be a part of a larger one) are reported, and an error only
    for one that is asked for by name.
    """
    bank = read_bank(root)
    oddities: list[Oddity] = list(bank.oddities)
    wanted: list[str] = []
    if target in bank.skills:
        wanted = [target]
    elif target == "all" or target in bank.groups:
        wanted = [name for name, one in bank.skills.items() if one.present and target in ("all", one.group)]
        if not wanted and not any(one.severity is Severity.ERROR for one in oddities):
            oddities.append(Oddity("bank.yaml", 0, Kind.NOT_IN_BANK, f"no skill of '{target}' is here", Severity.ERROR))
    elif not any(one.severity is Severity.ERROR for one in oddities):
        known = ", ".join((*bank.groups, *bank.skills)) or "none"
        unknown = f"there is no skill or group '{target}'; there are: {known}"
        oddities.append(Oddity("bank.yaml", 0, Kind.NOT_IN_BANK, unknown, Severity.ERROR))
    compiled: dict[str, AsIs] = {}
    for name, skill in bank.skills.items():
        done = compile_as_is(bank, skill, profile if name in wanted else None)
        found = (*done.oddities, *check_skill(skill, done.applied))
        if name in wanted:
            compiled[name] = done
        else:
            found = tuple(
                replace(one, severity=Severity.WARNING) if one.severity is Severity.ERROR else one for one in found
            )
        oddities.extend(found)
    return AsIsReport(bank, compiled, tuple(sorted(set(oddities))))


def write_texts(texts: Mapping[str, str], out: Path) -> tuple[str, ...]:
    """Writes `out/<skill>/SKILL.md` for each, each folder in one step; the skills whose folder changed."""
    return tuple(name for name, text in texts.items() if replace_folder(out / name, {"SKILL.md": text.encode("utf-8")}))
