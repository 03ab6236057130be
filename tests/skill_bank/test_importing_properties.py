"""Random banks of the original's format: what they compile to by its rules is what the migrated bank compiles to."""

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skill_bank.compile import compile_skills, load_bank
from skill_bank.format import Reader
from skill_bank.importing.as_is import compile_bank
from skill_bank.importing.migrate import migrate_bank
from skill_bank.importing.types import Severity

NAMES = ("alpha", "beta", "gamma")
IDS = ("001-one", "002-two", "p-three", "Four", "five_5")
WORDS = st.sampled_from(
    ["", "text", "- item", "  indented  ", "## 标题", "<!-- section:leak -->", "<!-- \\section:x -->", "```\ncode\n```",
     "```", "| a | b |", "{{name}}", "---", "a: b", "\\", "run !`date` now"]
)  # fmt: skip
TEXTS = st.lists(WORDS, max_size=4).map("\n".join)
CLEAN = TEXTS.filter(lambda text: "<!--" not in text)


@st.composite
def patches(draw: st.DrawFn, name: str, sections: list[str]) -> str:
    """One patch file; now and then a damaged one."""
    head = {
        "id": draw(st.sampled_from([name, name, name, "other"])),
        "target_section": draw(st.sampled_from([*sections, *sections, "001-one", "p-three", "missing"])),
        "action": draw(st.sampled_from(["replace", "append", "append", "prepend", "insert_after"])),
        "status": draw(st.sampled_from(["active", "proposed", "deprecated", "draft", "archived"])),
        "depends_on": draw(st.lists(st.sampled_from([*IDS, "gone", "other-skill:001-one"]), max_size=2, unique=True)),
    }
    if draw(st.integers(0, 9)) == 0:
        head["created"] = "2026-05-11"
    text = yaml.safe_dump(head)
    if draw(st.integers(0, 19)) == 0:
        text = "description: idle: broken\n" + text
    return f"---\n{text}---\n\n{draw(TEXTS)}\n"


@st.composite
def bases(draw: st.DrawFn, skill: str) -> tuple[str, list[str]]:
    """A base and the names of its sections."""
    parts = [f"---\nname: {skill}\ndescription: Does {skill}.\nmetadata:\n  version: '1.0'\n---\n"]
    names: list[str] = []
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=draw(st.integers(0, 5)) != 0)):
        parts += [draw(CLEAN), f"<!-- section:{name} -->", draw(CLEAN), f"<!-- /section:{name} -->"]
        names.append(name)
    parts.append(draw(CLEAN))
    return "\n".join(parts) + "\n", names


@st.composite
def banks(draw: st.DrawFn) -> dict[str, str]:
    """Path → content of a bank with one or two skills."""
    skills = ["one-skill", "other-skill"][: draw(st.integers(1, 2))]
    files = {"bank.yaml": yaml.safe_dump({"groups": {"g": {"skills": {name: {"output": "x"} for name in skills}}}})}
    for skill in skills:
        text, sections = draw(bases(skill))
        files[f"g/{skill}/base.md"] = text
        ids = draw(st.lists(st.sampled_from(IDS), max_size=4, unique=True))
        for name in ids:
            files[f"g/{skill}/patches/{name}.md"] = draw(patches(name, sections))
        active = draw(st.permutations(ids))[: draw(st.integers(0, len(ids)))]
        profile = draw(st.permutations(ids))[:2]
        manifest = {"active": list(active), "profiles": {"small": {"description": "d", "active": list(profile)}}}
        files[f"g/{skill}/manifest.yaml"] = yaml.safe_dump(manifest)
    return files


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(files=banks())
def test_the_migrated_bank_compiles_to_the_same_text(
    files: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = write(tmp_path_factory.mktemp("bank"), files)
    before = compile_bank(root)
    migration = migrate_bank(root, skip_broken=True)
    compiled = {one.skill for one in before.oddities if one.severity is Severity.ERROR}
    assert compiled.isdisjoint(before.texts)
    if migration.errors:  # nothing of this bank compiles, or our format cannot hold it
        assert migration.files == {}
        return
    ours = load_bank(Reader(Path("/nonexistent"), migration.files))
    built = compile_skills(ours, list(migration.texts))
    for name, text in migration.texts.items():
        assert text == before.texts[name]
        assert built[name].files["SKILL.md"].decode("utf-8") == text
    # a profile compiles to the same text, or it is said that it does not
    said = {(one.skill, one.kind) for one in migration.oddities}
    for name in migration.texts:
        small = compile_bank(root, name, "small")
        if small.errors or (name, "profile") in said:
            continue
        mine = compile_skills(ours, [name], profile="small")[name]
        assert mine.files["SKILL.md"].decode("utf-8") == small.texts[name]


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(files=banks(), damage=st.data())
def test_damage_is_reported_and_never_crashes(
    files: dict[str, str], damage: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = write(tmp_path_factory.mktemp("bank"), files)
    for _ in range(damage.draw(st.integers(1, 3))):
        name = damage.draw(st.sampled_from(sorted(files)))
        data = (root / name).read_bytes()
        at = damage.draw(st.integers(0, len(data)))
        with_ = damage.draw(st.sampled_from([b"\xff", b"\r\n", b"\0", b"[", b"---\n", b": ", b"&a *a", b"\n", b"\t"]))
        (root / name).write_bytes(data[:at] + with_ + data[at + damage.draw(st.integers(0, 5)) :])
    report = compile_bank(root)
    assert all(one.file and one.message for one in report.oddities)
    assert bool(report.errors) or report.texts
    migration = migrate_bank(root, skip_broken=True)
    assert bool(migration.errors) != bool(migration.files)
