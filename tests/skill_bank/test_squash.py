"""Squash: anchors stay, every byte that compiles stays, and whatever comes later finds the skill as it was."""

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_banks import random_bank
from skill_bank_builder import SkillFiles, patch_text, tree, write_bank
from test_bank_crash import check_every_step

from skill_bank.bank import SkillBank
from skill_bank.types import BankError


def compiled(bank: SkillBank, skill: str = "s", **options: object) -> dict[str, bytes]:
    return dict(bank.compile(skill, dry_run=True, **options).skills[skill].files)  # type: ignore[arg-type]


@pytest.fixture
def bank(tmp_path: Path) -> SkillBank:
    patches = {
        "001-a": patch_text("001-a", "one", "Appended.\n\n```yaml policy\nsize: 5\n```", scope="all"),
        "002-n": patch_text("002-n", "one", "A new one.", action="insert_after", new_section="more"),
        "003-r": patch_text("003-r", "two", "Replaced.", action="replace"),
        "004-l": patch_text("004-l", "one", "Later.", action="insert_after", status="staged"),
        "005-d": patch_text("005-d", "more", "Needs the new one.", status="staged", depends_on="['002-n']"),
        "006-c": patch_text("006-c", "one", "Conflicts.", status="staged", conflicts_with="['001-a']"),
    }
    files = SkillFiles(
        {"one": "First {{policy.size}}.\n\n```yaml policy\nsize: 4\n```\n\nMore.", "two": "Second."},
        patches,
        ["'001-a'", "'002-n'", "'003-r'"],
        profiles={"plain": [], "all": ["'001-a'", "'002-n'", "'003-r'"]},
        head="# S",
    )
    found = SkillBank(write_bank(tmp_path / "bank", {"s": files}))
    found.compile()
    return found


def test_the_base_holds_everything_and_compiles_to_the_same_bytes(bank: SkillBank) -> None:
    before = compiled(bank)
    by_profile = {name: compiled(bank, profile=name) for name in ("plain", "all")}
    done = bank.squash("s")
    assert done.folding.folded == ("001-a", "002-n", "003-r")
    assert compiled(bank) == before == tree(bank.compiled_folder("s"))
    assert {name: compiled(bank, profile=name) for name in ("plain", "all")} == by_profile
    base = (bank.root / "rllm/s/base.md").read_text()
    for section in ("one", "two", "more"):
        assert base.count(f"<!-- section:{section} -->") == base.count(f"<!-- /section:{section} -->") == 1
    assert "<!-- inserted:one -->\n<!-- section:more -->\nA new one." in base
    source = bank.source("s")
    assert source.manifest.active == ()
    assert source.manifest.folded == ("001-a", "002-n", "003-r")
    assert source.manifest.profiles["all"].active == ()
    assert source.manifest.profiles["plain"].base is not None, "it shares none of the patches, so it keeps the old base"
    assert [source.patches[one].status for one in ("001-a", "002-n", "003-r")] == ["archived"] * 3
    assert bank.check() == ()
    assert [one.reason for one in bank.history("s")] == ["compile", "squash"]


def test_provenance_still_names_the_patch_and_its_line(bank: SkillBank) -> None:
    before = bank.policy("s").explain("size")
    bank.squash("s")
    after = bank.policy("s").explain("size")
    assert after == before
    assert [one.origin.patch for one in after] == ["base", "001-a"]
    written = (bank.root / after[1].origin.file).read_text().split("\n")[after[1].origin.line - 1]
    assert written == "size: 5"


def test_later_patches_land_where_they_would_have_landed(bank: SkillBank) -> None:
    with_later = {one: compiled(bank, extra_patches=[one]) for one in ("004-l", "005-d")}
    bank.squash("s")
    assert {one: compiled(bank, extra_patches=[one]) for one in with_later} == with_later
    with pytest.raises(BankError, match="'006-c' conflicts with '001-a'"):
        compiled(bank, extra_patches=["006-c"])
    with pytest.raises(BankError, match="part of the base"):
        bank.deactivate("s", "001-a")
    bank.activate("s", "005-d")
    bank.squash("s")  # a second one, on top
    assert bank.source("s").manifest.folded == ("001-a", "002-n", "003-r", "005-d")
    assert compiled(bank) == with_later["005-d"]


def test_rollback_over_a_squash_is_exact(bank: SkillBank) -> None:
    sources = bank.version_sources("s", 1)
    bank.squash("s")
    squashed = bank.version_sources("s", 2)
    bank.rollback("s", 1)
    assert {path: (bank.root / path).read_bytes() for path in sources} == sources
    bank.rollback("s", 2)
    assert {path: (bank.root / path).read_bytes() for path in squashed} == squashed
    assert bank.check() == ()


def test_a_dry_run_and_a_refusal_write_nothing(bank: SkillBank) -> None:
    before = tree(bank.root)
    assert bank.squash("s", dry_run=True).version is None
    assert tree(bank.root) == before
    bank.squash("s")
    before = tree(bank.root)
    with pytest.raises(BankError, match="no active patch"):
        bank.squash("s")
    assert tree(bank.root) == before


def test_it_dies_at_every_step(bank: SkillBank) -> None:
    expected = tree(bank.compiled_folder("s"))
    assert check_every_step(bank, lambda mine: mine.squash("s"), expected) > 8
    assert bank.source("s").manifest.folded == (), "every death happened in a copy"


def test_a_reader_sees_a_squash_whose_writer_died_as_done(bank: SkillBank, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = compiled(bank)

    def die(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(bank._live), "_write", die)
    with pytest.raises(KeyboardInterrupt):
        bank.squash("s")
    monkeypatch.undo()
    reader = SkillBank(bank.root)
    assert reader.source("s").manifest.active == ()
    assert reader.check() == ()
    assert compiled(reader) == expected
    reader.compile()
    assert "001-a" in (bank.root / "rllm/s/manifest.yaml").read_text()
    assert not (bank.root / "rollback.json").exists()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_random_banks_before_and_after(seed: int) -> None:
    plan = random_bank(seed, later=3)
    with tempfile.TemporaryDirectory() as folder:
        bank = SkillBank(write_bank(Path(folder) / "bank", {name: one.files() for name, one in plan.items()}))
        assert bank.check() == ()
        bank.compile()
        chance = random.Random(seed)
        names = [name for name, one in plan.items() if one.active]
        chance.shuffle(names)
        later = {}
        for name in names:  # what each staged patch would give, with those it may need
            ahead = [f"{name}:{one}" for one in plan[name].staged]
            for count in range(len(ahead) + 1):
                later[name, count] = compiled(bank, name, extra_patches=ahead[:count])
        for name in names:
            bank.squash(name)
            assert bank.check() == ()
            assert tree(bank.compiled_folder(name)) == later[name, 0]
        for (name, count), files in later.items():
            ahead = [f"{name}:{one}" for one in plan[name].staged]
            assert compiled(bank, name, extra_patches=ahead[:count]) == files
        for name in names:
            assert list(bank.compile(name).written) == [], "the live output never changed"
