"""The compiler: the four actions to the byte, order, and everything it refuses."""

from pathlib import Path

import pytest
from skill_bank_builder import SkillFiles, patch_text, tree, write_bank

from skill_bank.bank import SkillBank
from skill_bank.types import BankError

HEAD = b"---\nname: s\ndescription: Does s.\n---\n\n"


def compiled(root: Path, skill: str = "s", **options: object) -> bytes:
    report = SkillBank(root).compile(skill, dry_run=True, **options)  # type: ignore[arg-type]
    return report.skills[skill].files["SKILL.md"]


def refused(root: Path, target: str = "all") -> list[str]:
    bank = SkillBank(root)
    before = tree(root)
    with pytest.raises(BankError) as caught:
        bank.compile(target)
    assert tree(root) == before, "an error must leave nothing behind"
    assert all(one.file and one.fix for one in caught.value.problems)
    return [str(one) for one in caught.value.problems]


def one_skill(root: Path, *patches: str, active: list[str] | None = None, **options: object) -> Path:
    names = [text.split("\n")[1].removeprefix("id: ") for text in patches]
    skill = SkillFiles(
        {"one": "First.", "two": "Second."},
        dict(zip(names, patches, strict=True)),
        names if active is None else active,
        head="# S",
        **options,  # type: ignore[arg-type]
    )
    return write_bank(root, {"s": skill})


def test_a_base_alone(tmp_path: Path) -> None:
    assert compiled(one_skill(tmp_path)) == HEAD + b"# S\n\nFirst.\n\nSecond.\n"


def test_the_four_actions(tmp_path: Path) -> None:
    root = one_skill(
        tmp_path,
        patch_text("001-a", "one", "Appended.", action="append"),
        patch_text("002-p", "one", "Prepended.", action="prepend"),
        patch_text("003-i", "one", "Inserted.", action="insert_after", new_section="more"),
        patch_text("004-r", "two", "Replaced.", action="replace"),
        patch_text("005-m", "more", "Into the inserted one.", depends_on="[003-i]"),
        patch_text("006-j", "one", "Inserted later.", action="insert_after"),
    )
    assert compiled(root) == HEAD + (
        b"# S\n\nPrepended.\n\nFirst.\n\nAppended.\n\nInserted.\n\nInto the inserted one.\n\n"
        b"Inserted later.\n\nReplaced.\n"
    )


def test_replace_with_nothing_takes_the_prose_and_keeps_the_policy(tmp_path: Path) -> None:
    skill = SkillFiles(
        {"one": "First.\n\n```yaml policy\nsize: 4\n```", "two": "Second."},
        {"001-r": patch_text("001-r", "one", "", action="replace")},
        ["001-r"],
    )
    root = write_bank(tmp_path, {"s": skill})
    assert compiled(root) == HEAD + b"Second.\n"
    assert SkillBank(root).policy("s").resolve().values == {"size": 4}


def test_manifest_order_breaks_ties_and_dependencies_win(tmp_path: Path) -> None:
    root = one_skill(
        tmp_path,
        patch_text("a", "one", "A", depends_on="[c]"),
        patch_text("b", "one", "B"),
        patch_text("c", "one", "C"),
        active=["a", "b", "c"],
    )
    # a waits for c; b is next in the manifest; then c, then a.
    assert SkillBank(root).compile("s", dry_run=True).skills["s"].patches == ("b", "c", "a")
    assert b"B\n\nC\n\nA" in compiled(root)


def test_placeholders_are_filled_from_the_merged_policy(tmp_path: Path) -> None:
    body = (
        "Size {{policy.size}}, rate {{policy.rate.default}}, plan {{ policy.plan }}.\n\n{{policy.rate}}\n\n"
        "```yaml policy\nsize: 4\nplan: fast\nrate:\n"
        '  - {default: 1e-5, min: 1e-6, max: 1e-2}\n  - {when: {params: "<10M"}, default: 3e-4}\n```'
    )
    patch = patch_text("001-x", "one", "```yaml policy\nsize: 5\n```", scope="all")
    root = write_bank(tmp_path, {"s": SkillFiles({"one": body}, {"001-x": patch}, ["001-x"])})
    assert compiled(root).decode() == HEAD.decode() + (
        "Size 5, rate 0.0003 (params <10M), 1e-5 (otherwise), plan fast.\n\n"
        "| when | default | min | max |\n|---|---|---|---|\n"
        "| always | 1e-5 | 1e-6 | 0.01 |\n| params <10M | 0.0003 |  |  |\n"
    )


def test_a_patch_that_only_sets_policy_leaves_the_prose_alone(tmp_path: Path) -> None:
    patch = patch_text("001-x", "one", "```yaml policy\nsize: 5\n```", scope="all")
    with_patch = one_skill(tmp_path / "a", patch)
    without = one_skill(tmp_path / "b", patch, active=[])
    assert compiled(with_patch) == compiled(without)


def test_profiles_choose_other_patches(tmp_path: Path) -> None:
    root = one_skill(
        tmp_path,
        patch_text("001-a", "one", "A"),
        patch_text("002-b", "one", "B"),
        active=["001-a"],
        profiles={"plain": ["002-b"]},
    )
    assert b"A" in compiled(root)
    assert b"B" not in compiled(root)
    assert b"B" in compiled(root, profile="plain")
    assert b"A\n" not in compiled(root, profile="plain")
    with pytest.raises(BankError, match=r"no skill has the profile 'fancy'.*There are: plain"):
        compiled(root, profile="fancy")


def test_a_skill_without_the_profile_keeps_its_own_lists(tmp_path: Path) -> None:
    write_bank(
        tmp_path,
        {
            "s": SkillFiles({"one": "First."}, {"a": patch_text("a", "one", "A")}, ["a"]),
            "t": SkillFiles({"one": "First."}, {}, [], profiles={"plain": []}),
        },
    )
    assert b"A" in compiled(tmp_path, profile="plain")


REFUSALS = {
    "unknown section": ([patch_text("a", "three", "A")], "there is no section 'three'"),
    "section of a later patch": (
        [
            patch_text("a", "more", "A"),
            patch_text("b", "one", "B", action="insert_after", new_section="more"),
        ],
        "there is no section 'more' when 'a' applies",
    ),
    "section inserted twice": (
        [
            patch_text("a", "one", "A", action="insert_after", new_section="more"),
            patch_text("b", "one", "B", action="insert_after", new_section="more"),
        ],
        "section 'more' exists already",
    ),
    "unknown dependency": ([patch_text("a", "one", "A", depends_on="[zzz]")], "depends on 'zzz', which does not exist"),
    "unknown skill": ([patch_text("a", "one", "A", depends_on="['t:a']")], "there is no skill 't'"),
    "cycle": (
        [patch_text("a", "one", "A", depends_on="[b]"), patch_text("b", "one", "B", depends_on="[a]")],
        "dependencies form a cycle: a -> b -> a",
    ),
    "itself": ([patch_text("a", "one", "A", depends_on="[a]")], "dependencies form a cycle: a -> a"),
    "two replaces": (
        [patch_text("a", "one", "A", action="replace"), patch_text("b", "one", "B", action="replace")],
        "'b' and 'a' both replace section 'one' and no order is declared",
    ),
    "replace over an append": (
        [patch_text("a", "one", "A"), patch_text("b", "one", "B", action="replace")],
        "'b' replaces section 'one' and would wipe what 'a' added",
    ),
    "conflict": (
        [patch_text("a", "one", "A"), patch_text("b", "one", "B", conflicts_with="[a]")],
        "'b' conflicts with 'a' and both are active",
    ),
    "unknown conflict": ([patch_text("a", "one", "A", conflicts_with="[zzz]")], "names the patch 'zzz'"),
    "staged and active": (
        [patch_text("a", "one", "A", status="staged")],
        "has status staged and the manifest lists it",
    ),
    "unknown policy key": (
        [patch_text("a", "one", "```yaml policy\ncolour: 3\n```", scope="all")],
        "no policy key 'colour'",
    ),
    "default outside of its range": (
        [patch_text("a", "one", "```yaml policy\nrate: {default: 0.5, max: 0.1}\n```", scope="all")],
        "rate.default 0.5 is above rate.max 0.1",
    ),
    "unknown placeholder": ([patch_text("a", "one", "Use {{policy.colour}}.")], "'colour', which nothing sets"),
    "bad placeholder": ([patch_text("a", "one", "Use {{policy.Colour!}}.")], "a placeholder that cannot be read"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(tmp_path: Path, name: str) -> None:
    patches, word = REFUSALS[name]
    said = refused(one_skill(tmp_path, *patches))
    assert any(word in one for one in said), said


def test_replace_after_a_replace_and_appends_with_a_declared_order(tmp_path: Path) -> None:
    root = one_skill(
        tmp_path,
        patch_text("c", "one", "C", action="replace", supersedes="[a, b]"),
        patch_text("a", "one", "A", action="replace"),
        patch_text("b", "one", "B", depends_on="[a]"),
    )
    assert SkillBank(root).compile("s", dry_run=True).skills["s"].patches == ("a", "b", "c")
    assert compiled(root) == HEAD + b"# S\n\nC\n\nSecond.\n"


def test_what_the_manifest_lists_wrongly(tmp_path: Path) -> None:
    root = one_skill(
        tmp_path,
        patch_text("a", "one", "A"),
        active=["a", "zzz"],
        disabled=["a", "yyy"],
        profiles={"plain": ["xxx"]},
    )
    said = "\n".join(refused(root))
    for word in (
        "patch 'zzz' does not exist",
        "patch 'a' is active and disabled",
        "the disabled patch 'yyy' does not exist",
        "patch 'xxx' does not exist",
    ):
        assert word in said


def test_a_profile_that_drops_a_needed_patch(tmp_path: Path) -> None:
    root = one_skill(
        tmp_path,
        patch_text("a", "one", "A"),
        patch_text("b", "one", "B", depends_on="[a]"),
        profiles={"plain": ["b"]},
    )
    assert any("depends on 'a', which profile 'plain' does not activate" in one for one in refused(root))


def test_dependencies_across_skills(tmp_path: Path) -> None:
    skills = {
        "s": SkillFiles({"one": "1"}, {"a": patch_text("a", "one", "A", depends_on="['t:b']")}, ["a"]),
        "t": SkillFiles({"one": "1"}, {"b": patch_text("b", "one", "B")}, ["b"]),
    }
    assert b"A" in compiled(write_bank(tmp_path / "good", skills))
    skills["t"].active = []
    assert any("depends on 't:b', which the manifest does not activate" in one for one in refused(
        write_bank(tmp_path / "inactive", skills), "s"))  # fmt: skip
    skills["t"].active = ["b"]
    skills["t"].patches = {"b": patch_text("b", "one", "B", depends_on="['s:a']")}
    assert any("cycle: s:a -> t:b -> s:a" in one for one in refused(write_bank(tmp_path / "cycle", skills)))


def test_protected_sections_and_limits(tmp_path: Path) -> None:
    root = one_skill(tmp_path, patch_text("a", "one", "A\nB\nC"))
    index = (root / "bank.yaml").read_text()
    (root / "bank.yaml").write_text(
        index.replace("{output: x}", "{output: x, protected: [one]}")
        + "settings: {limits: {skill_lines: 8, patch_lines: 2}}\n"
    )
    said = "\n".join(refused(root))
    assert "section 'one' is protected" in said
    assert "the patch changes 3 lines, settings.limits.patch_lines is 2" in said
    assert "s compiles to 14 lines, settings.limits.skill_lines is 8" in said


def test_every_problem_of_a_bank_is_reported_at_once(tmp_path: Path) -> None:
    root = write_bank(
        tmp_path,
        {
            "s": SkillFiles({"one": "1"}, {"a": patch_text("a", "zzz", "A"), "b": "no front matter"}, ["a", "b"]),
            "t": SkillFiles({"one": "{{policy.q}}"}, schema="schema_version: 2\n"),
            "u": SkillFiles({"one": "1"}),
        },
    )
    (root / "rllm" / "u" / "base.md").unlink()
    said = refused(root)
    for word in (
        "rllm/s/patches/a.md:3: there is no section 'zzz'",
        "rllm/s/patches/b.md:1: no front matter",
        "rllm/t/policy_schema.yaml:1: the schema must say",
        "rllm/t/base.md:7: the placeholder names the policy key 'q'",
        "rllm/u/base.md: the base of the skill is missing",
    ):
        assert any(one.startswith(word) for one in said), (word, said)
    assert not any("'b' does not exist" in one for one in said), "a broken file is reported once, where it is broken"


def test_one_skill_compiles_although_another_is_broken(tmp_path: Path) -> None:
    root = write_bank(tmp_path, {"s": SkillFiles({"one": "1"}), "t": SkillFiles({"one": "1"})})
    (root / "rllm" / "t" / "base.md").write_text("broken")
    assert compiled(root, "s") == HEAD + b"1\n"


def test_files_with_carriage_returns_or_other_encodings(tmp_path: Path) -> None:
    root = one_skill(tmp_path, patch_text("a", "one", "A"))
    (root / "rllm/s/patches/a.md").write_bytes(b"---\r\nid: a\r\n---\r\n")
    (root / "rllm/s/base.md").write_bytes(b"---\nname: s\n---\n\xff\n")
    said = "\n".join(refused(root))
    assert "patches/a.md:1: a carriage return" in said
    assert "base.md:4: not UTF-8" in said


def test_every_line_knows_where_it_was_written(tmp_path: Path) -> None:
    blocks = "```yaml policy\nsize: 4\n```\n\n{{policy.rate}}\n\n```yaml policy\nrate: {min: 1e-6}\n```"
    body = "First {{policy.size}}.\n\n" + blocks
    patch = patch_text("001-x", "one", "Appended.")
    root = write_bank(tmp_path, {"s": SkillFiles({"one": body}, {"001-x": patch}, ["001-x"])})
    built = SkillBank(root).compile("s", dry_run=True).skills["s"]
    lines = built.files["SKILL.md"].decode().split("\n")[:-1]
    assert len(lines) == len(built.origins)
    sources = {path: (root / path).read_text().split("\n") for path in ("rllm/s/base.md", "rllm/s/patches/001-x.md")}
    for line, origin in zip(lines, built.origins, strict=True):
        if origin is None:
            assert line == ""
            continue
        written = sources[origin.file][origin.line - 1]
        assert written == line or "{{policy" in written
    appended = built.origins[lines.index("Appended.")]
    assert appended is not None
    assert (appended.patch, appended.section) == ("001-x", "one")
    table = built.origins[lines.index("| 1e-6 |")]
    assert table is not None
    assert sources[table.file][table.line - 1] == "{{policy.rate}}"
