"""Compiled skills in a client's folder: what is not ours stays what it is, and nothing of ours is left behind."""

import json
import os
from pathlib import Path

import pytest
from skill_bank_builder import SkillFiles, patch_text, tree, write_bank
from skills_ref.validator import validate
from test_bank_crash import dies_at

from skill_bank import install as installing
from skill_bank.bank import SkillBank
from skill_bank.edits import patches_of_edit
from skill_bank.install import MANIFEST, InstallError, install, plan_install, plan_uninstall, uninstall

SKILLS = {"one": {"SKILL.md": b"first\n", "policy.json": b"{}\n"}, "two": {"SKILL.md": b"second\n"}}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "project" / ".claude" / "skills"


def test_installing_writes_a_list_and_the_second_time_nothing(target: Path) -> None:
    target.parent.parent.mkdir()
    plan = plan_install(SKILLS, target)
    assert (plan.written, plan.unchanged) == (("one", "two"), ())
    assert not target.exists(), "a plan writes nothing"
    install(plan)
    listed = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
    assert listed["skills"].keys() == {"one", "two"}
    assert listed["created"] == [".", ".."]
    before = tree(target)
    again = plan_install(SKILLS, target)
    assert (again.written, again.unchanged) == ((), ("one", "two"))
    install(again)
    assert tree(target) == before


def test_uninstalling_leaves_no_trace(target: Path) -> None:
    project = target.parent.parent
    project.mkdir()
    install(plan_install(SKILLS, target))
    uninstall(plan_uninstall(target, ["one"]))
    assert sorted(path.name for path in target.iterdir()) == [MANIFEST, "two"]
    assert uninstall(plan_uninstall(target)).removed == ("two",)
    assert list(project.iterdir()) == []


def test_what_is_not_ours_stays_through_all_of_it(target: Path) -> None:
    (target / "mine").mkdir(parents=True)
    (target / "mine" / "SKILL.md").write_bytes(b"mine")
    (target / "one").mkdir()
    (target / "one" / "notes.txt").write_bytes(b"notes")
    before = tree(target)
    install(plan_install(SKILLS, target))
    assert json.loads((target / MANIFEST).read_text(encoding="utf-8"))["created"] == []
    uninstall(plan_uninstall(target))
    assert tree(target) == before


def test_a_file_edited_by_hand_is_shown_and_kept(target: Path) -> None:
    install(plan_install(SKILLS, target))
    (target / "one" / "SKILL.md").write_bytes(b"first\nmy line\n")
    before = tree(target)
    plan = plan_install({**SKILLS, "one": {"SKILL.md": b"new\n"}}, target)
    (objection,) = plan.objections
    assert objection.edited
    assert "+my line" in objection.difference
    assert "-new" in objection.difference
    with pytest.raises(InstallError, match="was edited by hand"):
        install(plan)
    assert tree(target) == before
    # what a skill no longer has and was edited is an objection, too
    (target / "one" / "SKILL.md").write_bytes(b"first\n")
    (target / "one" / "policy.json").write_bytes(b"mine\n")
    assert [one.file for one in plan_install({"one": {"SKILL.md": b"new\n"}}, target).objections] == ["policy.json"]
    install(plan_install({"one": {"SKILL.md": b"new\n"}}, target), force=True)
    assert tree(target / "one") == {"SKILL.md": b"new\n"}


def test_uninstalling_keeps_or_removes_edits_only_when_told(target: Path) -> None:
    install(plan_install(SKILLS, target))
    (target / "one" / "SKILL.md").write_bytes(b"my own\n")
    before = tree(target)
    with pytest.raises(InstallError, match="edited by hand"):
        uninstall(plan_uninstall(target))
    assert tree(target) == before
    assert uninstall(plan_uninstall(target), keep_edited=True).kept == ("one/SKILL.md",)
    assert tree(target) == {"one/SKILL.md": b"my own\n"}
    assert plan_install(SKILLS, target).objections[0].edited is False, "it is theirs now"
    install(plan_install(SKILLS, target), force=True)
    (target / "one" / "SKILL.md").write_bytes(b"my own\n")
    uninstall(plan_uninstall(target), force=True)
    assert tree(target.parent) == {}


def test_somebody_elses_file_is_not_overwritten(target: Path) -> None:
    (target / "one").mkdir(parents=True)
    (target / "one" / "SKILL.md").write_bytes(b"theirs\n")
    plan = plan_install(SKILLS, target)
    assert [(one.skill, one.edited) for one in plan.objections] == [("one", False)]
    with pytest.raises(InstallError, match="was not written by mcp-evo"):
        install(plan)
    assert tree(target) == {"one/SKILL.md": b"theirs\n"}


def test_links_are_refused_wherever_they_are(target: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    target.parent.mkdir(parents=True)
    target.symlink_to(elsewhere)
    with pytest.raises(InstallError, match="is a link to"):
        plan_install(SKILLS, target)
    target.unlink()
    target.mkdir()
    (target / "one").symlink_to(elsewhere)
    with pytest.raises(InstallError, match="one is a link"):
        plan_install(SKILLS, target)
    (target / "one").unlink()
    (target / "one").mkdir()
    (target / "one" / "SKILL.md").symlink_to(elsewhere / "x")
    with pytest.raises(InstallError, match=r"SKILL.md is a link"):
        plan_install(SKILLS, target)
    assert list(elsewhere.iterdir()) == []


def test_places_that_cannot_take_a_skill_are_one_clear_error(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InstallError, match="is no folder"):
        plan_install(SKILLS, tmp_path / "file" / "skills")
    target.mkdir(parents=True)
    (target / "one").write_bytes(b"a file")
    with pytest.raises(InstallError, match="is a file where a folder"):
        plan_install(SKILLS, target)
    (target / "one").unlink()
    (target / "two" / "SKILL.md").mkdir(parents=True)
    with pytest.raises(InstallError, match="is a folder where a file"):
        plan_install(SKILLS, target)
    (target / "two" / "SKILL.md").rmdir()
    (target / MANIFEST).write_text("[1]", encoding="utf-8")
    with pytest.raises(InstallError, match="is not the list"):
        plan_install(SKILLS, target)
    (target / MANIFEST).unlink()
    with pytest.raises(InstallError, match="leads out"):
        plan_install({"one": {"../../x": b""}}, target)
    with pytest.raises(InstallError, match="installed nothing"):
        plan_uninstall(target)
    monkeypatch.setattr(installing.os, "access", lambda *arguments: False)  # a root user may write anywhere
    with pytest.raises(InstallError, match="cannot be written"):
        plan_install(SKILLS, target)


def test_a_full_disk_changes_nothing(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target.parent.parent.mkdir()
    left = 2
    real = os.fsync

    def full(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InstallError, match="No space left"):
        install(plan_install(SKILLS, target))
    assert list(target.parent.parent.iterdir()) == []
    monkeypatch.undo()
    install(plan_install(SKILLS, target))
    before = tree(target)
    left = 1
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InstallError, match="No space left"):
        install(plan_install({"one": {"SKILL.md": b"new\n", "more.md": b"more\n"}}, target))
    assert tree(target) == before


def test_who_dies_on_the_way_leaves_whole_files_and_the_next_one_goes_on(tmp_path: Path) -> None:
    step = 0
    while True:
        step += 1
        target = tmp_path / f"project-{step}" / "skills"
        install(plan_install(SKILLS, target))
        new = {"one": {"SKILL.md": b"new\n"}, "two": {"SKILL.md": b"newer\n", "more.md": b"more\n"}}
        died = dies_at(step, lambda where=target, files=new: install(plan_install(files, where)))
        for name, text in {"one": (b"first\n", b"new\n"), "two": (b"second\n", b"newer\n")}.items():
            assert (target / name / "SKILL.md").read_bytes() in text
        plan = plan_install(new, target)
        assert plan.objections == (), f"step {step}: our own half-done work is no edit by hand"
        install(plan)
        uninstall(plan_uninstall(target))
        assert list((tmp_path / f"project-{step}").rglob("*")) == []
        if not died:
            break
    assert step > 5


# An edit as a patch

EDITED = """---
name: s
description: Does s.
---

# Head

one a
one b

added

Size 4 here.
Last.
"""


@pytest.fixture
def bank(tmp_path: Path) -> SkillBank:
    sections = {"one": "one a\none b", "two": "Size {{policy.size}} here.\nLast.\n\n```yaml policy\nsize: 4\n```"}
    patches = {"001-a": patch_text("001-a", "one", "added")}
    found = SkillBank(write_bank(tmp_path / "bank", {"s": SkillFiles(sections, patches, ["001-a"], head="# Head")}))
    found.compile()
    return found


def test_an_edit_inside_sections_becomes_patches_that_give_the_edited_text(bank: SkillBank) -> None:
    built = bank.compile("s", dry_run=True).skills["s"]
    assert built.files["SKILL.md"].decode() == EDITED
    text = EDITED.replace("one b", "one B\nmore").replace("Last.\n", "Last.\nEnd.\n")
    edited = patches_of_edit(bank, built, text, "2026-01-01")
    assert edited.outside == ()
    assert [one.id for one in edited.patches] == ["002-edited-one", "003-edited-two"]
    assert "{{policy.size}}" in edited.patches[1].text, "what was left alone stays a placeholder"
    for patch in edited.patches:
        assert bank.check_patch(patch) == ()
        bank.add_patch(patch)
        bank.activate("s", patch.id)
    assert bank.load_compiled("s") == text


def test_an_edit_outside_of_sections_is_said_to_be_there(bank: SkillBank) -> None:
    built = bank.compile("s", dry_run=True).skills["s"]
    edited = patches_of_edit(bank, built, EDITED.replace("# Head", "# Title"), "2026-01-01")
    assert edited.patches == ()
    assert edited.outside == (6,)


def test_what_is_installed_is_valid_by_the_specification(tmp_path: Path) -> None:
    bank = SkillBank.shipped()
    files = {name: dict(one.files) for name, one in bank.compile(dry_run=True).skills.items()}
    install(plan_install(files, tmp_path / "skills"))
    for name in files:
        assert validate(tmp_path / "skills" / name) == []
