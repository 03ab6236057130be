"""Versions: what is kept of each, pins, differences of text and policy, the change log; what is not read again."""

import json
import os
import time
from pathlib import Path

import pytest
from skill_bank_builder import SCHEMA, SkillFiles, patch_text, tree, write_bank

from skill_bank.bank import SkillBank
from skill_bank.cache import Marks
from skill_bank.difference import changelog, compare
from skill_bank.types import BankError

BODY = "First {{policy.size}}.\n\n```yaml policy\nsize: 4\nrate:\n  - {default: 1e-3}\n```"


@pytest.fixture
def bank(tmp_path: Path) -> SkillBank:
    rule = '```yaml policy\nsize: 5\nrate:\n  - {when: {params: "<10M"}, default: 2e-3}\n```'
    rule = rule.replace("size: 5\n", "")
    patches = {
        "001-a": patch_text(
            "001-a", "one", f"Appended.\n\n{rule}", status="staged", scope='{params: "<10M"}', description="Small ones."
        ),
        "002-b": patch_text("002-b", "one", "Behind it.", status="staged", depends_on="['001-a']"),
    }
    found = SkillBank(write_bank(tmp_path / "bank", {"s": SkillFiles({"one": BODY}, patches)}))
    found.compile()
    return found


def test_a_version_is_made_by_a_change_only(bank: SkillBank) -> None:
    for _ in range(3):
        bank.compile()
        SkillBank(bank.root).compile("s")
    os.utime(bank.root / "rllm/s/base.md")
    bank.compile()
    assert [one.number for one in bank.history("s")] == [1]
    bank.activate("s", "001-a")
    bank.activate("s", "001-a")
    assert [one.number for one in bank.history("s")] == [1, 2]
    assert (
        bank.version_sources("s", 2)["rllm/s/patches/001-a.md"] == (bank.root / "rllm/s/patches/001-a.md").read_bytes()
    )
    with pytest.raises(BankError, match="There are: 1 to 2"):
        bank.version_record("s", 3)


def test_a_difference_tells_text_and_values(bank: SkillBank) -> None:
    bank.activate("s", "001-a")
    change = compare(bank.version_files("s", 1), bank.version_files("s", 2), "1", "2")
    assert "+Appended." in change.text
    assert "policy.json" not in change.text
    assert [str(one) for one in change.policy] == ["rate.default (where params <10M): not set → 0.002 [001-a]"]
    assert not compare(bank.version_files("s", 1), bank.version_files("s", 1), "1", "1")
    back = compare(bank.version_files("s", 2), bank.version_files("s", 1), "2", "1")
    assert (back.policy[0].before, back.policy[0].after) == (0.002, None)


def test_one_and_one_point_nought_are_two_values(tmp_path: Path) -> None:
    files = [SkillFiles({"one": BODY.replace("1e-3", value)}) for value in ("1", "1.0")]
    built = []
    for number, one in enumerate(files):
        bank = SkillBank(write_bank(tmp_path / str(number), {"s": one}))
        built.append(bank.compile("s", dry_run=True).skills["s"].files)
    (change,) = compare(built[0], built[1], "0", "1").policy
    assert (repr(change.before), repr(change.after)) == ("1", "1.0")


def test_the_change_log(bank: SkillBank) -> None:
    bank.activate("s", "001-a", reason="promote 001-a")
    bank.rollback("s", 1)
    text = changelog(bank, "s")
    order = [text.index(f"## s@{number} (") for number in (3, 2, 1)]
    assert order == sorted(order)
    assert "promote 001-a" in text
    assert "- `001-a` now in force: Small ones." in text
    assert "- policy `rate.default` (params <10M): not set → `0.002`" in text
    assert "- `001-a` no longer applied: Small ones." in text
    assert "- text: 2 lines added, 0 removed" in text


def test_a_pin_holds_until_it_is_let_go(bank: SkillBank) -> None:
    bank.activate("s", "001-a")
    output = tree(bank.compiled_folder("s"))
    assert bank.pin("s") == 2
    assert bank.pins() == {"s": 2}
    assert next(one.pinned for one in bank.status()) == 2
    changes = (
        lambda: bank.activate("s", "002-b"),
        lambda: bank.deactivate("s", "001-a"),
        lambda: bank.squash("s"),
        lambda: bank.rollback("s", 1),
        lambda: bank.compile("s"),
        lambda: bank.pin("s", 1),
    )
    before = tree(bank.root)
    for change in changes:
        with pytest.raises(BankError, match="s is pinned to version 2"):
            change()
        assert tree(bank.root) == before
    base = bank.root / "rllm/s/base.md"
    base.write_text(base.read_text().replace("First", "Changed"))
    report = bank.compile()
    assert (report.written, report.pinned) == ((), {"s": 2})
    assert tree(bank.compiled_folder("s")) == output
    assert bank.unpin("s")
    assert not bank.unpin("s")
    assert bank.compile().written == ("s",)


def test_a_pin_to_an_older_version_goes_back_first(bank: SkillBank) -> None:
    first = tree(bank.compiled_folder("s"))
    bank.activate("s", "001-a")
    assert bank.pin("s", 1) == 3
    assert tree(bank.compiled_folder("s")) == first
    assert bank.source("s").manifest.active == ()
    with pytest.raises(BankError, match="no version 9"):
        SkillBank(bank.root).version_record("s", 9)


def test_damaged_pins_are_told(bank: SkillBank) -> None:
    bank.pin("s")
    (bank.root / "versions" / "pins.json").write_text("{")
    with pytest.raises(BankError, match="the pins cannot be read"):
        bank.compile()


def test_rollback_over_the_arrival_of_a_schema(tmp_path: Path) -> None:
    root = write_bank(tmp_path, {"s": SkillFiles({"one": "First."}, schema=None)})
    bank = SkillBank(root)
    bank.compile()
    first = tree(bank.compiled_folder("s"))
    (root / "rllm/s/policy_schema.yaml").write_text(SCHEMA)
    base = root / "rllm/s/base.md"
    base.write_text(base.read_text().replace("First.", BODY))
    bank.compile()
    bank.rollback("s", 1)
    assert tree(bank.compiled_folder("s")) == first
    assert not (root / "rllm/s/policy_schema.yaml").exists()
    assert SkillBank(root).compile().written == ()
    bank.rollback("s", 2)
    assert (root / "rllm/s/policy_schema.yaml").read_text() == SCHEMA


def test_a_dry_rollback_changes_nothing(bank: SkillBank) -> None:
    bank.activate("s", "001-a")
    before = tree(bank.root)
    assert bank.rollback("s", 1, dry_run=True).number == 1
    with pytest.raises(BankError):
        bank.rollback("s", 7, dry_run=True)
    assert tree(bank.root) == before


def test_the_journal_of_an_older_program_is_finished(bank: SkillBank) -> None:
    first = tree(bank.compiled_folder("s"))
    bank.activate("s", "001-a")
    journal = {"skill": "s", "number": 1, "reason": "rollback to 1", "retired": ["001-a"]}
    (bank.root / "rollback.json").write_text(json.dumps(journal))
    SkillBank(bank.root).compile()
    assert tree(bank.compiled_folder("s")) == first
    assert not (bank.root / "rollback.json").exists()


# What is read and built again


def aged(root: Path) -> None:
    """Waits until no file is too young to be believed unchanged."""
    time.sleep(0.07)


def test_what_did_not_change_is_neither_read_nor_built_again(tmp_path: Path) -> None:
    files = {name: SkillFiles({"one": BODY}) for name in ("s", "t")}
    bank = SkillBank(write_bank(tmp_path, files))
    bank.compile()
    aged(tmp_path)
    bank.compile()
    first = bank.compile("all", dry_run=True).skills
    path = tmp_path / "rllm/t/base.md"
    path.write_text(path.read_text().replace("First", "Other"))
    second = bank.compile("all", dry_run=True).skills
    assert second["s"] is first["s"], "the very same value"
    assert second["t"].digest != first["t"].digest
    assert bank.compile().written == ("t",)


@pytest.mark.parametrize("old", [False, True])
def test_every_kind_of_change_is_seen_by_a_bank_that_compiled_before(bank: SkillBank, old: bool) -> None:
    def settle() -> None:
        if old:
            aged(bank.root)
            bank.check()
            aged(bank.root)

    base, patch = bank.root / "rllm/s/base.md", bank.root / "rllm/s/patches/001-a.md"
    settle()
    base.write_text(base.read_text().replace("First", "Fjrst"))  # the same size
    assert bank.compile().written == ("s",)
    settle()
    patch.write_text(patch.read_text().replace("status: staged", "status: activ"))
    assert bank.check()
    settle()
    patch.write_text(patch.read_text().replace("status: activ", "status: staged"))
    assert bank.check() == ()
    settle()
    (patch.parent / "009-new.md").write_text("no front matter")
    assert bank.check()
    settle()
    (patch.parent / "009-new.md").unlink()
    assert bank.check() == ()
    settle()
    output = bank.compiled_folder("s") / "SKILL.md"
    text = output.read_text()
    output.write_text(text.replace("Fjrst", "Third"))  # somebody's hand: a compile puts it right
    assert bank.compile().written == ("s",)
    assert output.read_text() == text
    settle()
    index = bank.root / "bank.yaml"
    index.write_text(index.read_text() + "settings: {limits: {skill_lines: 1}}\n")
    with pytest.raises(BankError, match=r"settings\.limits\.skill_lines is 1"):
        bank.compile()


@pytest.mark.parametrize("old", [False, True])
def test_an_edit_that_keeps_size_and_time_is_seen(bank: SkillBank, old: bool) -> None:
    base = bank.root / "rllm/s/base.md"
    if old:
        aged(bank.root)
        bank.check()
        aged(bank.root)
    before = base.stat()
    base.write_text(base.read_text().replace("First", "Fjrst"))
    os.utime(base, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = base.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert bank.compile().written == ("s",)


def test_marks_that_were_taken_before_see_every_change(tmp_path: Path) -> None:
    folders = [str(tmp_path / f"{number:03d}") for number in range(300)]
    for folder in folders[:-1]:
        Path(folder).mkdir()
        for name in ("a", "b"):
            (Path(folder) / name).write_text("x")
    for number in range(10):  # enough that the folder is opened
        (Path(folders[4]) / f"{number}").write_text("x")
        (Path(folders[6]) / f"{number}").write_text("x")
    (Path(folders[1]) / "gone").symlink_to("nowhere")
    (Path(folders[2]) / "self").symlink_to("self")
    aged(tmp_path)
    marks = Marks()
    first = [marks.of(one) for one in folders]
    assert first[-1] == ((), ())
    assert [marks.of(one) for one in folders] == first
    (Path(folders[3]) / "a").write_text("y")
    (Path(folders[4]) / "a").rename(Path(folders[4]) / "c")
    (Path(folders[5]) / "b").unlink()
    (Path(folders[6]) / "9").write_text("y")
    (Path(folders[296]) / "new").write_text("")
    (Path(folders[297]) / "a").chmod(0o600)
    Path(folders[298]).rename(folders[299])
    second = [marks.of(one) for one in folders]
    changed = [number for number in range(300) if first[number] != second[number]]
    assert changed == [3, 4, 5, 6, 296, 297, 298, 299]
    assert second == [Marks().of(one) for one in folders]


def test_names_in_a_folder_that_has_just_changed_are_listed_again(tmp_path: Path) -> None:
    """The clock of a file system may stand still between two changes: a listing that young is not believed."""
    marks = Marks()
    for number in range(50):
        (tmp_path / str(number)).write_text("")
        assert len(marks.of(str(tmp_path))[0]) == number + 1
