"""The meta layer on made-up recorded trials whose outcomes are worked out by hand. Nothing trains here."""

import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from conftest import say_later, say_no, say_yes
from meta_records import FAILS, PAYS, add_trial, fill
from rich.console import Console

from mcp_server.cli.context import CliState
from mcp_server.cli.evolve_meta import evolve_layer
from optimizer.approvals import Channel
from optimizer.home import Home
from optimizer.layers import LayerError
from optimizer.meta.evolve import MetaProgress, evolve_meta
from optimizer.meta.judge import UNIT, decide_meta, plan_for, ratio_of, summarise
from optimizer.meta.recorded import opportunities, recorded_trials, split_families
from optimizer.meta.rounds import MetaRounds
from optimizer.meta.simulate import Replayer, resampled_trial
from optimizer.meta.trial import run as run_meta_trial
from optimizer.meta.trial import spec_of
from optimizer.meta.types import OptimizerPolicy, Outcome
from optimizer.patch_store import PatchError, Stage
from optimizer.round_types import RoundError
from optimizer.stage import Proposal, stage
from optimizer.trial.arms import TrialError
from optimizer.trial.folder import TrialFolder, pair_seed
from optimizer.trial.plan import DEFAULT, QUICK
from optimizer.trial.types import Reason, TrialVerdict
from optimizer.tryout import prepare_trial

ARM = 512 + 128
"""Episodes of one arm: training and evaluation."""

NOW = OptimizerPolicy(plan="default", candidates=3, screening_pairs=4)


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace as it is made: seeding a bank takes longer than all else here."""
    return Home.create(tmp_path_factory.mktemp("seeded") / "workspace").root


@pytest.fixture
def home(seeded: Path, tmp_path: Path) -> Home:
    shutil.copytree(seeded, tmp_path / "workspace")
    return Home.open(tmp_path / "workspace")


@pytest.fixture(scope="module")
def recorded(seeded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """32 recorded trials: in each of two families a lever that fails eight times, then one that pays eight times."""
    root = tmp_path_factory.mktemp("recorded") / "workspace"
    shutil.copytree(seeded, root)
    assert fill(Home.open(root), good=8, bad=8) == 32
    return root


@pytest.fixture
def filled(recorded: Path, tmp_path: Path) -> Home:
    shutil.copytree(recorded, tmp_path / "filled")
    return Home.open(tmp_path / "filled")


def quiet(step: MetaProgress) -> None:
    pass


def meta_patch(home: Home, text: str = "lever_patience: 2", layer: str = "meta", skill: str = "traj-optimize") -> str:
    proposal = Proposal(
        skill=skill,
        section="budget",
        body=f"Another budget.\n\n```yaml policy\n{text}\n```",
        description="another budget",
        slug="budget",
        layer=layer,
        scope={},
        source="agent",
    )
    return stage(home.bank, home.patches, proposal).patch_id


# What is recorded


def test_recorded_trials_and_families(home: Home) -> None:
    assert fill(home, good=2, bad=3, families=("calculator", "lookup", "house_rules")) == 15
    trials = recorded_trials(home)
    assert [one.created_at for one in trials] == sorted(one.created_at for one in trials)
    assert len(trials) == 15
    first = trials[0]
    assert (first.lever, first.family, first.rejected) == ("max_turns up", "calculator", True)
    assert (first.arm_episodes, first.episodes) == (ARM, 4 * 2 * ARM)
    assert split_families(trials) == (("calculator", "house_rules"), ("lookup",))
    assert split_families(trials[:5]) == (("calculator",), ())
    found = opportunities(home, trials)
    assert [one.id for one in found] == [one.patch_id for one in trials]
    assert found[-1].candidates[0].gain == pytest.approx(0.30)


def test_what_is_no_finished_training_trial_is_left_out(home: Home) -> None:
    fill(home, good=1, bad=1, families=("calculator",))
    good = home.trials / "trial-002-up-learning-rate-1"
    (home.trials / "trial-001-up-max-turns-1" / "verdict.json").unlink()
    (home.trials / "torn").mkdir()
    (home.trials / "torn" / "plan.json").write_text("{", encoding="utf-8")
    assert [one.trial_id for one in recorded_trials(home)] == [good.name]


# The replay


def test_a_resampled_trial_goes_through_the_gate(home: Home) -> None:
    fill(home, good=1, bad=1, families=("calculator",))
    bad, good = (one.candidates[0].pairs for one in opportunities(home, recorded_trials(home)))
    for number in range(20):
        decision, pairs = resampled_trial(good, DEFAULT, str(number))
        assert (decision.verdict, pairs) == (TrialVerdict.BETTER, 4)
        decision, pairs = resampled_trial(bad, QUICK, str(number))
        assert (decision.verdict, pairs) == (TrialVerdict.WORSE, 4)
    assert resampled_trial(good, DEFAULT, "a")[0] == resampled_trial(good, DEFAULT, "a")[0]


def test_patience_saves_what_a_lever_that_never_pays_costs(home: Home) -> None:
    fill(home, good=4, bad=6, families=("calculator",))
    replayer = Replayer(opportunities(home, recorded_trials(home)), seed=1)
    base = replayer.outcomes(NOW, repetitions=3)
    patched = replayer.outcomes(NOW.model_copy(update={"lever_patience": 2}), repetitions=3)
    trial = 4 * 2 * ARM  # decided at the first look
    assert [one.episodes for one in base] == [3 * trial] * 10
    assert [one.episodes for one in patched] == [3 * trial] * 2 + [0] * 4 + [3 * trial] * 4
    assert [round(one.gain, 9) for one in base] == [0] * 6 + [0.9] * 4
    assert [one.accepted for one in patched] == [0] * 6 + [3] * 4
    found = ratio_of(base, patched)
    # 4 × .30 accepted for 10 and for 6 trials of 5,120 episodes
    assert found.base == pytest.approx(1.2 / (10 * trial) * UNIT)
    assert found.patched == pytest.approx(1.2 / (6 * trial) * UNIT)


def test_an_acceptance_resets_patience(home: Home) -> None:
    for number, pairs in enumerate((FAILS, PAYS, FAILS, FAILS, PAYS), start=1):
        add_trial(home, number, pairs)
    replayer = Replayer(opportunities(home, recorded_trials(home)), seed=1)
    patient = NOW.model_copy(update={"lever_patience": 2})
    assert [one.accepted for one in replayer.outcomes(patient, 1)] == [0, 1, 0, 0, 0]
    assert [one.accepted for one in replayer.outcomes(NOW, 1)] == [0, 1, 0, 0, 1]


def test_the_error_of_a_difference_of_ratios() -> None:
    # base: gains 1 0 2, episodes 10 10 20 → rate 3/40; patched: gains 1 0 2, episodes 10 0 20 → rate 3/30
    def made(gains: tuple[float, ...], episodes: tuple[float, ...]) -> list[Outcome]:
        return [
            Outcome(id=str(index), family="f", gain=gain, episodes=cost, accepted=0, harmful=0)
            for index, (gain, cost) in enumerate(zip(gains, episodes, strict=True))
        ]

    found = ratio_of(made((1, 0, 2), (10, 10, 20)), made((1, 0, 2), (10, 0, 20)))
    assert (found.base, found.patched) == (pytest.approx(UNIT * 0.075), pytest.approx(UNIT * 0.1))
    # patched residuals g - .1 c: 0, 0, 0; base ones g - .075 c: .25, -.75, .5, over the mean cost 40/3
    residuals = [-UNIT * one / (40 / 3) for one in (0.25, -0.75, 0.5)]
    assert found.sd == pytest.approx(statistics.stdev(residuals))
    assert found.error == pytest.approx(statistics.stdev(residuals) / math.sqrt(3))


def outcomes(rates: list[tuple[float, float]], harmful: int = 0, family: str = "f") -> list[Outcome]:
    return [
        Outcome(id=str(index), family=family, gain=gain, episodes=cost, accepted=1, harmful=harmful if not index else 0)
        for index, (gain, cost) in enumerate(rates)
    ]


def test_verdicts() -> None:
    base = outcomes([(0.3 + 0.001 * index, 5000.0) for index in range(12)])
    more = outcomes([(0.4 + 0.001 * index, 5000.0) for index in range(12)])
    plan = plan_for(12, 1)
    better = decide_meta(base, more, plan, 1)
    assert better.verdict is TrialVerdict.BETTER
    assert better.summary is not None
    assert better.summary.effect == pytest.approx(0.1 / 5000 * UNIT)
    low, high = better.summary.interval or (0, 0)
    assert 0 < low < better.summary.effect < high
    assert decide_meta(more, base, plan, 1).verdict is TrialVerdict.WORSE
    assert decide_meta(base, base, plan, 1).reason is Reason.ARMS_IDENTICAL
    hair = outcomes([(0.3 + 0.001 * ((index + 1) % 12), 5000.0) for index in range(12)])
    assert decide_meta(base, hair, plan, 1).reason is Reason.NO_WORTHWHILE_GAIN
    noisy = outcomes([(1.5 if index % 3 == 0 else 0.0, 5000.0) for index in range(12)])
    assert decide_meta(base, noisy, plan, 1).reason is Reason.PROMISING
    harmful = decide_meta(base, outcomes([(0.4 + 0.001 * index, 5000.0) for index in range(12)], 1), plan, 1)
    assert (harmful.verdict, harmful.reason) == (TrialVerdict.INCONCLUSIVE, Reason.VETOED)
    assert plan_for(12, 2).levels[0] == plan.levels[0] / 2


def test_a_family_that_loses_forbids_better() -> None:
    flat = [(0.3, 5000.0)] * 10
    base = outcomes(flat) + outcomes([(0.3, 5000.0)] * 2, family="g")
    patched = outcomes([(0.9, 5000.0)] * 10) + outcomes([(0.1, 5000.0)] * 2, family="g")
    decision = decide_meta(base, patched, plan_for(12, 1), 1)
    assert decision.reason is Reason.VETOED
    assert decision.blocked_by == ["family g: -0.400"]


# Trials through the one door


def test_the_layers_door(home: Home) -> None:
    with pytest.raises(LayerError, match="only of 'rllm'"):
        meta_patch(home, layer="traj")
    for skill in ("meta-loop", "rllm-config"):
        with pytest.raises(LayerError, match="only of 'traj'"):
            meta_patch(home, skill=skill)
    record = home.patches.read(meta_patch(home))
    assert (record.layer, record.group) == ("meta", "traj")


def test_fewer_than_thirty_trials_are_not_enough(home: Home) -> None:
    n = fill(home, good=5, bad=5)
    patch_id = meta_patch(home)
    folder = prepare_trial(home, patch_id, DEFAULT, seed=3)
    decision = run_meta_trial(folder)
    assert (decision.verdict, decision.reason) == (TrialVerdict.INCONCLUSIVE, Reason.NOT_ENOUGH_EVIDENCE)
    assert decision.say == f"not enough evidence, {n} of 30"
    assert "evolve" in decision.next_step
    assert decision.summary is None


def test_one_family_leaves_none_in_reserve(home: Home) -> None:
    fill(home, good=15, bad=15, families=("calculator",))
    decision = run_meta_trial(prepare_trial(home, meta_patch(home), DEFAULT, seed=3))
    assert decision.reason is Reason.NOT_ENOUGH_EVIDENCE
    assert "all of one scenario family (calculator)" in decision.say


def test_a_trial_follows_from_its_plan_alone(filled: Home) -> None:
    home = filled
    folder = prepare_trial(home, meta_patch(home), DEFAULT, seed=3)
    first = run_meta_trial(folder)
    assert first.verdict is TrialVerdict.BETTER, first.say
    summary = first.summary
    assert summary is not None
    # lookup alone decides: 8 × .30 accepted for 16 and for 10 trials of 5,120 episodes
    assert summary.pairs == 16
    assert summary.base_mean == pytest.approx(2.4 / (16 * 5120) * UNIT)
    assert summary.patched_mean == pytest.approx(2.4 / (10 * 5120) * UNIT)
    spec = spec_of(folder)
    assert (spec.analysed, spec.reserve, spec.recorded) == (("calculator",), ("lookup",), 32)
    # what is recorded, promoted or lost later changes nothing
    for number in range(40, 60):
        add_trial(home, number, FAILS, env="lookup", key="batch_size")
    copied = home.root / "elsewhere"
    copied.mkdir()
    for name in ("plan.json", "recorded.jsonl", "base.policy.json", "patched.policy.json"):
        (copied / name).write_bytes((folder.path / name).read_bytes())
    assert run_meta_trial(TrialFolder(copied)) == first
    (copied / "recorded.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(TrialError, match="not what the plan"):
        run_meta_trial(TrialFolder(copied))


def test_a_trial_that_found_too_little_is_no_attempt(home: Home) -> None:
    from optimizer.meta.evolve import _NoArms
    from optimizer.trial.run import finish_trial
    from optimizer.tryout import try_patch

    patch_id = meta_patch(home)
    for _ in range(3):
        decision = finish_trial(try_patch(home, prepare_trial(home, patch_id, DEFAULT, seed=3), _NoArms()))
        assert decision.say == "not enough evidence, 0 of 30"
    assert home.patches.read(patch_id).stage is Stage.TRIED
    fill(home, good=8, bad=8)
    folder = prepare_trial(home, patch_id, DEFAULT, seed=3)
    assert spec_of(folder).attempt == 1
    assert finish_trial(try_patch(home, folder, _NoArms())).verdict is TrialVerdict.BETTER
    with pytest.raises(PatchError, match="approve it"):
        prepare_trial(home, patch_id, DEFAULT)


# Whole rounds


def test_a_round_from_records_to_a_new_version(filled: Home) -> None:
    home = filled
    seen: list[MetaProgress] = []
    document = evolve_meta(home, say_yes, seen.append, seed=7)
    (one,) = document["rounds"]
    assert {"round", "skill_version", "run_id", "eval", "patch_id", "verdict", "patches"} <= set(one)
    assert one["verdict"] == "better", one["say"]
    (patch,) = one["patches"]
    assert {"patch_id", "stage", "verdict", "effect", "ci95", "pairs"} <= set(patch)
    assert patch["ci95"][0] > 0
    assert one["patch_id"] == patch["patch_id"]
    assert {"wasted_trials", "levers_that_never_pay"} <= set(one["findings"])
    assert one["families"] == {"analysed": ["calculator"], "reserve": ["lookup"]}
    assert home.policy_of("traj-optimize").require("lever_patience") in (1, 2)
    record = home.patches.read(patch["patch_id"])
    assert (record.layer, record.group, record.stage) == ("meta", "traj", Stage.ACTIVE)
    # the prediction is what the replay of the analysed family said; here both families are alike
    assert record.expected is not None
    assert record.expected.change == pytest.approx(patch["effect"])
    assert [entry["channel"] for entry in home.audit.entries()] == ["unattended", "unattended"]
    assert home.audit.verify().ok
    # its own work is recorded under the meta layer
    assert {segment.layer for segment in home.segments.update("meta-round-000001")} == {"meta"}
    json.dumps(document)
    # the finding names patches and trials of the analysed family alone
    finding = home.reports.read("meta-round-000001").findings[0].model_dump()
    assert finding["trials"]
    assert all(home.trials.joinpath(name).exists() for name in finding["trials"])
    assert {home.patches.read(name).scope["env"] for name in finding["patches"]} == {"calculator"}  # type: ignore[index]
    assert {"proposed", "decided", "promoted", "closed"} <= {step.kind for step in seen}


def test_nothing_to_try_ends_early(home: Home) -> None:
    fill(home, good=16, bad=0)
    document = evolve_meta(home, say_yes, quiet, rounds=3, seed=7)
    assert len(document["rounds"]) == 1
    assert "nothing to try" in document["stopped"]


def test_too_few_trials_end_with_the_count(home: Home) -> None:
    fill(home, good=2, bad=4)
    document = evolve_meta(home, say_yes, quiet, seed=7)
    (one,) = document["rounds"]
    assert (one["verdict"], one["reason"]) == ("inconclusive", "not_enough_evidence")
    assert document["stopped"] == one["say"] == "not enough evidence, 12 of 30"
    assert one["next_step"]
    assert one["patches"] == []


def test_a_refusal_is_remembered_and_the_next_value_is_proposed(filled: Home) -> None:
    home = filled
    first = evolve_meta(home, say_no, quiet, seed=7)["rounds"][0]
    assert (first["patch_id"], first["note"]) == (None, "refused by a person")
    second = evolve_meta(home, say_no, quiet, seed=7)["rounds"][0]
    assert second["round"] == 2
    before, after = (home.patches.read(one["patches"][0]["patch_id"]).changes[0].after for one in (first, second))
    assert before != after


def test_a_standing_approval_counts_for_its_own_layer_alone(filled: Home) -> None:
    home = filled
    home.standing.grant(home.standing.draft("rllm", 3, "1h"), Channel.TERMINAL)
    waiting = evolve_meta(home, say_later, quiet, seed=7)
    assert waiting["awaiting"] is not None
    home.standing.grant(home.standing.draft("traj", 1, "1h"), Channel.TERMINAL)
    done = evolve_meta(home, say_later, quiet, seed=99)
    assert done["awaiting"] is None
    assert done["rounds"][0]["round"] == waiting["rounds"][0]["round"]
    assert done["rounds"][0]["patch_id"] == waiting["awaiting"]
    approval = home.ledger.read(waiting["awaiting"])
    assert approval is not None
    assert approval.channel is Channel.STANDING


@pytest.mark.parametrize(
    "dies_at", [*(pytest.param(one, marks=pytest.mark.slow) for one in ("round", "findings")), "proposed", "decided"]
)
def test_a_round_that_was_killed_goes_on(filled: Home, dies_at: str) -> None:
    class Killed(BaseException):
        pass

    def kill(step: MetaProgress) -> None:
        if step.kind == dies_at:
            raise Killed

    with pytest.raises(Killed):
        evolve_meta(filled, say_yes, kill, seed=7)
    one = evolve_meta(filled, say_yes, quiet, seed=8)["rounds"][0]  # the round keeps the seed that it began with
    assert MetaRounds(filled.root).numbers() == [1]
    (record,) = [patch for patch in filled.patches.all() if patch.group == "traj"]
    assert (one["verdict"], one["patch_id"]) == ("better", record.patch_id)
    assert len(record.trials) == 1
    assert spec_of(TrialFolder(filled.trials / record.trials[0])).seed == pair_seed(7, "meta", 1)


def test_one_process_at_a_time(home: Home) -> None:
    def inner(step: MetaProgress) -> None:
        with pytest.raises(RoundError, match="another process"):
            evolve_meta(home, say_yes, quiet)

    evolve_meta(home, say_yes, inner)


def test_a_null_patch_is_seldom_called_better() -> None:
    # Gains and costs of both policies are drawn alike, correlated as common random numbers make them. At 2.5 % one
    # sided, 1,000 decisions give 25 on average; with the t approximation of a ratio, 45 are out of reach.
    draw = random.Random(20)
    better = 0
    for _ in range(1000):
        base, patched = [], []
        for index in range(16):
            gain, cost = draw.choice((0.0, 0.0, 0.2, 0.3)), draw.uniform(5_000, 20_000)
            sides = [(gain * draw.uniform(0.5, 1.5), cost * draw.uniform(0.5, 1.5)) for _ in range(2)]
            for made, (one, spent) in zip((base, patched), sides, strict=True):
                made.append(Outcome(id=str(index), family="f", gain=one, episodes=spent, accepted=0, harmful=0))
        better += decide_meta(base, patched, plan_for(16, 1), 1).verdict is TrialVerdict.BETTER
    assert better <= 45


def test_the_interval_holds_the_known_difference() -> None:
    # patched: gains a fifth larger at equal cost, so the true rates are .15 and .18 for a cost of 1 (10,000 episodes)
    draw = random.Random(21)
    held = 0
    for _ in range(400):
        base, patched = [], []
        for index in range(30):
            gain, noise = draw.uniform(0.0, 0.3), draw.gauss(0, 0.02)
            for made, one in ((base, gain), (patched, 1.2 * gain + noise)):
                made.append(Outcome(id=str(index), family="f", gain=one, episodes=UNIT, accepted=0, harmful=0))
        interval = summarise(base, patched, plan_for(30, 1), 1).interval
        assert interval is not None
        held += interval[0] <= 0.03 <= interval[1]
    assert held >= 360  # 95 % of 400 are 380, with a standard deviation of 4.4


def command(home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "mcp_server.cli.main", "--workspace", str(home.root), "evolve", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "200"},
        timeout=120,
    )


@pytest.mark.slow
def test_the_command(filled: Home) -> None:
    waiting = command(filled, "--layer", "meta", "--seed", "7", "--json")
    assert waiting.returncode == 0, waiting.stderr
    document = json.loads(waiting.stdout)
    assert document["awaiting"] is not None  # nobody is at a terminal
    assert document["rounds"][0]["eval"] == {"before": None, "after": None}
    assert "needs a person at a terminal" in waiting.stderr
    done = command(filled, "--layer", "meta", "--yes")
    assert done.returncode == 0, done.stderr
    assert f"promoted {document['awaiting']}: now traj-optimize@" in done.stdout


@pytest.mark.parametrize(
    ("layer", "request_text", "why"), [("rllm", "", "allowed: traj, meta"), ("meta", "train x", "trains nothing")]
)
def test_wrong_usage(tmp_path: Path, layer: str, request_text: str, why: str) -> None:
    with pytest.raises(typer.BadParameter, match=why):
        evolve_layer(
            CliState(str(tmp_path / "none")),
            layer,
            Console(),
            request=request_text,
            rounds=None,
            yes=True,
            seed=None,
            as_json=False,
        )
    assert not (tmp_path / "none").exists()
