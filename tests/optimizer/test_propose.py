"""From finding to staged patch: values, scope, and everything the one door refuses. On the shipped skill bank."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.candidates import values_to_try
from optimizer.layers import LayerError
from optimizer.patch_store import PatchError, PatchKind, PatchRecord, PatchStore, Stage
from optimizer.propose import model_class, proposals_for, scope_of
from optimizer.stage import EditBudget, Proposal, built, stage
from optimizer.types import Direction, Finding, Lever, RunEvidence
from skill_bank.bank import SkillBank
from skill_bank.types import BankError
from trainer.settings import resolve

CONTEXT: dict[str, Any] = {
    "params": 1_000_000,
    "model": "tiny",
    "env": "calculator",
    "difficulty": "mixed",
    "lora": False,
}


@pytest.fixture
def bank(tmp_path: Path) -> SkillBank:
    return SkillBank.seed(tmp_path / "skills")


@pytest.fixture
def store(tmp_path: Path) -> PatchStore:
    return PatchStore(tmp_path)


def lever(direction: Direction, *choices: float, key: str = "learning_rate") -> Lever:
    return Lever(key=key, direction=direction, choices=choices)


def finding(key: str = "learning_rate") -> Finding:
    return Finding(
        id="f1",
        kind="learning_rate_too_low",
        what="success stayed at .36",
        evidence=[RunEvidence(run_id="r1", step=64)],
        confidence=0.9,
        lever=lever(Direction.UP, 10.0, 30.0, key=key),
    )


def test_values_move_in_log_space_inside_the_range() -> None:
    # the table's choices, then the root of the first (1e-5 * 3.16) and its square (1e-5 * 100)
    assert list(values_to_try(1e-5, lever(Direction.UP, 10, 30), 1e-6, 3e-3)) == [1e-4, 3e-4, 3.2e-5, 1e-3]
    # 1e-5 * .1 is the lower bound, so is everything below; the root of .1 gives 3.2e-6
    assert list(values_to_try(1e-5, lever(Direction.DOWN, 0.1, 0.033), 1e-6, 3e-3)) == [1e-6, 3.2e-6]
    assert list(values_to_try(3e-3, lever(Direction.UP, 10), 1e-6, 3e-3)) == []
    # 24 * 4 = 96, 24 * 2 = 48, 24 * 16 = 384
    assert list(values_to_try(24, lever(Direction.UP, 4), 16, 2048)) == [96, 48, 384]
    assert list(values_to_try(0.1, lever(Direction.SET, 1.0, 0.8), 0.3, 1.5)) == [1.0, 0.8]
    assert list(values_to_try(1.0, lever(Direction.SET, 1.0, 2.0), 0.3, 1.5)) == [1.5]
    with pytest.raises(ValueError, match="above zero"):
        list(values_to_try(0, lever(Direction.UP, 2), None, None))
    with pytest.raises(ValueError, match="more than 1"):
        lever(Direction.UP, 0.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        lever(Direction.DOWN, 2)


@given(
    st.floats(1e-7, 10) | st.integers(1, 5000),
    st.booleans(),
    st.lists(st.floats(1.1, 100), min_size=1, max_size=3),
    st.floats(1e-8, 1),
    st.floats(1, 1e4),
)
def test_values_never_leave_the_range(current: float, up: bool, choices: list[float], low: float, high: float) -> None:
    moved = lever(Direction.UP, *choices) if up else lever(Direction.DOWN, *(1 / one for one in choices))
    values = list(values_to_try(current, moved, low, high))
    assert len(set(values)) == len(values)
    for value in values:
        assert value > current if up else value < current
        assert isinstance(value, int) == isinstance(current, int)
        if isinstance(current, float) and low <= current <= high:
            assert low <= value <= high


def test_scope_is_model_class_and_environment(bank: SkillBank) -> None:
    policy = bank.policy("rllm-config")
    assert scope_of(policy, CONTEXT) == {"params": "<10M", "env": "calculator"}
    assert model_class(policy, 500_000_000) == "300M-2B"
    assert scope_of(policy, {**CONTEXT, "params": 500_000_000, "lora": True})["lora"] is True
    with pytest.raises(PatchError, match="size of the model is not known"):
        scope_of(policy, {"env": "calculator"})


def propose_and_stage(bank: SkillBank, store: PatchStore) -> PatchRecord:
    policy = bank.policy("rllm-config", "original")
    (proposal,) = proposals_for(finding(), policy, CONTEXT, 1e-5, store, profile="original")
    return stage(bank, store, proposal)


def test_a_staged_patch_changes_its_scope_and_nothing_else(bank: SkillBank, store: PatchStore) -> None:
    record = propose_and_stage(bank, store)
    assert (record.kind, record.stage, record.section) == (PatchKind.POLICY, Stage.STAGED, "sizes")
    (change,) = record.changes
    assert (change.key, change.before, change.after) == ("learning_rate.default", 1e-5, 1e-4)
    # not in force yet
    assert built(bank, "rllm-config", "original").digest == record.base_digest
    patched = built(bank, "rllm-config", "original", record.patch_id).policy
    assert patched is not None
    plain = bank.policy("rllm-config", "original")
    assert patched.resolve(CONTEXT).require("learning_rate.default") == 1e-4
    for other in (
        {**CONTEXT, "params": 500_000_000, "model": "qwen-0.5b"},
        {**CONTEXT, "env": "lookup"},
        {"params": 1_000_000},
    ):
        assert patched.resolve(other).to_json() == plain.resolve(other).to_json()
    folder = store.folder(record.patch_id)
    assert "learning_rate" in (folder / "patch.diff").read_text()
    assert (folder / "patch.md").read_text().startswith("---\nid: " + record.patch_id)


def test_a_resolved_run_names_the_patch(bank: SkillBank, store: PatchStore) -> None:
    record = propose_and_stage(bank, store)
    bank.activate("rllm-config", record.patch_id, profile="original")
    resolved = resolve(
        request="train the tiny calculator agent on 64 mixed problems",
        policy=bank.policy("rllm-config", "original"),
        profile="original",
    )
    assert resolved.config.learning_rate == 1e-4
    assert resolved.provenance["learning_rate"]["patch"] == record.patch_id
    # the tuned default is untouched by a patch of the profile
    tuned = resolve(request="train the tiny calculator agent", policy=bank.policy("rllm-config"))
    assert tuned.provenance["learning_rate"]["patch"] == "base"
    assert tuned.config.learning_rate != 1e-4


def test_rejected_values_are_passed_over_and_the_ladder_goes_on(bank: SkillBank, store: PatchStore) -> None:
    first = propose_and_stage(bank, store)
    bank.set_status("rllm-config", first.patch_id, "rejected")
    store.remember_rejected(store.move(first.patch_id, Stage.REJECTED, "worse"), "worse")
    for expected in (3e-4, 3.2e-5, 1e-3):
        record = propose_and_stage(bank, store)
        assert record.changes[0].after == expected
        store.remember_rejected(store.move(record.patch_id, Stage.REJECTED, "worse"), "worse")
    with pytest.raises(PatchError, match=r"nothing is left to try.*rejected as"):
        propose_and_stage(bank, store)


def test_blocked_and_leverless_findings_propose_nothing(bank: SkillBank, store: PatchStore) -> None:
    policy = bank.policy("rllm-config")
    blocked = finding().model_copy(update={"blocked": "the request fixed learning_rate"})
    with pytest.raises(PatchError, match="the request fixed"):
        proposals_for(blocked, policy, CONTEXT, 1e-5, store)
    with pytest.raises(PatchError, match="names no lever"):
        proposals_for(finding().model_copy(update={"lever": None}), policy, CONTEXT, 1e-5, store)
    with pytest.raises(PatchError, match="has no key"):
        proposals_for(finding(key="no_such"), policy, CONTEXT, 1e-5, store)
    with pytest.raises(PatchError, match="end of its safe range"):
        proposals_for(finding(), policy, CONTEXT, 3e-3, store)


def text_patch(**more: Any) -> Proposal:
    values: dict[str, Any] = {
        "skill": "rllm-config",
        "section": "coupled",
        "body": "- Never change two levers at once.",
        "description": "one lever",
        "slug": "one-lever",
        "source": "agent",
    }
    return Proposal(**{**values, **more})


def test_prose_patch_is_marked_as_such(bank: SkillBank, store: PatchStore) -> None:
    record = stage(bank, store, text_patch())
    assert record.kind is PatchKind.PROSE
    assert record.changes == []


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"layer": "meta"}, LayerError, "may not change skills of group 'rllm'"),
        ({"skill": "nope"}, BankError, "there is no skill"),
        ({"section": "nope"}, PatchError, "has no section 'nope'. Its sections: intro"),
        ({"body": "  \n"}, PatchError, "has no text"),
        ({"body": "x\n" * 41}, PatchError, "41 lines, allowed are 40"),
        (
            {"body": "```yaml policy\nlearning_rate: {default: 5}\n```", "scope": {"params": "<10M"}},
            BankError,
            "learning_rate",
        ),
        (
            {
                "body": "```yaml policy\nlearning_rate:\n  - {when: {params: '<10M'}, default: -1.0}\n```",
                "scope": {"params": "<10M"},
            },
            BankError,
            "learning_rate",
        ),
        ({"body": "<!-- section:x -->"}, BankError, "section"),
    ],
)
def test_what_the_door_refuses_leaves_nothing_behind(
    bank: SkillBank, store: PatchStore, change: dict[str, Any], error: type[Exception], words: str
) -> None:
    before = sorted(path for path in bank.root.rglob("*") if path.is_file())
    with pytest.raises(error, match=words):
        stage(bank, store, text_patch(**change))
    assert sorted(path for path in bank.root.rglob("*") if path.is_file()) == before
    assert store.ids() == []


def test_a_value_that_is_in_force_already(bank: SkillBank, store: PatchStore) -> None:
    now = bank.resolve("rllm-config", CONTEXT).require("learning_rate.default")
    body = f"```yaml policy\nlearning_rate:\n  - {{when: {{params: '<10M'}}, default: {now:.1e}}}\n```"
    with pytest.raises(PatchError, match="in force already"):
        stage(bank, store, text_patch(body=body, scope={"params": "<10M"}, context=CONTEXT))
    assert store.ids() == []


def test_too_many_levers_in_one_patch(bank: SkillBank, store: PatchStore) -> None:
    rule = "{when: {params: '<10M'}, default: %s}"
    body = "```yaml policy\n" + "".join(
        f"{key}:\n  - {rule % value}\n"
        for key, value in (("learning_rate", "1.0e-4"), ("temperature", "0.9"), ("batch_size", "8"))
    )
    with pytest.raises(PatchError, match="3 policy keys"):
        stage(bank, store, text_patch(body=body + "```", scope={"params": "<10M"}))
    stage(bank, store, text_patch(body=body + "```", scope={"params": "<10M"}), EditBudget(policy_keys=3))


def test_duplicates_are_refused(bank: SkillBank, store: PatchStore) -> None:
    first = stage(bank, store, text_patch())
    with pytest.raises(PatchError, match=f"patch {first.patch_id} .staged. does the same"):
        stage(bank, store, text_patch(body="- never change TWO levers at once"))
    store.remember_rejected(store.move(first.patch_id, Stage.REJECTED, "no"), "refused by a person")
    with pytest.raises(PatchError, match=r"was rejected before as 001-one-lever .refused by a person"):
        stage(bank, store, text_patch())
