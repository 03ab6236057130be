"""Fresh looks at promoted patches: the judgement against numbers worked out by hand, and in whole rounds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import say_yes

from optimizer.evolve import evolve, new_request, resume
from optimizer.home import Home
from optimizer.patch_store import Expectation, PatchKind, PatchRecord, Stage
from optimizer.recheck import PAIRS, fresh_check
from optimizer.round_store import RoundStore
from optimizer.round_types import Progress, RoundState
from optimizer.trial.plan import DEFAULT
from optimizer.trial.pooled import PooledArms
from optimizer.trial.screen import ScreenRow
from optimizer.trial.types import ArmResult
from trainer.runs.launch import LocalLauncher

Runners = Callable[[Path, bool], PooledArms]


def record_of(effect: float | None, predicted: float | None = None) -> PatchRecord:
    return PatchRecord(
        patch_id="001-up",
        skill="rllm-config",
        group="rllm",
        layer="traj",
        section="sizes",
        kind=PatchKind.POLICY,
        description="",
        effect_hash="0",
        base_digest="a",
        result_digest="b",
        effect=effect,
        expected=None if predicted is None else Expectation(change=predicted, because="a rule"),
    )


def rows_of(*differences: float, base: float = 0.5) -> list[ScreenRow]:
    return [
        ScreenRow(
            index=number,
            scenario="calculator-mixed",
            seed=number,
            base=ArmResult(success=base, n=128),
            candidates={"001-up": ArmResult(success=base + one, n=128)},
        )
        for number, one in enumerate(differences)
    ]


def test_what_is_left_of_a_claim() -> None:
    # differences .1 .2 .3 .2: mean .2, sample sd sqrt(.02 / 3) = .0816497, error .0408248; t(.90, 3 df) = 1.637744
    check = fresh_check(record_of(0.3, 0.1), rows_of(0.1, 0.2, 0.3, 0.2), DEFAULT, 2)
    assert check.effect == pytest.approx(0.2)
    assert check.standard_error == pytest.approx(0.0408248, abs=1e-6)
    assert check.upper90 == pytest.approx(0.2 + 1.637744 * 0.0408248, abs=1e-5)
    assert (check.demote, check.prediction_holds, check.round, check.pairs) == (False, True, 2, 4)
    assert (check.base_mean, check.patched_mean) == (pytest.approx(0.5), pytest.approx(0.7))


def test_a_gain_that_is_gone_is_proposed_to_be_taken_back() -> None:
    # mean 0, sd sqrt(.02 / 3), upper bound .06686: below half of .2 and below the .10 that was predicted
    check = fresh_check(record_of(0.2, 0.1), rows_of(-0.1, 0.0, 0.1, 0.0), DEFAULT)
    assert check.upper90 == pytest.approx(0.0668605, abs=1e-5)
    assert (check.demote, check.prediction_holds) == (True, False)
    assert "taking it back is proposed" in check.say
    # the same pairs say nothing against a claim of .13: half of it, .065, lies below the bound
    assert not fresh_check(record_of(0.13), rows_of(-0.1, 0.0, 0.1, 0.0), DEFAULT).demote


def test_equal_differences_still_carry_the_rounding_of_the_exam() -> None:
    # four equal differences: the spread is half a task of 128, not zero
    check = fresh_check(record_of(0.2), rows_of(0.1, 0.1, 0.1, 0.1), DEFAULT)
    assert check.standard_error == pytest.approx(0.5 / 128 / 2)
    assert check.prediction_holds is None


def test_what_cannot_be_checked_is_refused() -> None:
    with pytest.raises(ValueError, match="two at least"):
        fresh_check(record_of(0.2), rows_of(0.1), DEFAULT)
    with pytest.raises(ValueError, match="no claim"):
        fresh_check(record_of(None), rows_of(0.1, 0.1), DEFAULT)


@pytest.fixture
def run(home: Home, launcher: LocalLauncher, runners: Runners) -> Callable[..., dict[str, Any]]:
    def go(watch: Any = None, **fields: Any) -> dict[str, Any]:
        values = {"rounds": 2, "profile": "original", "seed": 5, "plan": "quick", **fields}
        text = "train the tiny calculator agent on 64 mixed problems, seed 1"
        request = new_request(home, text, evolution="evolve-1", **values)
        return evolve(home, request, say_yes, watch or (lambda one: None), launcher=launcher, runners=runners)

    return go


def test_the_next_round_measures_again_and_reports(home: Home, run: Callable[..., dict[str, Any]]) -> None:
    seen: list[Progress] = []
    first, second = run(watch=seen.append)["rounds"]
    assert first["checks"] == []
    (check,) = second["checks"]
    patch = home.patches.read(first["patch_id"])
    assert check["patch_id"] == patch.patch_id
    assert (check["pairs"], check["claimed"], check["predicted"]) == (PAIRS, patch.effect, 0.1)
    assert check["effect"] > 0.2
    assert not check["demote"]
    assert patch.fresh == check
    assert patch.stage is Stage.ACTIVE
    assert {"checking", "checked"} <= {one.kind for one in seen}
    # fresh seeds: none of the trial's
    trial = {
        json.loads(row)["seed"] for row in (home.trials / patch.trials[0] / "pairs.jsonl").read_text().splitlines()
    }
    rows = (home.trials / f"fresh-{patch.patch_id}" / "screening.jsonl").read_text().splitlines()
    assert len(rows) == PAIRS
    assert not trial & {json.loads(row)["seed"] for row in rows}
    # and in the trajectory
    calls = {one.tool for one in home.trajectories.read("evolve-1").events}
    assert "check_patch" in calls


def test_a_patch_is_looked_at_once_and_only_if_wanted(home: Home, run: Callable[..., dict[str, Any]]) -> None:
    rounds = run(rounds=3)["rounds"]
    assert [len(one["checks"]) for one in rounds] == [0, 1, *([0] * (len(rounds) - 2))]


def test_without_fresh_checks(home: Home, run: Callable[..., dict[str, Any]]) -> None:
    rounds = run(fresh_check=False)["rounds"]
    assert [one["checks"] for one in rounds] == [[], []]


def test_killed_after_the_look_it_is_not_lost(
    home: Home,
    run: Callable[..., dict[str, Any]],
    launcher: LocalLauncher,
    runners: Runners,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Killed(BaseException):
        pass

    real = RoundStore.move

    def move(self: RoundStore, current: Any, to: RoundState, **fields: Any) -> Any:
        if to is RoundState.CHECKED and fields.get("checks"):
            monkeypatch.setattr(RoundStore, "move", real)
            raise Killed
        return real(self, current, to, **fields)

    monkeypatch.setattr(RoundStore, "move", move)
    with pytest.raises(Killed):
        run()
    second = resume(home, None, say_yes, lambda one: None, launcher=launcher, runners=runners)["rounds"][1]
    assert len(second["checks"]) == 1
