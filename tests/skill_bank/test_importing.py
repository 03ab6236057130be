"""Banks of the original's format: real ones where they are at hand, and made-up ones whose output was worked out by
hand (the rules are in the docstring of `skill_bank.importing`)."""

import json
import os
import shutil
from pathlib import Path

import pytest
from skill_bank_builder import tree

from skill_bank.bank import SkillBank
from skill_bank.importing.as_is import compile_bank, write_texts
from skill_bank.importing.forms import Form
from skill_bank.importing.migrate import migrate_bank, write_migration
from skill_bank.importing.types import Kind, Severity
from skill_bank.types import BankError

BANKS = Path(__file__).parent.parent / "data" / "banks"
CORPUS = Path(os.environ.get("MCP_EVO_CORPUS", Path(__file__).parents[3] / "shared" / "corpus")) / "bank"
needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason="the real bank is not here: set MCP_EVO_CORPUS")
EXPECTED = {path.stem: path for path in sorted((CORPUS / "expected").rglob("*.md"))} if CORPUS.is_dir() else {}


@needs_corpus
def test_the_real_bank_compiles_byte_for_byte(tmp_path: Path) -> None:
    report = compile_bank(CORPUS)
    assert report.errors == ()
    assert write_texts(report.texts, tmp_path) == tuple(report.texts)
    found = {path.parent.name: path.read_bytes() for path in tmp_path.glob("*/SKILL.md")}
    assert found == {name: path.read_bytes() for name, path in EXPECTED.items()}


@needs_corpus
def test_the_oddities_of_the_real_bank_are_listed_with_their_place() -> None:
    found = {(one.file, one.line, one.kind) for one in compile_bank(CORPUS).oddities}
    monitor = "rllm/rllm-monitor/patches"
    assert (f"{monitor}/005-behavioral-metrics.md", 6, Kind.STATUS) in found
    leaked = {line for file, line, kind in found if kind is Kind.LEAKED_MARKER and file.startswith(monitor)}
    assert leaked == {10, 99, 101, 128, 130, 143}
    assert ("rllm/rllm-analyze/patches/remote-results.md", 0, Kind.UNDECLARED) in found
    declared = sum(line.strip().startswith("output:") for line in (CORPUS / "bank.yaml").read_text().splitlines())
    assert sum(kind is Kind.NOT_IN_BANK for _, _, kind in found) == declared - len(EXPECTED)


@needs_corpus
def test_the_real_bank_migrates_to_the_same_text(tmp_path: Path) -> None:
    migration = migrate_bank(CORPUS)
    assert migration.errors == ()
    assert set(migration.forms.values()) == {Form.PATCHES}
    write_migration(migration, tmp_path / "bank")
    bank = SkillBank(tmp_path / "bank")
    assert bank.check() == ()
    bank.compile(out=tmp_path / "out")
    found = {path.parent.name: path.read_bytes() for path in (tmp_path / "out").glob("*/SKILL.md")}
    assert found == {name: path.read_bytes() for name, path in EXPECTED.items()}
    assert set(bank.patches("rllm-monitor")) == {path.stem for path in (CORPUS / "rllm/rllm-monitor/patches").iterdir()}


@pytest.mark.parametrize(
    ("skill", "profile"), [("order", None), ("order", "short"), ("edges", None), ("moves", None)]
)  # fmt: skip
def test_made_up_skills_compile_as_worked_out_by_hand(skill: str, profile: str | None) -> None:
    report = compile_bank(BANKS / "orders", skill, profile)
    assert report.errors == ()
    name = skill if profile is None else f"{skill}.{profile}"
    assert report.texts == {skill: (BANKS / "orders" / "expected" / f"{name}.md").read_text(encoding="utf-8")}


def test_a_made_up_bank_migrates_to_the_same_text_and_keeps_its_profiles(tmp_path: Path) -> None:
    migration = migrate_bank(BANKS / "orders")
    assert migration.errors == ()
    # two patches inserted behind one section come out in reverse, which our rules cannot say: those are folded
    assert migration.forms == {"order": Form.PATCHES, "edges": Form.PATCHES, "moves": Form.FOLDED}
    write_migration(migration, tmp_path / "bank")
    bank = SkillBank(tmp_path / "bank")
    built = bank.compile(dry_run=True).skills
    for name in ("order", "edges", "moves"):
        assert built[name].files["SKILL.md"] == (BANKS / "orders" / "expected" / f"{name}.md").read_bytes()
    short = bank.compile("order", profile="short", dry_run=True).skills["order"]
    assert short.files["SKILL.md"] == (BANKS / "orders" / "expected" / "order.short.md").read_bytes()
    assert [one.name for one in bank.source("moves").base.sections] == ["one", "second", "first", "two"]
    report = json.loads((tmp_path / "bank" / "import-report.json").read_text(encoding="utf-8"))
    assert report["skills"] == {"order": "patches", "edges": "patches", "moves": "folded"}


ODDITIES = {
    ("bank.yaml", 2, Kind.UNKNOWN_KEY),
    ("bank.yaml", 8, Kind.UNKNOWN_KEY),
    ("bank.yaml", 15, Kind.NOT_IN_BANK),
    ("bank.yaml", 21, Kind.FIELD),
    ("bank.yaml", 33, Kind.UNKNOWN_KEY),
    ("g/archived/patches/gone.md", 5, Kind.STATUS),
    ("g/conflict/patches/b-b.md", 3, Kind.MISSING_SECTION),
    ("g/conflict/patches/b-b.md", 6, Kind.CONFLICT),
    ("g/cycle/patches/b-b.md", 6, Kind.CYCLE),
    ("g/extra", 0, Kind.UNDECLARED),
    ("g/latin/base.md", 3, Kind.ENCODING),
    ("g/leaky/base.md", 2, Kind.SPECIFICATION),
    ("g/leaky/base.md", 4, Kind.DUPLICATE_KEY),
    ("g/leaky/base.md", 5, Kind.SPECIFICATION),
    ("g/leaky/base.md", 8, Kind.MARKER),
    ("g/leaky/base.md", 11, Kind.MARKER),
    ("g/leaky/base.md", 12, Kind.DUPLICATE_SECTION),
    ("g/leaky/helper.py", 0, Kind.LEFT_OUT),
    ("g/leaky/manifest.yaml", 2, Kind.LISTED),
    ("g/leaky/manifest.yaml", 3, Kind.LISTED),
    ("g/leaky/manifest.yaml", 4, Kind.UNKNOWN_KEY),
    ("g/leaky/manifest.yaml", 6, Kind.UNKNOWN_KEY),
    ("g/leaky/manifest.yaml", 7, Kind.PROFILE),
    ("g/leaky/patches/idle.md", 0, Kind.UNDECLARED),
    ("g/leaky/patches/idle.md", 2, Kind.FRONT_MATTER),
    ("g/leaky/patches/leaks.md", 5, Kind.STATUS),
    ("g/leaky/patches/leaks.md", 6, Kind.DEPENDENCY),
    ("g/leaky/patches/leaks.md", 7, Kind.FIELD),
    ("g/leaky/patches/leaks.md", 8, Kind.UNKNOWN_KEY),
    ("g/leaky/patches/leaks.md", 11, Kind.LEAKED_MARKER),
    ("g/leaky/patches/leaks.md", 13, Kind.LEAKED_MARKER),
    ("g/leaky/patches/old.md", 1, Kind.STATUS),
    ("g/leaky/patches/old.md", 2, Kind.ID),
    ("g/leaky/patches/old.md", 6, Kind.ENCODING),
    ("g/leaky/patches/readme.txt", 0, Kind.LEFT_OUT),
    ("g/leaky/patches/wipes.md", 4, Kind.SHADOWED),
    ("g/leaky/patches/wipes.md", 5, Kind.STATUS),
    ("g/leaky/patches/wipes.md", 6, Kind.STATUS),
    ("g/needy/manifest.yaml", 2, Kind.FIELD),
    ("g/needy/manifest.yaml", 2, Kind.MISSING_FILE),
    ("g/needy/patches/elsewhere.md", 6, Kind.DEPENDENCY),
    ("g/needy/patches/undeclared.md", 6, Kind.DEPENDENCY),
    ("g/nested/base.md", 6, Kind.MARKER),
    ("g/nested/base.md", 8, Kind.MARKER),
    ("g/nested/base.md", 9, Kind.MARKER),
    ("g/nobase/base.md", 0, Kind.MISSING_BASE),
    ("g/nomanifest/manifest.yaml", 0, Kind.MISSING_FILE),
    ("g/unparsable/patches/bad.md", 4, Kind.FRONT_MATTER),
}
"""Every oddity that was put into the bank `oddities`, by file and line."""

REFUSED = {
    "nobase", "nomanifest", "nested", "unparsable", "needy", "archived", "cycle", "conflict", "latin",
}  # fmt: skip
"""Skills of it that the original does not compile."""


def test_every_oddity_is_found_in_its_place_and_no_other() -> None:
    report = compile_bank(BANKS / "oddities")
    assert {(one.file, one.line, one.kind) for one in report.oddities} == ODDITIES
    assert {one.skill for one in report.errors} == REFUSED
    assert set(report.texts) == {"fine", "leaky"}
    assert "<!-- section:inner -->" in report.texts["leaky"]
    assert report.texts["leaky"].count("the only text") == 2


def test_a_named_skill_compiles_whatever_the_rest_of_its_bank_is_like() -> None:
    report = compile_bank(BANKS / "oddities", "fine")
    assert report.errors == ()
    assert {(one.file, one.line, one.kind) for one in report.oddities} == ODDITIES
    assert report.texts == {"fine": "---\ndescription: Does fine.\nname: fine\n---\n\n\n# fine\n\nbase\n\nadded\n"}


@pytest.mark.parametrize("skill", sorted(REFUSED))
def test_what_the_original_refuses_is_refused_with_a_place(skill: str) -> None:
    report = compile_bank(BANKS / "oddities", skill)
    assert report.texts == {}
    assert report.errors
    assert all(one.file.startswith(f"g/{skill}/") for one in report.errors)


@pytest.mark.parametrize("target", ["absent", "nowhere"])
def test_a_skill_that_is_not_here_is_refused(target: str) -> None:
    report = compile_bank(BANKS / "oddities", target)
    assert report.texts == {}
    assert [one.kind for one in report.errors] == [Kind.NOT_IN_BANK]


def test_a_folder_without_a_bank_says_so(tmp_path: Path) -> None:
    assert [(one.file, one.kind) for one in compile_bank(tmp_path).errors] == [("bank.yaml", Kind.MISSING_FILE)]
    (tmp_path / "bank.yaml").write_text("groups: [a", encoding="utf-8")
    assert [(one.file, one.line) for one in compile_bank(tmp_path).errors] == [("bank.yaml", 1)]
    (tmp_path / "bank.yaml").write_text("- a\n", encoding="utf-8")
    assert [(one.file, one.line) for one in compile_bank(tmp_path).errors] == [("bank.yaml", 1)]


def test_migrating_refuses_what_does_not_compile_or_leaves_it_out_when_told(tmp_path: Path) -> None:
    refused = migrate_bank(BANKS / "oddities")
    assert {one.skill for one in refused.errors} == REFUSED
    assert refused.files == {}
    with pytest.raises(BankError):
        write_migration(refused, tmp_path / "bank")
    assert not (tmp_path / "bank").exists()
    kept = migrate_bank(BANKS / "oddities", skip_broken=True)
    assert kept.errors == ()
    assert set(kept.texts) == {"fine", "leaky"}
    assert set(kept.left_out) == {*REFUSED, "absent"}
    write_migration(kept, tmp_path / "bank")
    bank = SkillBank(tmp_path / "bank")
    built = bank.compile(dry_run=True).skills
    before = compile_bank(BANKS / "oddities").texts
    assert built["fine"].files["SKILL.md"].decode() == before["fine"]
    # the front matter was not valid by the specification: it alone changes, and that is said
    after = built["leaky"].files["SKILL.md"].decode()
    assert after.split("---\n", 2)[2] == before["leaky"].split("---\n", 2)[2]
    assert "name: leaky\n" in after
    assert "model: big" in after.split("metadata:")[1]
    said = [one for one in kept.oddities if one.kind is Kind.CHANGED and one.file == "g/leaky/base.md"]
    assert any("front matter" in one.message and one.severity is Severity.WARNING for one in said)
    # what cannot be read is kept, out of the way
    assert (tmp_path / "bank/g/leaky/not-migrated/idle.md").read_bytes() == (
        BANKS / "oddities/g/leaky/patches/idle.md"
    ).read_bytes()


def test_a_target_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    migration = migrate_bank(BANKS / "orders")
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(BankError, match="not empty"):
        write_migration(migration, tmp_path)
    with pytest.raises(BankError, match="no folder"):
        write_migration(migration, tmp_path / "mine.txt")
    assert tree(tmp_path) == {"mine.txt": b"mine"}
    (tmp_path / "empty").mkdir()
    write_migration(migration, tmp_path / "empty")
    assert (tmp_path / "empty" / "bank.yaml").exists()


def test_dependencies_on_other_skills_survive_where_they_hold(tmp_path: Path) -> None:
    shutil.copytree(BANKS / "oddities", tmp_path / "bank")
    root = tmp_path / "bank"
    (root / "g/needy/manifest.yaml").write_text("active: [elsewhere]\n", encoding="utf-8")
    patch = root / "g/needy/patches/elsewhere.md"
    text = patch.read_text(encoding="utf-8")
    patch.write_text(text.replace('["nomanifest:001", "fine:two"]', '["nomanifest:001", "fine:one"]'), encoding="utf-8")
    migration = migrate_bank(root, skip_broken=True)
    assert b'depends_on: ["fine:one"]' in migration.files["g/needy/patches/elsewhere.md"]
    dropped = [one for one in migration.oddities if one.kind is Kind.CHANGED and "nomanifest:001" in one.message]
    assert [one.file for one in dropped] == ["g/needy/patches/elsewhere.md"]


def test_one_oddity_is_not_a_reason_to_change_the_source() -> None:
    before = tree(BANKS)
    migrate_bank(BANKS / "oddities", skip_broken=True)
    compile_bank(BANKS / "orders")
    assert tree(BANKS) == before


def test_links_out_of_the_bank_are_not_followed(tmp_path: Path) -> None:
    shutil.copytree(BANKS / "orders", tmp_path / "bank")
    (tmp_path / "secret.md").write_text("---\nid: p-a\n---\nsecret\n", encoding="utf-8")
    for name in ("patches/p-a.md", "patches/unlisted.md"):
        path = tmp_path / "bank" / "g" / "order" / name
        path.unlink(missing_ok=True)
        path.symlink_to(tmp_path / "secret.md")
    report = compile_bank(tmp_path / "bank", "order")
    assert [(one.file, one.kind) for one in report.errors] == [("g/order/patches/p-a.md", Kind.UNREADABLE)]
    assert {one.file for one in report.oddities if one.kind is Kind.UNREADABLE} == {
        "g/order/patches/p-a.md",
        "g/order/patches/unlisted.md",
    }


def test_yaml_that_unfolds_without_end_is_refused_when_migrating(tmp_path: Path) -> None:
    shutil.copytree(BANKS / "orders", tmp_path / "bank")
    base = tmp_path / "bank" / "g" / "edges" / "base.md"
    text = base.read_text(encoding="utf-8")
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    for front in (bomb, "a: &a [*a]\n"):
        base.write_text(text.replace("name: edges\n", f"name: edges\n{front}"), encoding="utf-8")
        assert compile_bank(tmp_path / "bank", "edges").errors == ()
        migration = migrate_bank(tmp_path / "bank")
        assert {one.skill for one in migration.errors} == {"edges"}
        assert migration.files == {}


@pytest.mark.parametrize("field", ["id", "target_section", "action", "status", "depends_on"])
@pytest.mark.parametrize("value", ["[a, b]", "{a: b}", "", "1", "2026-05-11", "true"])
def test_a_field_of_any_type_is_told_and_never_a_crash(tmp_path: Path, field: str, value: str) -> None:
    shutil.copytree(BANKS / "orders", tmp_path / "bank")
    for name in ("g/order/patches/p-a.md", "h/moves/patches/off.md", "h/moves/patches/first.md"):
        path = tmp_path / "bank" / name
        lines = [line for line in path.read_text(encoding="utf-8").split("\n") if not line.startswith(f"{field}:")]
        path.write_text("\n".join([lines[0], f"{field}: {value}", *lines[1:]]), encoding="utf-8")
    report = compile_bank(tmp_path / "bank")
    assert any(one.file == "g/order/patches/p-a.md" for one in report.oddities)
    assert report.errors or len(report.texts) == 3
    migration = migrate_bank(tmp_path / "bank", skip_broken=True)
    assert bool(migration.errors) != bool(migration.files)
