"""Running a trial: order and seeds of pairs, resuming, budgets, cancelling, failures. Arms are computed here."""

import hashlib
import math
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from optimizer.trial.arms import ArmJob, TrialCancelled, TrialError, collapse_of, result_of, reward_windows
from optimizer.trial.folder import TrialFolder, TrialSpec, pair_seed
from optimizer.trial.plan import DEFAULT, QUICK
from optimizer.trial.run import Budget, TrialProgress, finish_trial, run_trial
from optimizer.trial.scenarios import SCENARIOS, Scenario, ScenarioError, check_disjoint, deciding, own_scenario
from optimizer.trial.types import ArmResult, Reason, TrialVerdict
from skill_bank.policy import Assignment, CompiledPolicy, Origin
from trainer.config import TrainingConfig
from trainer.runs.types import Eval, Failure, RunDocument, RunState


def policy(learning_rate: float) -> CompiledPolicy:
    origin = Origin("rllm-config", "param-ranges", "base", "rllm/rllm-config/base.md", 1)
    return CompiledPolicy("rllm-config", (Assignment("learning_rate.default", learning_rate, None, origin),))


def resolve(scenario: Scenario, seed: int, compiled: CompiledPolicy) -> TrainingConfig:
    values = scenario.overrides(seed, QUICK)
    values["learning_rate"] = compiled.resolve(scenario.context()).require("learning_rate.default")
    return TrainingConfig(**values)


class ComputedArms:
    """Success falls with the distance of the learning rate from 3e-4, plus noise shared and own, by the seed."""

    def __init__(self, noise: float = 0.05) -> None:
        self.noise = noise
        self.jobs: list[list[ArmJob]] = []

    def run(self, jobs: Sequence[ArmJob], cancelled: Callable[[], bool]) -> list[ArmResult]:
        self.jobs.append(list(jobs))
        results = []
        for job in jobs:
            job.folder.mkdir(parents=True)
            own = random.Random(f"{job.config.seed}/{job.config.learning_rate}").gauss(0, self.noise)
            shared = random.Random(job.config.seed).gauss(0, self.noise)
            success = 0.7 - 0.2 * abs(math.log10(job.config.learning_rate / 3e-4)) + own + shared
            results.append(ArmResult(run_id=job.name, success=min(max(success, 0), 1), n=128, seconds=0.1))
        return results


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., TrialFolder]:
    def build(base: float = 1e-5, patched: float = 2e-4, trial_id: str = "trial-1") -> TrialFolder:
        spec = TrialSpec(
            trial_id=trial_id,
            patch_id="p",
            skill="rllm-config",
            plan=QUICK,
            scenarios=tuple(deciding({"env": "calculator"})),
            seed=7,
            base_digest="a",
            patched_digest="b",
        )
        return TrialFolder.create(tmp_path / "trials", spec, policy(base), policy(patched))

    return build


def test_both_arms_share_everything_but_the_policy(start: Callable[..., TrialFolder]) -> None:
    runner = ComputedArms()
    folder = start()
    decision = finish_trial(run_trial(folder, resolve, runner))
    assert decision.verdict is TrialVerdict.BETTER
    assert decision.summary is not None
    assert decision.summary.pairs == 4
    for base, patched in runner.jobs:
        different = {
            name for name, value in base.config.model_dump().items() if value != patched.config.model_dump()[name]
        }
        assert different == {"learning_rate"}
        assert base.config.max_episodes == patched.config.max_episodes == 512
        assert base.config.test_problems == 128
        assert base.config.threads == 1
    seeds = [base.config.seed for base, _ in runner.jobs]
    assert len(set(seeds)) == len(seeds)
    # scenarios take turns
    assert [base.config.difficulty for base, _ in runner.jobs] == ["mixed", "hard", "mixed", "hard"]
    assert folder.decision() == decision
    assert not list((folder.path / "runs").glob("*"))


def test_the_same_plan_gives_the_same_pairs(start: Callable[..., TrialFolder]) -> None:
    first, second = start(trial_id="one"), start(trial_id="two")
    for folder in (first, second):
        finish_trial(run_trial(folder, resolve, ComputedArms()))
    strip = {"seconds"}
    assert [p.model_dump(exclude=strip) for p in first.pairs(first.spec())] == [
        p.model_dump(exclude=strip) for p in second.pairs(second.spec())
    ]


def test_goes_on_behind_the_last_written_pair(start: Callable[..., TrialFolder]) -> None:
    whole = start(trial_id="whole")
    expected = finish_trial(run_trial(whole, resolve, ComputedArms()))
    folder = start(trial_id="broken")
    steps = run_trial(folder, resolve, ComputedArms())
    for step in steps:
        if len(step.pairs) == 2:
            break
    steps.close()  # type: ignore[attr-defined]
    with open(folder.path / "pairs.jsonl", "ab") as stream:
        stream.write(b'{"index": 2, "scena')
    runner = ComputedArms()
    decision = finish_trial(run_trial(folder, resolve, runner))
    assert len(runner.jobs) == 2
    assert decision == expected


def test_pairs_of_another_plan_do_not_count(start: Callable[..., TrialFolder]) -> None:
    folder = start()
    finish_trial(run_trial(folder, resolve, ComputedArms()))
    spec = folder.spec()
    assert len(folder.pairs(spec)) == 4
    assert folder.pairs(spec.model_copy(update={"seed": 8})) == []


def test_equal_arms_are_not_run(start: Callable[..., TrialFolder]) -> None:
    runner = ComputedArms()
    decision = finish_trial(run_trial(start(2e-4, 2e-4), resolve, runner))
    assert decision.reason is Reason.ARMS_IDENTICAL
    assert not runner.jobs


def test_budget_ends_at_a_look_and_more_goes_on(start: Callable[..., TrialFolder]) -> None:
    folder = start(5e-5, 2e-4)
    noisy = ComputedArms(noise=0.12)
    with pytest.raises(TrialError, match="before the first look"):
        finish_trial(run_trial(folder, resolve, noisy, budget=Budget(pairs=3)))
    first = finish_trial(run_trial(folder, resolve, noisy, budget=Budget(pairs=7)))
    assert len(noisy.jobs) == 4
    assert not first.final
    assert first.more_allowed
    again = finish_trial(run_trial(folder, resolve, noisy, budget=Budget(pairs=4)))
    assert again == first
    finish_trial(run_trial(folder, resolve, noisy))
    assert len(noisy.jobs) > 4


def test_a_time_budget_ends_at_a_look(start: Callable[..., TrialFolder]) -> None:
    folder = start(5e-5, 2e-4)
    noisy = ComputedArms(noise=0.12)
    decision = finish_trial(run_trial(folder, resolve, noisy, budget=Budget(seconds=0.0)))
    assert not decision.final
    assert len(noisy.jobs) == 4


def test_cancelled_keeps_pairs(start: Callable[..., TrialFolder]) -> None:
    folder = start()
    seen: list[TrialProgress] = []
    with pytest.raises(TrialCancelled, match="after 2 pairs"):
        finish_trial(run_trial(folder, resolve, ComputedArms(), cancelled=lambda: len(seen) >= 3), seen.append)
    assert len(folder.pairs(folder.spec())) == 2
    assert folder.decision() is None


def test_one_process_at_a_time(start: Callable[..., TrialFolder]) -> None:
    folder = start()
    steps = run_trial(folder, resolve, ComputedArms())
    next(steps)
    with pytest.raises(TrialError, match="another process"):
        next(run_trial(folder, resolve, ComputedArms()))
    steps.close()  # type: ignore[attr-defined]
    next(run_trial(folder, resolve, ComputedArms()))


class FailingArms(ComputedArms):
    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    def run(self, jobs: Sequence[ArmJob], cancelled: Callable[[], bool]) -> list[ArmResult]:
        if self.failures:
            self.failures -= 1
            for job in jobs:
                job.folder.mkdir(parents=True)
            raise TrialError("run pair-000-base gave no result: killed")
        return super().run(jobs, cancelled)


def test_a_failed_pair_is_tried_twice(start: Callable[..., TrialFolder]) -> None:
    assert finish_trial(run_trial(start(), resolve, FailingArms(1))).verdict is TrialVerdict.BETTER
    with pytest.raises(TrialError, match="killed"):
        finish_trial(run_trial(start(trial_id="t2"), resolve, FailingArms(2)))


def test_deciding_and_reserve_scenarios_are_apart() -> None:
    check_disjoint(SCENARIOS)
    shipped = {one.name: one for one in SCENARIOS}
    mixed = shipped["calculator-mixed"]
    with pytest.raises(ScenarioError, match="in reserve at the same time"):
        check_disjoint([mixed, mixed.model_copy(update={"name": "x", "reserve": True})])
    with pytest.raises(ScenarioError, match="two scenarios"):
        check_disjoint([mixed, mixed])
    assert all(not one.reserve for one in deciding({"params": "<10M"}))


def test_scenarios_lie_inside_the_scope() -> None:
    assert {one.env for one in deciding({"params": "<10M", "env": "calculator"})} == {"calculator"}
    with pytest.raises(ScenarioError, match="no scenario lies inside"):
        deciding({"params": "300M-2B"})
    big = own_scenario({"env": "calculator", "difficulty": "mixed", "model": "qwen-0.5b", "problems": 64}, 500_000_000)
    assert [one.model for one in deciding({"params": "300M-2B"}, big)] == ["qwen-0.5b"]
    # a run in a reserve situation is tried on the shipped deciding scenarios instead
    kept = next(one for one in SCENARIOS if one.reserve and one.env == "calculator")
    own = kept.model_copy(update={"name": "own", "reserve": False})
    assert "own" not in [one.name for one in deciding({"env": "calculator"}, own)]


def test_pair_seeds_are_distinct_and_pinned() -> None:
    seeds = {pair_seed(1, name, index) for name in ("a", "b") for index in range(200)}
    assert len(seeds) == 400
    assert all(0 <= seed < 2**31 for seed in seeds)
    # sha256("1/a/0") begins with these 8 bytes; changing the derivation would orphan stored trials
    assert pair_seed(1, "a", 0) == int(hashlib.sha256(b"1/a/0").hexdigest()[:16], 16) % 2147483648


def rows(rewards: list[float], episodes: int = 32) -> list[dict[str, float]]:
    return [{"reward_mean": reward, "episodes": episodes} for reward in rewards]


def test_collapse() -> None:
    assert reward_windows(rows([0.2, 0.4, 0.6, 0.8, 1.0])) == pytest.approx([0.3, 0.7])
    assert collapse_of(rows([0.4, 0.4, 0.6, 0.6]), 0.6, nonfinite=False) is None
    assert "fell from 0.60 to 0.20" in (collapse_of(rows([0.4, 0.4, 0.6, 0.6, 0.2, 0.2]), 0.2, nonfinite=False) or "")
    assert "below half of the reward at the start" in (
        collapse_of(rows([0.5, 0.5, 0.5, 0.5]), 0.1, nonfinite=False) or ""
    )
    assert collapse_of([], None, nonfinite=True) is not None


def document(state: RunState, after: float | None = None, kind: str | None = None) -> RunDocument:
    evals = {} if after is None else {"after": Eval(split="test", n=128, mean=after, ci95=(0, 1))}
    failure = None if kind is None else Failure(kind=kind, message=f"it was {kind}")
    return RunDocument(run_id="r", state=state, created_at=0, eval=evals, failure=failure)


def test_result_of_a_run() -> None:
    assert result_of(document(RunState.FINISHED, 0.5), rows([0.5, 0.5])).success == 0.5
    broken = result_of(document(RunState.FAILED, None, "nonfinite"), [])
    assert (broken.success, broken.collapsed) == (0.0, True)
    with pytest.raises(TrialError, match="it was oom"):
        result_of(document(RunState.FAILED, None, "oom"), [])
    with pytest.raises(TrialError, match="without a final evaluation"):
        result_of(document(RunState.FINISHED), [])
    with pytest.raises(TrialError, match="ended as stopped"):
        result_of(document(RunState.STOPPED), [])


def test_spec_survives_its_file(start: Callable[..., TrialFolder]) -> None:
    folder = start()
    spec = folder.spec()
    assert TrialSpec.model_validate_json(spec.model_dump_json()) == spec
    assert spec.max_episodes == 16 * 2 * (512 + 128)
    shutil.rmtree(folder.path)
    with pytest.raises(TrialError, match="there is no trial"):
        folder.spec()


def test_default_plan_is_not_quick() -> None:
    assert DEFAULT.max_pairs == 24


def test_stable_runs_on_unequal_problems_do_not_count_as_collapsed() -> None:
    """Problems of one run are solved with very different probability, and the episodes of a group share theirs: a
    window's mean scatters by its problems, not by its episodes."""
    rng = random.Random(4)

    def stable() -> list[dict[str, float]]:
        lines = []
        for _ in range(64):  # 64 steps of 2 problems x 4 episodes
            solved = 0
            for _ in range(2):
                p = rng.betavariate(0.45, 0.55)  # mean .45, most problems nearly always or nearly never
                solved += sum(rng.random() < p for _ in range(4))
            lines.append({"reward_mean": solved / 8, "episodes": 8})
        return lines

    runs = [stable() for _ in range(400)]
    wrong = sum(collapse_of(one, 0.45, nonfinite=False, generations=4) is not None for one in runs)
    before = sum(collapse_of(one, 0.45, nonfinite=False, generations=1) is not None for one in runs)
    assert wrong <= 8  # 2 %
    assert before > 3 * max(wrong, 1)  # windows by episodes alone


def test_windows_hold_thirty_two_problems() -> None:
    lines = [{"reward_mean": value, "episodes": 64} for value in (0.2, 0.4, 0.6, 0.8)]
    assert reward_windows(lines, generations=2) == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert reward_windows(lines, generations=4) == pytest.approx([0.3, 0.7])  # 128 episodes
    assert reward_windows(lines, generations=16) == []  # 512 episodes
