"""The live bank: patches in and out of force, versions, rollback, candidates, profiles."""

import threading
from pathlib import Path

import pytest
from skill_bank_builder import SkillFiles, patch_text, tree, write_bank

from skill_bank.bank import PatchText, SkillBank, next_patch_id
from skill_bank.policy import CompiledPolicy
from skill_bank.types import BankError, PatchStatus

RULES = (
    "```yaml policy\nrate:\n"
    '  - {when: {params: "<10M"}, default: 3e-4, min: 1e-6, max: 3e-3}\n'
    '  - {when: {params: "300M-2B"}, default: 1e-6, min: 1e-7, max: 1e-5}\n```'
)


@pytest.fixture
def bank(tmp_path: Path) -> SkillBank:
    root = write_bank(
        tmp_path / "bank",
        {
            "s": SkillFiles({"one": f"Rates.\n\n{RULES}\n\n{{{{policy.rate}}}}"}, profiles={"plain": []}),
            "t": SkillFiles({"one": "Other."}, schema=None),
        },
    )
    found = SkillBank(root)
    found.compile()
    return found


def small_patch(
    bank: SkillBank, name: str = "001-lr", value: str = "2e-4", when: str = '{params: "<10M"}'
) -> PatchText:
    return bank.render_patch(
        "s",
        id=name,
        target_section="one",
        body=f"```yaml policy\nrate:\n  - {{when: {when}, default: {value}}}\n```",
        description="Lower: it collapsed",
        source='finding "f-1": reward fell',
        created="2026-02-03",
        scope={"params": "<10M"},
        metadata={"finding": "f-1"},
    )


def test_a_staged_patch_is_not_in_force_and_can_be_tried_in_memory(bank: SkillBank) -> None:
    before = tree(bank.compiled_folder("s"))
    added = bank.add_patch(small_patch(bank))
    assert added.status is PatchStatus.STAGED
    assert added.description == "Lower: it collapsed"
    assert added.scope == {"params": "<10M"}
    bank.compile()
    assert tree(bank.compiled_folder("s")) == before
    assert len(bank.history("s")) == 1, "a patch that is not in force makes no version"
    report = bank.compile("s", extra_patches=["001-lr"])
    assert report.out is None
    policy = report.skills["s"].policy
    assert policy is not None
    assert policy.resolve({"params": 10**6}).get("rate.default") == 2e-4
    assert bank.policy("s").resolve({"params": 10**6}).get("rate.default") == 3e-4
    assert tree(bank.compiled_folder("s")) == before


def test_a_candidate_need_not_be_in_the_bank(bank: SkillBank, tmp_path: Path) -> None:
    before = tree(bank.root)
    report = bank.compile("s", extra_patches=[small_patch(bank)], out=tmp_path / "out")
    assert report.written == ("s",)
    policy = CompiledPolicy.load(tmp_path / "out" / "s" / "policy.json")
    assert policy.resolve({"params": 10**6}).get("rate.default") == 2e-4
    assert tree(bank.root) == before
    assert bank.compile("s", extra_patches=[small_patch(bank)], out=tmp_path / "out").written == ()


def test_activation_makes_a_version_and_nothing_outside_the_scope_changes(bank: SkillBank) -> None:
    half_a_billion = {"params": 494_000_000, "model": "qwen-0.5b", "env": "calculator", "lora": False}
    before = bank.policy("s").resolve(half_a_billion).to_json()
    bank.add_patch(small_patch(bank))
    report = bank.activate("s", "001-lr", reason="promote 001-lr")
    assert report.versions["s"].label == "s@2"
    assert report.versions["s"].reason == "promote 001-lr"
    assert report.versions["s"].patches == ("001-lr",)
    assert bank.policy("s").resolve({"params": 10**6}).get("rate.default") == 2e-4
    assert bank.policy("s").resolve(half_a_billion).to_json() == before
    assert bank.patches("s")["001-lr"].status is PatchStatus.ACTIVE
    assert bank.compile().versions["s"].number == 2, "compiling again changes nothing"
    assert [one.number for one in bank.history("t")] == [1]


def test_activation_can_be_repeated_and_finishes_what_was_interrupted(bank: SkillBank) -> None:
    bank.add_patch(small_patch(bank))
    bank.activate("s", "001-lr")
    after = tree(bank.compiled_folder("s"))
    assert bank.activate("s", "001-lr").written == ()
    assert len(bank.history("s")) == 2
    # As if a kill had fallen between the manifest and the compile:
    (bank.compiled_folder("s") / "SKILL.md").write_text("old")
    assert bank.activate("s", "001-lr").written == ("s",)
    assert tree(bank.compiled_folder("s")) == after
    assert len(bank.history("s")) == 2


def test_rollback_is_exact_and_a_version_of_its_own(bank: SkillBank) -> None:
    outputs = {1: tree(bank.compiled_folder("s"))}
    bank.add_patch(small_patch(bank))
    bank.activate("s", "001-lr")
    outputs[2] = tree(bank.compiled_folder("s"))
    bank.add_patch(small_patch(bank, "002-lr", "1e-4"))
    bank.activate("s", "002-lr")
    outputs[3] = tree(bank.compiled_folder("s"))
    assert len({str(one) for one in outputs.values()}) == 3
    for number, (back, patches) in enumerate([(1, ()), (3, ("001-lr", "002-lr")), (2, ("001-lr",))], start=4):
        record = bank.rollback("s", back)
        assert (record.number, record.restored, record.patches) == (number, back, patches)
        assert tree(bank.compiled_folder("s")) == outputs[back]
        assert bank.compile("s").versions["s"].number == number, "sources and output agree"
        assert tree(bank.compiled_folder("s")) == outputs[back]
        assert bank.version_files("s", number) == outputs[back]
    assert bank.patches("s")["002-lr"].status is PatchStatus.ARCHIVED, "kept on disk, out of force"
    assert bank.rollback("s", 2).number == 6, "a rollback to what is in force is no new version"


def test_rollback_that_would_break_another_skill_is_refused(bank: SkillBank) -> None:
    bank.add_patch(small_patch(bank))
    bank.activate("s", "001-lr")
    bank.add_patch(PatchText("t", "001-t", patch_text("001-t", "one", "T", status="staged", depends_on="['s:001-lr']")))
    bank.activate("t", "001-t")
    before = tree(bank.root)
    with pytest.raises(BankError, match="depends on 's:001-lr'"):
        bank.rollback("s", 1)
    with pytest.raises(BankError, match="depends on 's:001-lr'"):
        bank.deactivate("s", "001-lr")
    with pytest.raises(BankError, match=r"has no version 9.*1 to 2"):
        bank.rollback("s", 9)
    assert tree(bank.root) == before


def test_deactivation(bank: SkillBank) -> None:
    first = tree(bank.compiled_folder("s"))
    bank.add_patch(small_patch(bank))
    bank.activate("s", "001-lr")
    bank.deactivate("s", "001-lr", status="rejected")
    assert tree(bank.compiled_folder("s")) == first
    assert bank.patches("s")["001-lr"].status is PatchStatus.REJECTED
    assert len(bank.history("s")) == 3


def test_a_patch_can_be_promoted_into_a_profile(bank: SkillBank) -> None:
    live = tree(bank.compiled_folder("s"))
    bank.add_patch(small_patch(bank), profile="plain")
    report = bank.activate("s", "001-lr", profile="plain")
    assert tree(bank.compiled_folder("s")) == live
    assert bank.policy("s").resolve({"params": 10**6}).get("rate.default") == 3e-4
    assert bank.policy("s", "plain").resolve({"params": 10**6}).get("rate.default") == 2e-4
    assert bank.policy("s", "plain").profile == "plain"
    first, second = bank.history("s")
    assert (report.versions["s"], second.number) == (second, 2)
    assert first.digest == second.digest
    assert first.profiles["plain"] != second.profiles["plain"]
    bank.rollback("s", 1)
    assert bank.policy("s", "plain").resolve({"params": 10**6}).get("rate.default") == 3e-4


@pytest.mark.parametrize(
    ("name", "value", "when", "word"),
    [
        ("001-lr", "0.5", '{params: "<10M"}', "rate.default 0.5 is above rate.max 0.003"),
        ("001-lr", "fast", '{params: "<10M"}', "must be a number"),
        ("001-lr", "2e-4", '{params: "<20M"}', "outside of the patch's scope"),
        ("Bad Id", "2e-4", '{params: "<10M"}', "is not a patch id"),
    ],
)
def test_patches_that_are_not_taken(bank: SkillBank, name: str, value: str, when: str, word: str) -> None:
    before = tree(bank.root)
    with pytest.raises(BankError, match=word):
        bank.add_patch(small_patch(bank, name, value, when))
    assert tree(bank.root) == before


def test_a_patch_id_is_used_once_and_an_active_patch_is_not_added(bank: SkillBank) -> None:
    bank.add_patch(small_patch(bank))
    with pytest.raises(BankError, match="there is a patch '001-lr' already"):
        bank.add_patch(small_patch(bank))
    text = small_patch(bank, "002-lr").text.replace("status: staged", "status: active")
    with pytest.raises(BankError, match="a new patch is active"):
        bank.add_patch(PatchText("s", "002-lr", text))


def test_names_that_do_not_exist(bank: SkillBank) -> None:
    for call in (
        lambda: bank.policy("zzz"),
        lambda: bank.load_compiled("zzz"),
        lambda: bank.compile("zzz"),
        lambda: bank.history("zzz"),
        lambda: bank.activate("s", "zzz"),
        lambda: bank.activate("s", "zzz", profile="plain"),
        lambda: bank.set_status("s", "zzz", "rejected"),
        lambda: bank.compile("s", extra_patches=["zzz"]),
        lambda: bank.compile("s", profile="zzz"),
        lambda: bank.activate("s", "zzz", profile="zzz"),
    ):
        with pytest.raises(BankError, match=r"'zzz'.*There are: "):
            call()
    with pytest.raises(BankError, match="t has no policy"):
        bank.policy("t")
    with pytest.raises(BankError, match="there is no bank in"):
        SkillBank(bank.root / "nowhere").skills()


def test_status_tells_stale_and_broken_skills(bank: SkillBank) -> None:
    base = bank.root / "rllm" / "s" / "base.md"
    base.write_text(base.read_text().replace("Rates.", "All rates."))
    s, t = bank.status()
    assert (s.name, s.stale, s.version, s.has_policy, s.profiles) == ("s", True, 1, True, ("plain",))
    assert (t.name, t.stale, t.has_policy) == ("t", False, False)
    base.write_text("broken")
    assert "no front matter" in bank.status()[0].problems[0].message
    assert "Rates." in bank.load_compiled("s"), "the last good version goes on working"


def test_two_threads_and_two_handles_change_one_bank(bank: SkillBank) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            mine = SkillBank(bank.root)
            name = f"{number:03d}-x"
            text = patch_text(name, "one", f"Text {number}.", status="staged")
            mine.add_patch(PatchText("s", name, text))
            mine.activate("s", name)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 7)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert errors == []
    text = bank.load_compiled("s")
    assert all(f"Text {number}." in text for number in range(1, 7))
    assert [one.number for one in bank.history("s")] == list(range(1, 8))
    assert bank.check() == ()


def test_ids_count_up() -> None:
    assert next_patch_id([], "lr") == "001-lr"
    assert next_patch_id(["000-a", "007-b", "x"], "lr") == "008-lr"
    assert next_patch_id(["099-a"], "y" * 80) == ("100-" + "y" * 80)[:64]


def test_a_patch_with_a_scope_changes_its_own_cell_of_a_table_and_nothing_else(bank: SkillBank) -> None:
    before = bank.load_compiled("s").splitlines()
    bank.add_patch(small_patch(bank))
    bank.activate("s", "001-lr")
    after = bank.load_compiled("s").splitlines()
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [
        ("| params <10M | 0.0003 | 1e-6 | 0.003 |", "| params <10M | 0.0002 | 1e-6 | 0.003 |"),
    ]
