"""Damaged banks: every mistake is told in one run, with file and line; nothing crashes, nothing gets stuck."""

import os
import shutil
from pathlib import Path

import pytest
from skill_bank_builder import SkillFiles, patch_text, write_bank

from skill_bank.bank import SkillBank
from skill_bank.plan import find_cycles
from skill_bank.types import BankError

BLOCK = "```yaml policy\nsize: 3\n```"


def bank_at(root: Path, body: str = "Text.", **skill: object) -> Path:
    return write_bank(root, {"a-a": SkillFiles({"x": body}, **skill), "b-b": SkillFiles({"y": "Other."})})  # type: ignore[arg-type]


def said(root: Path) -> list[str]:
    """`file:line: message` of each problem, in order."""
    return [f"{one.file}:{one.line}: {one.message}" for one in SkillBank(root).check()]


def test_every_cycle_is_told() -> None:
    edges = {"a": ["b"], "b": ["a"], "c": ["d"], "d": ["e"], "e": ["c"], "f": ["a", "c"]}
    assert find_cycles(edges) == [["a", "b", "a"], ["c", "d", "e", "c"]]
    assert find_cycles({"a": ["b"], "b": []}) == []


def test_two_cycles_of_a_skill_and_two_across_skills(tmp_path: Path) -> None:
    pairs = {"p1": "p2", "p2": "p1", "p3": "p4", "p4": "p3"}
    patches = {one: patch_text(one, "x", "B", depends_on=f"[{other}]") for one, other in pairs.items()}
    found = said(bank_at(tmp_path / "one", patches=patches, active=list(pairs)))
    assert [one.split("cycle: ")[1] for one in found] == ["p1 -> p2 -> p1", "p3 -> p4 -> p3"]
    skills = {
        name: SkillFiles(
            {"x": "T"},
            {one: patch_text(one, "x", "B", depends_on=f"['{other}:{one}']") for one in ("p1", "p2")},
            ["p1", "p2"],
        )
        for name, other in (("a-a", "b-b"), ("b-b", "a-a"))
    }
    found = said(write_bank(tmp_path / "two", skills))
    assert [one.split("cycle: ")[1] for one in found] == ["a-a:p1 -> b-b:p1 -> a-a:p1", "a-a:p2 -> b-b:p2 -> a-a:p2"]


def test_front_matter_that_cannot_be_read_hides_nothing_else(tmp_path: Path) -> None:
    root = bank_at(tmp_path, "<!-- section:z -->", patches={"p1": patch_text("p1", "none", "B")}, active=["p1", "zz"])
    base = root / "rllm/a-a/base.md"
    base.write_text(base.read_text(encoding="utf-8").replace("Does a-a.", "Does: a-a"), encoding="utf-8")
    patch = root / "rllm/a-a/patches/p2.md"
    patch.write_text("---\nid: [\n---\n\n<!-- section:q -->\n", encoding="utf-8")
    found = said(root)
    assert [one.split(": ")[0] for one in found] == [
        "rllm/a-a/base.md:3",
        "rllm/a-a/base.md:7",
        "rllm/a-a/manifest.yaml:2",
        "rllm/a-a/patches/p1.md:3",
        "rllm/a-a/patches/p2.md:2",
        "rllm/a-a/patches/p2.md:5",
    ], found


def test_every_mistake_of_a_block_a_line_and_a_schema_is_told(tmp_path: Path) -> None:
    body = "```yaml policy\nBad: 1\nsize: {}\nrate:\n  - {when: {nope: 1}, default: 1}\n  - {when: {lora: true}}\n```"
    found = said(bank_at(tmp_path / "block", body))
    assert [one.split(": ")[0] for one in found] == [f"rllm/a-a/base.md:{line}" for line in (8, 9, 11, 12)], found
    found = said(
        bank_at(tmp_path / "line", f"{{{{policy.a}}}} {{{{policy.size}}}} {{{{policy.b}}}} {{{{policy B}}}}\n\n{BLOCK}")
    )
    assert len(found) == 3
    assert all(one.startswith("rllm/a-a/base.md:7: ") for one in found)
    schema = "schema_version: 2\nother: 1\nkeys:\n  size: {type: nope}\n  plan: {}\n"
    found = said(bank_at(tmp_path / "schema", schema=schema))
    assert [one.split(": ")[0].rpartition(":")[2] for one in found] == ["1", "2", "4", "5"], found


def test_a_placeholder_in_a_value_is_refused(tmp_path: Path) -> None:
    schema = "schema_version: 1\nkeys:\n  note: {type: string}\n"
    body = "See {{policy.note}}.\n\n```yaml policy\nnote: '{{policy.note}}'\n```"
    (found,) = said(bank_at(tmp_path, body, schema=schema))
    assert found == "rllm/a-a/base.md:7: a placeholder that cannot be read"


@pytest.mark.parametrize("path", ["bank.yaml", "rllm/a-a/base.md", "rllm/a-a/manifest.yaml", "rllm/a-a/patches/p1.md"])
def test_a_folder_in_the_place_of_a_file(path: str, tmp_path: Path) -> None:
    root = bank_at(tmp_path, patches={"p1": patch_text("p1", "x", "B")}, active=["p1"])
    (root / path).unlink()
    (root / path).mkdir()
    assert any(one.startswith(f"{path}:0: it cannot be read: ") for one in said(root))


def test_links_to_nothing_and_to_themselves(tmp_path: Path) -> None:
    root = bank_at(tmp_path, patches={"p1": patch_text("p1", "x", "B")}, active=["p1"])
    bank = SkillBank(root)
    (root / "rllm/a-a/patches/p2.md").symlink_to("gone.md")
    (root / "rllm/a-a/patches/p3.md").symlink_to("p3.md")
    found = [str(one) for one in bank.check()]
    assert found[0].startswith("rllm/a-a/patches/p2.md: a link to nothing")
    assert found[1].startswith("rllm/a-a/patches/p3.md: it cannot be read: ")
    for name in ("p2", "p3"):
        (root / f"rllm/a-a/patches/{name}.md").unlink()
    assert bank.check() == ()


def test_a_number_of_five_thousand_digits_is_no_crash(tmp_path: Path) -> None:
    assert any("not a finite number" in one for one in said(bank_at(tmp_path, BLOCK.replace("3", "1" * 5000))))


@pytest.mark.parametrize("exchange", [True, False])
def test_what_stands_in_the_place_of_a_compiled_folder(
    exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchange:
        monkeypatch.setattr("skill_bank.swap._exchange", lambda first, second: False)
    root = bank_at(tmp_path / "bank")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "keep").write_text("x", encoding="utf-8")
    (root / "compiled").mkdir()
    for put in (
        lambda place: place.symlink_to(mine),
        lambda place: place.symlink_to(tmp_path / "gone"),
        lambda place: place.write_text("a file", encoding="utf-8"),
    ):
        place = root / "compiled" / "a-a"
        put(place)
        SkillBank(root).compile("all")
        assert sorted(os.listdir(root / "compiled")) == ["a-a", "b-b"]
        assert not place.is_symlink()
        assert (place / "SKILL.md").is_file()
        shutil.rmtree(place)
    assert (mine / "keep").read_text(encoding="utf-8") == "x"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("rollback.json", "{"),
        ("rollback.json", "{}"),
        ("rollback.json", "[1]"),
        ("package-install.json", "{}"),
        ("versions/a-a.jsonl", "{}\n"),
        ("versions/a-a.jsonl", "[1]\n"),
        ("versions/pins.json", "[1]"),
    ],
)
def test_records_that_mean_nothing_are_named(path: str, text: str, tmp_path: Path) -> None:
    root = bank_at(tmp_path)
    (root / "versions").mkdir()
    (root / path).write_text(text, encoding="utf-8")
    with pytest.raises(BankError) as caught:
        SkillBank(root).compile("all")
    assert {one.file for one in caught.value.problems} == {path}
    assert not (root / "compiled" / "a-a").exists()


def test_an_active_patch_that_nothing_lists_is_not_lost_without_a_word(tmp_path: Path) -> None:
    patches = {one: patch_text(one, "x", "B") for one in ("p1", "p2", "p3", "p4")}
    root = bank_at(tmp_path, patches=patches, active=["p1"], disabled=["p2"], profiles={"v": ["p3"]})
    (found,) = SkillBank(root).compile("a-a", dry_run=True).warnings
    assert (found.file, found.line) == ("rllm/a-a/patches/p4.md", 5)
    assert "no list of the manifest names it" in found.message


def test_a_folder_that_the_bank_does_not_declare_is_named(tmp_path: Path) -> None:
    root = bank_at(tmp_path)
    assert SkillBank(root).undeclared() == ()
    shutil.copytree(root / "rllm/a-a", root / "rllm/c-c")
    (one,) = SkillBank(root).undeclared()
    assert (one.file, one.message) == ("rllm/c-c", "bank.yaml does not declare 'c-c', so it is not compiled")


def test_the_status_of_no_bank_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BankError, match="there is no bank here"):
        SkillBank(tmp_path / "none").status()
    assert not (tmp_path / "none").exists()
