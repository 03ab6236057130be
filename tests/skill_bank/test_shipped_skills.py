"""The bank that comes with the package: valid, consistent with the code that reads it, and usable from a seed."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from skill_bank_builder import tree
from skills_ref.validator import validate

from mcp_server.skills.lint import lint_bank
from mcp_server.skills.testing import collect
from mcp_server.tools import all_specs
from skill_bank.bank import SHIPPED, SkillBank
from skill_bank.kinds import MappingKind
from skill_bank.policy import CompiledPolicy
from skill_bank.types import BankError
from trainer.config import TrainingConfig

SKILLS = {
    "rllm": ("rllm-train", "rllm-clarify", "rllm-config", "rllm-run", "rllm-monitor", "rllm-analyze"),
    "traj": (
        "traj-launch-training",
        "traj-train-optimize",
        "traj-segment",
        "traj-analyze-rllm",
        "traj-optimize",
        "traj-setup",
        "traj-status",
        "traj-loop",
    ),
    "meta": ("meta-loop",),
}
TINY = {
    "params": 1_000_000,
    "model": "tiny",
    "env": "calculator",
    "difficulty": "mixed",
    "lora": False,
    "device": "cpu",
}
QWEN = {**TINY, "params": 494_000_000, "model": "qwen-0.5b"}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out")
    SkillBank.shipped().compile(out=folder)
    return folder


def test_it_holds_the_documented_skills_and_has_no_problems() -> None:
    bank = SkillBank.shipped()
    assert bank.groups() == SKILLS
    assert bank.check() == ()


@pytest.mark.parametrize("skill", [name for names in SKILLS.values() for name in names])
def test_each_skill_is_valid_by_the_agent_skills_specification(out: Path, skill: str) -> None:
    assert validate(out / skill) == []
    text = (out / skill / "SKILL.md").read_text(encoding="utf-8")
    assert text.count("\n") < 500
    assert "{{" not in text
    assert "<!--" not in text
    assert re.search(r"^```yaml policy", text, re.MULTILINE) is None
    head = text.split("---")[1]
    assert re.search(r"[\u4e00-\u9fff]", head), "trigger phrases in Chinese"


@pytest.mark.parametrize("skill", [name for names in SKILLS.values() for name in names])
def test_each_skill_says_what_to_call_when_it_fails_and_shows_an_example(out: Path, skill: str) -> None:
    bank = SkillBank.shipped()
    text = (out / skill / "SKILL.md").read_text(encoding="utf-8")
    assert re.search(r"\b[a-z]+_[a-z_]+\([a-z_]*", text), "a call with its arguments"
    assert {"example"} <= {one.name for one in bank.source(skill).base.sections}
    assert re.search(r"\b(stop|ask)\b", text, re.IGNORECASE), "when to stop and ask"
    assert re.search(r"fail|error|refus", text), "what to do when it fails"
    assert re.search(r"^\|---", text, re.MULTILINE), "a decision table"


def test_no_skill_names_anything_that_does_not_exist() -> None:
    assert lint_bank(SkillBank.shipped()) == []


def test_every_skill_has_an_example_that_can_be_read() -> None:
    examples, wrong = collect(SkillBank.shipped())
    assert wrong == []
    assert {one.skill for one in examples} == {name for names in SKILLS.values() for name in names}


def test_the_phases_of_rllm_train_are_declared_in_their_order(out: Path) -> None:
    text = (out / "rllm-train" / "SKILL.md").read_text(encoding="utf-8")
    phases = re.findall(r"^### Phase ([0-9.]+):", text, re.MULTILINE)
    assert phases == ["0", "1", "2", "3", "4", "5", "6", "6.5"]
    rows = re.findall(r"^\| ([0-9.]+) [a-z ]+\| ([a-z -]+) \|", text, re.MULTILINE)
    assert [number for number, _ in rows] == phases
    named = [skill for _, skill in rows if skill.startswith("rllm-")]
    assert tuple(named) == SkillBank.shipped().children("rllm-train")


def test_the_tools_that_grew_are_named_where_they_are_of_use(out: Path) -> None:
    """Tool → the skills that say when to use it."""
    wanted = {
        "search_trajectories": {"traj-segment", "traj-analyze-rllm", "meta-loop"},
        "rollback_skill": {"traj-optimize", "traj-loop"},
        "add_experience": {"rllm-analyze"},
        "search_experience": {"rllm-analyze", "traj-train-optimize"},
        "distill_experience": {"rllm-train", "rllm-analyze", "traj-train-optimize"},
        "evaluate_model": {"rllm-train", "rllm-analyze", "traj-loop"},
        "compare_runs": {"rllm-train", "rllm-analyze", "traj-analyze-rllm", "traj-loop"},
        "try_model": {"rllm-train", "rllm-analyze"},
        "start_training(resume=": {"rllm-train", "rllm-run", "traj-launch-training"},
        "campaign=": {"rllm-train", "traj-loop"},
        "claims=": {"traj-analyze-rllm"},
    }
    for tool, skills in wanted.items():
        for skill in skills:
            assert tool in (out / skill / "SKILL.md").read_text(encoding="utf-8"), (tool, skill)
    every = "".join(
        (out / name / "SKILL.md").read_text(encoding="utf-8") for names in SKILLS.values() for name in names
    )
    assert {spec.function.__name__ for spec in all_specs() if spec.function.__name__ not in every} == set()


def test_orchestrators_open_each_of_the_skills_they_lead(out: Path) -> None:
    bank = SkillBank.shipped()
    leading = {name: bank.children(name) for name in bank.skills() if bank.children(name)}
    assert set(leading) == {"rllm-train", "traj-train-optimize", "traj-loop", "traj-launch-training"}
    for name, children in leading.items():
        text = (out / name / "SKILL.md").read_text(encoding="utf-8")
        assert all(child in text for child in children), name


def test_the_shipped_output_is_what_the_sources_compile_to(out: Path) -> None:
    assert tree(SHIPPED / "compiled") == tree(out), (
        "compile again: mcp-evo skills compile --bank skill_bank/bank --out skill_bank/bank/compiled"
    )


def test_a_seeded_bank_is_compiled_recorded_and_left_alone_the_second_time(tmp_path: Path, out: Path) -> None:
    bank = SkillBank.seed(tmp_path / "skills")
    assert tree(tmp_path / "skills" / "compiled") == tree(out)
    assert all(info.version == 1 and not info.stale and not info.problems for info in bank.status())
    base = tmp_path / "skills" / "rllm" / "rllm-run" / "base.md"
    base.write_text(base.read_text(encoding="utf-8").replace("exactly one run", "one run"), encoding="utf-8")
    SkillBank.seed(tmp_path / "skills")
    assert "exactly one run" not in base.read_text(encoding="utf-8")


def test_a_folder_with_other_things_is_not_seeded_over(tmp_path: Path) -> None:
    (tmp_path / "skills" / "rllm").mkdir(parents=True)
    (tmp_path / "skills" / "rllm" / "mine.txt").write_text("mine")
    (tmp_path / "skills" / "rllm" / "rllm-run").mkdir()
    other = tmp_path / "skills" / "rllm" / "rllm-run" / "base.md"
    other.write_text("mine too")
    with pytest.raises(BankError, match=r"holds no bank\.yaml and has another 'rllm/rllm-run/base\.md'"):
        SkillBank.seed(tmp_path / "skills")
    assert tree(tmp_path / "skills") == {"rllm/mine.txt": b"mine", "rllm/rllm-run/base.md": b"mine too"}
    other.unlink()
    assert SkillBank.seed(tmp_path / "skills").check() == ()
    assert (tmp_path / "skills" / "rllm" / "mine.txt").read_text() == "mine"


def config_policy(profile: str | None = None) -> CompiledPolicy:
    return SkillBank.shipped().policy("rllm-config", profile)


def test_tuned_defaults_of_small_models() -> None:
    found = config_policy().resolve(TINY)
    assert found.get("learning_rate") == {"default": 2e-4, "min": 1e-6, "max": 3e-3}
    assert found.get("temperature") == {"default": 1.0, "min": 0.3, "max": 1.5}
    assert found.get("max_completion_tokens") == {"default": 192, "min": 16, "max": 2048}
    assert [found.get(f"{key}.default") for key in ("batch_size", "num_generations", "max_turns")] == [4, 4, 4]
    assert found.provenance["learning_rate.default"]["patch"] == "base"
    assert found.provenance["learning_rate.default"]["section"] == "sizes"


def test_defaults_by_size_and_adapters() -> None:
    policy = config_policy()

    def rate(**context: Any) -> float | None:
        found: float | None = policy.resolve({**TINY, **context}).get("learning_rate.default")
        return found

    assert rate(params=135_000_000) == 2e-5
    assert rate(params=494_000_000) == 1e-6
    assert rate(params=494_000_000, lora=True) == 1e-5
    assert rate(params=7_000_000_000) == 1e-6
    assert rate(params=9_999_999) == 2e-4
    assert rate(params=10_000_000) == 2e-5


@pytest.mark.parametrize("context", [TINY, QWEN, {**TINY, "params": 135_000_000}, {**QWEN, "params": 8 * 10**9}, {}])
def test_the_profile_original_holds_the_published_defaults_whatever_the_model(context: dict[str, Any]) -> None:
    found = config_policy("original").resolve(context)
    published = {
        "problems": 64,
        "learning_rate": 1e-5,
        "batch_size": 2,
        "num_generations": 4,
        "temperature": 0.7,
        "epochs": 2,
        "max_completion_tokens": 256,
        "max_turns": 3,
    }
    assert {key: found.get(f"{key}.default") for key in published} == published
    assert {found.provenance[f"{key}.default"]["patch"] for key in published} == {"000-original-defaults"}


def test_a_patch_for_small_models_leaves_half_a_billion_untouched_to_the_byte(tmp_path: Path) -> None:
    bank = SkillBank.seed(tmp_path / "skills")
    others = [QWEN, {**QWEN, "lora": True}, {**TINY, "params": 10_000_000}, {**TINY, "params": None}, {}]
    before = {
        profile: [bank.policy("rllm-config", profile).resolve(one).to_json() for one in others]
        for profile in (None, "original")
    }
    small = bank.policy("rllm-config").resolve(TINY).to_json()
    body = '```yaml policy\nlearning_rate:\n  - {when: {params: "<10M"}, default: 1.0e-4, max: 1.0e-3}\n```'
    patch = bank.render_patch(
        "rllm-config",
        id="001-slower",
        target_section="sizes",
        body=body,
        description="Slower",
        source="test",
        created="2026-02-03",
        scope={"params": "<10M"},
    )
    bank.add_patch(patch)
    bank.activate("rllm-config", "001-slower")
    bank.activate("rllm-config", "001-slower", profile="original")
    for profile, expected in before.items():
        assert [bank.policy("rllm-config", profile).resolve(one).to_json() for one in others] == expected
        assert bank.policy("rllm-config", profile).resolve(TINY).get("learning_rate.default") == 1e-4
    assert bank.policy("rllm-config").resolve(TINY).to_json() != small


def test_each_key_of_rllm_config_is_a_field_of_the_training_config_with_the_same_bounds() -> None:
    schema = SkillBank.shipped().source("rllm-config").schema
    for name, kind in schema.declared.keys.items():
        assert name in TrainingConfig.model_fields
        assert isinstance(kind, MappingKind)
        default = kind.fields["default"]
        if default.enum:
            for value in default.enum:
                TrainingConfig.model_validate({name: value})
            continue
        for bound in (default.min, default.max):
            if bound is not None:
                extra = {"problems": 10**6} if name == "batch_size" else {"batch_size": 1} if name == "problems" else {}
                TrainingConfig.model_validate({name: bound, **extra})
        if default.above is not None:
            with pytest.raises(ValidationError):
                TrainingConfig.model_validate({name: default.above})


@pytest.mark.parametrize("profile", [None, "original"])
@pytest.mark.parametrize("context", [TINY, QWEN, {**QWEN, "lora": True, "device": "cuda"}, {}])
def test_the_defaults_make_a_training_config(context: dict[str, Any], profile: str | None) -> None:
    values = config_policy(profile).resolve(context).values
    TrainingConfig.model_validate({key: one["default"] for key, one in values.items() if "default" in one})


def test_every_lever_of_the_decision_table_can_be_moved() -> None:
    bank = SkillBank.shipped()
    decisions = bank.policy("rllm-analyze").resolve(TINY).get("decisions")
    needed = "learning_rate_too_high learning_rate_too_low groups_too_easy groups_too_hard no_diversity truncation"
    assert set(needed.split()) <= set(decisions)
    levers = bank.policy("rllm-config").resolve(TINY)
    for finding, row in decisions.items():
        assert levers.get(f"{row['lever']}.default") is not None, finding
        first = row["candidates"][0]
        if row["direction"] == "up":
            assert first == row["factor"] > 1
        elif row["direction"] == "down":
            assert first == row["factor"] < 1
        else:
            low, high = levers.get(f"{row['lever']}.min"), levers.get(f"{row['lever']}.max")
            assert low <= first == row["value"] <= high


def test_thresholds_of_the_monitor() -> None:
    found = SkillBank.shipped().policy("rllm-monitor").resolve(TINY)
    assert found.get("reward_collapse") == {
        "peak": 0.3,
        "critical_share": 0.1,
        "warn_share": 0.5,
        "window": 5,
        "repeat": 3,
        "noise": 3.0,
    }
    assert found.get("zero_variance.critical") == 0.75
    assert found.get("wait_s.max") == 45


def test_no_skill_of_a_layer_may_be_given_another_target(tmp_path: Path) -> None:
    bank = SkillBank.seed(tmp_path / "skills")
    for skill, section, group in (("traj-optimize", "propose", "traj"), ("meta-loop", "report", "rllm")):
        patch = bank.render_patch(
            skill,
            id="001-wider",
            target_section=section,
            body=f"```yaml policy\nallowed_group: {group}\n```",
            description="d",
            source="s",
            created="2026-01-01",
            scope="all",
        )
        with pytest.raises(BankError, match="allowed are"):
            bank.add_patch(patch)
        patch = bank.render_patch(
            skill, id="001-b", target_section="boundaries", body="Anything.", description="d", source="s", created="x"
        )
        with pytest.raises(BankError, match="section 'boundaries' is protected"):
            bank.add_patch(patch)
