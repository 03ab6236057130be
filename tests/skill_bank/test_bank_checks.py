"""What a compile refuses or warns about beyond structure: budgets, commands, protected parts, numbers, settings."""

from pathlib import Path

import pytest
from skill_bank_builder import SkillFiles, patch_text, tree, write_bank

from skill_bank.bank import SkillBank
from skill_bank.executable import commands_of, holds_command
from skill_bank.markdown import read_text
from skill_bank.measure import Change, estimate_tokens
from skill_bank.prose import statements
from skill_bank.types import BankError, Problem


def problems_of(root: Path, target: str = "all") -> list[str]:
    bank = SkillBank(root)
    before = tree(root)
    with pytest.raises(BankError) as caught:
        bank.compile(target)
    assert tree(root) == before
    return [str(one) for one in caught.value.problems]


def warnings_of(root: Path, skill: str = "s") -> tuple[Problem, ...]:
    return SkillBank(root).compile(skill, dry_run=True).warnings


def skill(body: str = "First.", *patches: str, **options: object) -> SkillFiles:
    names = [text.split("\n")[1].removeprefix("id: ") for text in patches]
    texts = dict(zip(names, patches, strict=True))
    return SkillFiles({"one": body, "two": "Second."}, texts, names, **options)  # type: ignore[arg-type]


# Budgets


def test_tokens_are_estimated_the_same_everywhere() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens("abcd") == 1
    assert estimate_tokens("abcde") == 2
    assert estimate_tokens("学习率") == 3
    assert estimate_tokens("学习率 abc") == 4  # three wide characters, four bytes of ASCII


def test_a_change_counts_what_it_adds_and_what_it_removes() -> None:
    change = Change("new\n\nlines\n", "old")
    assert change.lines == 3
    assert change.tokens == 3 + 1  # "new\n\nlines" has ten characters, "old" three


def test_a_patch_pays_for_what_it_takes_away(tmp_path: Path) -> None:
    long = "\n".join(f"line {number}" for number in range(10))
    patch = patch_text("a", "one", "short", action="replace")
    root = write_bank(tmp_path, {"s": skill(long, patch)}, "settings: {limits: {patch_lines: 10}}\n")
    assert any(
        "a.md: the patch changes 11 lines, settings.limits.patch_lines is 10" in one for one in problems_of(root)
    )


def test_budgets_warn_and_refuse_by_settings(tmp_path: Path) -> None:
    patch = patch_text("a", "one", "x" * 400)
    limits = "settings: {warn: {patch_tokens: 50, skill_tokens: 90}, limits: {patch_tokens: 200}}\n"
    root = write_bank(tmp_path / "warned", {"s": skill("First.", patch)}, limits)
    said = [str(one) for one in warnings_of(root)]
    assert any(
        "a.md: the patch changes 100 tokens (estimated), settings.warn.patch_tokens is 50" in one for one in said
    )
    assert any("settings.warn.skill_tokens is 90" in one for one in said)
    root = write_bank(tmp_path / "refused", {"s": skill("First.", patch)}, limits.replace("200", "99"))
    said = problems_of(root)
    assert len(said) == 1
    assert "settings.limits.patch_tokens is 99" in said[0]


def test_without_settings_the_specification_is_the_warning(tmp_path: Path) -> None:
    root = write_bank(tmp_path, {"s": skill("\n".join(["x"] * 501))})
    assert any("settings.warn.skill_lines is 500" in str(one) for one in warnings_of(root))


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ("settings: {limits: {skill_line: 3}}\n", "bank.yaml:7: there is no settings.limits.skill_line"),
        ("settings: {limits: {skill_lines: many}}\n", "settings.limits.skill_lines is 'many'"),
        ("settings: {warn: {patch_lines: 0}}\n", "settings.warn.patch_lines is 0"),
        ("settings: {checks: {contradictions: loud}}\n", "settings.checks.contradictions is 'loud'"),
        ("settings: {checks: {spelling: warn}}\n", "settings.checks.spelling is 'warn'"),
        ("settings: {limit: {}}\n", "settings knows no field 'limit'"),
        ("settings: [1]\n", "settings is not a mapping"),
        ("setings: {}\n", "bank.yaml knows no field 'setings'"),
    ],
)
def test_a_misspelt_setting_is_never_ignored(tmp_path: Path, settings: str, word: str) -> None:
    said = problems_of(write_bank(tmp_path, {"s": skill()}, settings))
    assert any(word in one for one in said), said


def test_a_misspelt_protection_is_never_ignored(tmp_path: Path) -> None:
    root = write_bank(tmp_path, {"s": skill()})
    index = (root / "bank.yaml").read_text()
    (root / "bank.yaml").write_text(index.replace("{output: x}", "{output: x, protcted: [one]}"))
    assert any("skill s knows no field 'protcted'" in one for one in problems_of(root))
    (root / "bank.yaml").write_text(index.replace("{output: x}", "{output: x, protected: [three]}"))
    assert any("protects the section 'three', which rllm/s/base.md does not have" in one for one in problems_of(root))


# Protected sections and what runs


def test_a_protected_section_keeps_its_text_and_its_values(tmp_path: Path) -> None:
    body = "First.\n\n```yaml policy\nsize: 4\n```"
    patches = (
        patch_text("a", "two", "```yaml policy\nsize: 5\n```", scope="all"),
        patch_text("b", "one", "Behind.", action="insert_after"),
    )
    root = write_bank(tmp_path, {"s": skill(body, *patches)})
    index = (root / "bank.yaml").read_text()
    (root / "bank.yaml").write_text(index.replace("{output: x}", "{output: x, protected: [one]}"))
    said = problems_of(root)
    assert any("a.md:10: size is set by the protected section 'one'" in one for one in said), said
    assert any("b.md:3: section 'one' is protected" in one for one in said), said


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        ("!`git status`", True),
        ("Now: !`git status` here", True),
        ("- (!`x`)", True),
        ("```!", True),
        ("  ~~~ ! sh", True),
        ("> ```!", True),
        ("- ````! sh", True),
        ("A command that goes on below: !`", True),
        ("Done! `git status`", False),
        ("`Done!` and `more`", False),
        ("not equal: a != b", False),
        ("```sh", False),
    ],
)
def test_what_a_client_runs_when_it_loads_a_skill(line: str, runs: bool) -> None:
    assert holds_command(line) is runs


def test_a_patch_adds_no_command(tmp_path: Path) -> None:
    patches = (patch_text("a", "one", "Look: !`rm -r x`"), patch_text("b", "one", "```!\nrm -r x\n```"))
    said = problems_of(write_bank(tmp_path, {"s": skill("First.", *patches)}))
    assert sum("adds a command" in one for one in said) == 2


def test_a_patch_removes_no_command(tmp_path: Path) -> None:
    body = "State:\n\n!`git status`"
    patch = patch_text("a", "one", "Nothing runs here.", action="replace")
    said = problems_of(write_bank(tmp_path / "replaced", {"s": skill(body, patch)}))
    assert any("holds a command (!`…`) that runs when the skill loads" in one for one in said)
    patch = patch_text("a", "one", "Said after it.")
    root = write_bank(tmp_path / "appended", {"s": skill(body, patch)})
    assert b"!`git status`" in SkillBank(root).compile("s", dry_run=True).skills["s"].files["SKILL.md"]


def test_commands_are_found_as_clients_find_them() -> None:
    """A pattern over the whole text: over lines, in quotations; what never ends goes to the end of the text."""
    found = commands_of("a\n!`x\ny` and `z`\n> ```!\n> rm\n> ```\nlast !`open\nend")
    assert [(one.line, one.text) for one in found] == [
        (1, "!`x\ny`"),
        (3, "```!\n> rm\n> ```"),
        (6, "!`open\nend"),
    ]
    assert commands_of("Done! `git status`, a != b, `!`") == []


@pytest.mark.parametrize("body", ["a !`\nrm x`", "> ```!\n> rm\n> ```", "- ```!\n  rm\n  ```"])
def test_a_patch_adds_no_command_over_lines_or_in_a_quotation(body: str, tmp_path: Path) -> None:
    said = problems_of(write_bank(tmp_path, {"s": skill("First.", patch_text("a", "one", body))}))
    assert any("adds a command" in one for one in said), said


def test_a_patch_ends_no_command_that_the_base_left_open(tmp_path: Path) -> None:
    root = write_bank(tmp_path, {"s": skill("Open: !`rm", patch_text("a", "one", "x`"))})
    assert any(
        "base.md: the patches change what runs when the skill loads: !`rm x`" in one for one in problems_of(root)
    )


def test_a_policy_value_changes_no_command(tmp_path: Path) -> None:
    block = "\n\n```yaml policy\nplan: fast\n```"
    said = problems_of(write_bank(tmp_path / "a", {"s": skill("!`run {{policy.plan}}`" + block)}))
    assert any("a command (!`…`) that a policy value would change" in one for one in said)
    schema = "schema_version: 1\nkeys:\n  note: {type: string}\n"
    body = "See {{policy.note}}.\n\n```yaml policy\nnote: '!`rm`'\n```"
    said = problems_of(write_bank(tmp_path / "b", {"s": skill(body, schema=schema)}))
    assert any("a policy value turns the line into a command" in one for one in said)
    said = problems_of(write_bank(tmp_path / "c", {"s": skill("```!\nrun {{policy.plan}}\n```" + block)}))
    assert [one.split(": ", 1)[0] for one in said if "that a policy value would change" in one] == ["rllm/s/base.md:8"]
    body = '{{policy.note}}\n\n```yaml policy\nnote: "see\\n```!\\nrm\\n```"\n```'
    said = problems_of(write_bank(tmp_path / "d", {"s": skill(body, schema=schema)}))
    assert any("a policy value turns the line into a command" in one for one in said), said


def test_a_patch_cannot_name_what_else_runs(tmp_path: Path) -> None:
    patch = patch_text("a", "one", "A", **{"allowed-tools": "Bash", "hooks": "{}"})
    said = problems_of(write_bank(tmp_path, {"s": skill("First.", patch)}))
    assert any("a patch knows no field 'allowed-tools'" in one for one in said)
    assert any("a patch knows no field 'hooks'" in one for one in said)


# Conflicts across skills


@pytest.mark.parametrize("target", ["s", "t", "all"])
@pytest.mark.parametrize("says", ["s", "t"])
def test_conflicts_hold_in_both_directions(tmp_path: Path, target: str, says: str) -> None:
    fields = {name: {"conflicts_with": f"['{other}:a']"} if name == says else {} for name, other in ("st", "ts")}
    root = write_bank(
        tmp_path, {name: skill("First.", patch_text("a", "one", "A", **fields[name])) for name in ("s", "t")}
    )
    assert any("conflicts with" in one and "both are active" in one for one in problems_of(root, target))
    manifest = root / "rllm" / "t" / "manifest.yaml"
    manifest.write_text(manifest.read_text().replace("active: [a]", "active: []"))
    assert SkillBank(root).compile(target).skills


def test_what_a_conflict_names_must_exist(tmp_path: Path) -> None:
    patches = (
        patch_text("a", "one", "A", conflicts_with="['t:zzz']"),
        patch_text("b", "one", "B", conflicts_with="['u:a']"),
        patch_text("c", "one", "C", action="replace", supersedes="['t:a', a, b]", depends_on="[a, b]"),
    )
    root = write_bank(tmp_path, {"s": skill("First.", *patches), "t": skill()})
    said = problems_of(root, "s")
    assert any("names 't:zzz', which does not exist" in one for one in said), said
    assert any("there is no skill 'u'" in one for one in said), said
    assert any("supersedes 't:a' of another skill" in one for one in said), said


def test_a_superseded_patch_is_not_active_beside_its_successor(tmp_path: Path) -> None:
    patches = (patch_text("a", "one", "A", superseded_by="b"), patch_text("b", "two", "B"))
    root = write_bank(tmp_path, {"s": skill("First.", *patches)})
    assert any("'a' is superseded by 'b' and both are active" in one for one in problems_of(root))


@pytest.mark.parametrize("metadata", ["metadata: words", "metadata:\n  author:\n    name: x"])
def test_metadata_is_a_mapping_of_words_to_texts(tmp_path: Path, metadata: str) -> None:
    root = write_bank(tmp_path, {"s": skill()})
    base = root / "rllm/s/base.md"
    base.write_text(base.read_text().replace("description: Does s.", f"description: Does s.\n{metadata}"))
    assert any("base.md:4: 'metadata' is not a mapping" in one for one in problems_of(root))


# Numbers in prose


def numbers(tmp_path: Path, body: str, *patches: str, checks: str = "") -> list[str]:
    settings = f"settings: {{checks: {{{checks}}}}}\n" if checks else ""
    root = write_bank(tmp_path, {"s": skill(body, *patches)}, settings)
    try:
        return [str(one) for one in warnings_of(root)]
    except BankError as error:
        return [f"error: {one}" for one in error.problems]


POLICY = "\n\n```yaml policy\nsize: 4\nrate:\n  - {default: 1e-4}\n```"


def test_a_number_that_the_policy_holds_is_not_written_out(tmp_path: Path) -> None:
    said = numbers(tmp_path / "a", "Set `rate` to 1e-4." + POLICY)
    assert said == [
        "error: rllm/s/base.md:7: rate 1e-4 is written out, and the policy holds it. "
        "Write {{policy.rate.default}}, so that the text changes with the policy"
    ]
    assert numbers(tmp_path / "b", "Set `rate` to {{policy.rate.default}}; size = {{policy.size}}." + POLICY) == []
    said = numbers(tmp_path / "c", "Set `rate` to 0.0001." + POLICY, checks="policy_numbers: warn")
    assert len(said) == 1
    assert said[0].startswith("rllm/s/base.md:7: rate 0.0001 is written out")
    assert numbers(tmp_path / "d", "Set `rate` to 1e-4." + POLICY, checks="policy_numbers: off") == []


def test_a_number_that_no_rule_sets_is_listed(tmp_path: Path) -> None:
    (said,) = numbers(tmp_path, "First." + POLICY, patch_text("a", "two", "For a start use `rate`: 5e-3."))
    assert said.startswith("rllm/s/patches/a.md:8: the text says rate 5e-3, which no rule of the policy sets")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Set learning_rate to 1e-5.", "Use a learning rate of 5e-6."),
        ("`learning_rate`: 1e-5", "| `learning_rate` | 3e-4 |"),
        ("learning_rate=1e-5 is best.", "lr = 2e-5"),
        ("学习率 learning_rate 设为 1e-5。", "learning_rate: 3e-6"),
    ],
)
def test_two_numbers_for_one_parameter_are_a_contradiction(tmp_path: Path, first: str, second: str) -> None:
    (said,) = numbers(tmp_path / "a", first, patch_text("a", "two", second))
    assert said.startswith("rllm/s/patches/a.md:8: 2 different numbers for learning_rate under the same condition")
    assert "base.md:7" in said
    (said,) = numbers(tmp_path / "b", first, patch_text("a", "two", second), checks="contradictions: error")
    assert said.startswith("error: ")
    assert numbers(tmp_path / "c", first, patch_text("a", "two", second), checks="contradictions: off") == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Set learning_rate to 1e-5.", "Set learning_rate to 0.00001."),
        ("Set learning_rate to 1e-5 for 0.5B.", "Set learning_rate to 3e-4 for <10M."),
        ("Set learning_rate to 1e-5.", "If the reward falls, set learning_rate to 5e-6."),
        ("Set learning_rate to 1e-5.", "A learning_rate of 1e-6 to 1e-4 is safe."),
        ("Set learning_rate to 1e-5.", "Stop where learning_rate is above 1e-2."),
        ("Set learning_rate to 1e-5.", "```\nlearning_rate: 3e-4\n```"),
        ("Set learning_rate to 1e-5.", "| learning_rate | 1e-6 | 1e-3 |"),
        ("Set max_steps to 10.", "Set warmup_steps to 20."),
        ("Run 1: learning_rate fell.", "Step 2: learning_rate rose by 20%."),
    ],
)
def test_what_is_no_contradiction(tmp_path: Path, first: str, second: str) -> None:
    assert numbers(tmp_path, first, patch_text("a", "two", second)) == []


# Types


def test_numbers_keep_their_type_on_the_way_to_policy_json(tmp_path: Path) -> None:
    kinds = {"a": "number", "b": "number", "c": "boolean", "d": "string"}
    schema = "schema_version: 1\nkeys:\n" + "".join(f"  {key}: {{type: {kind}}}\n" for key, kind in kinds.items())
    body = "First.\n\n```yaml policy\na: 1\nb: 1.0\nc: true\nd: '1'\n```"
    root = write_bank(tmp_path, {"s": skill(body, schema=schema)})
    bank = SkillBank(root)
    bank.compile()
    values = bank.policy("s").resolve().values
    assert {key: type(value) for key, value in values.items()} == {"a": int, "b": float, "c": bool, "d": str}
    text = (bank.compiled_folder("s") / "policy.json").read_text()
    assert '"value": 1,' in text
    assert '"value": 1.0,' in text


def test_a_policy_fence_with_anything_behind_it_is_told(tmp_path: Path) -> None:
    patch = patch_text("a", "one", "```yaml policy strict\nsize: 5\n```", scope="all")
    said = problems_of(write_bank(tmp_path, {"s": skill("First.", patch)}))
    assert any("a.md:9: a policy fence with 'strict' behind it" in one for one in said), said
    patch = patch_text("a", "one", "```yaml policy patch=b file=x line=1 order=1\nsize: 5\n```", scope="all")
    said = problems_of(write_bank(tmp_path / "b", {"s": skill("First.", patch)}))
    assert any("only where a squash wrote them" in one for one in said), said


def test_a_file_that_the_format_does_not_know_is_told(tmp_path: Path) -> None:
    root = write_bank(tmp_path, {"s": skill("First.", patch_text("a", "one", "A"))})
    folder = root / "rllm/s"
    (folder / "scripts").mkdir()
    for name in ("notes.txt", ".hidden", "patches/b.markdown", "base-0123456789ab.md"):
        (folder / name).write_text("x")
    said = [str(one) for one in warnings_of(root)]
    assert [one.split(":")[0] for one in said] == ["rllm/s/notes.txt", "rllm/s/patches/b.markdown", "rllm/s/scripts"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The learning rate should be 1e-5.", [("learning_rate", 1e-5)]),
        ("Use 3e-4 as the learning rate, 2 for `num_epochs`.", [("learning_rate", 3e-4), ("num_epochs", 2)]),
        ("`beta` = 0.04 and gamma=0.5, but step 4 and `python` 3.", [("beta", 0.04), ("gamma", 0.5)]),
        ("Set max_tokens to 1,024.", [("max_tokens", 1024)]),
        ("Set sizes_used to 1,2.", []),
        ("学习率设为 1e-5。将学习率改为 3e-4。", [("learning_rate", 1e-5), ("learning_rate", 3e-4)]),
        ("The batch size is 8.", [("batch_size", 8)]),
        ("A stack size of 8.", []),
    ],
)
def test_forms_of_a_recommendation(text: str, found: list[tuple[str, float]]) -> None:
    piece = read_text([text], 1, [], skill="s", section="x", patch="base", file="f.md")
    said = statements([("f.md", piece)], ["batch_size", "a.size"])
    assert sorted((one.parameter, one.value) for one in said) == sorted(found)


def test_contradictions_in_other_words_are_listed_with_their_places(tmp_path: Path) -> None:
    body = "The learning rate should be 1e-5.\n\nUse 3e-4 as the learning rate."
    (one,) = SkillBank(write_bank(tmp_path, {"s": skill(body)})).compile("s", dry_run=True).warnings
    assert one.line == 9
    assert "numbers for learning_rate under the same condition: 1e-5 (base.md:7), 3e-4 (base.md:9)" in str(one)
