"""Numbers out of tool output: every format with values read off by hand, tolerance against any text, who wrote what."""

import json
import math

import pytest
from analysis_helpers import events_of, made_up, real, view_of
from hypothesis import given
from hypothesis import strategies as st

from optimizer.analyze.authorship import Authorship
from optimizer.analyze.launches import find_launches
from optimizer.analyze.parsers import TableMemory, read_all
from optimizer.analyze.readings import Axis, Reading, Role, decimals, number_in, rounds_to, significant
from optimizer.analyze.runs_named import RunOfRow, named_runs, stated_runs
from optimizer.analyze.series import SeriesBook
from optimizer.analyze.settings import canonical, overrides_in, same_setting
from optimizer.analyze.splits import split_asked, split_of_name
from optimizer.events import Event, EventKind


def read(text: str, memory: TableMemory | None = None) -> list[tuple[str, float | None, str]]:
    return [(one.name, one.step, one.printed) for one in read_all(text.split("\n"), memory)]


def test_a_table_with_its_header() -> None:
    text = (
        "  Step  Trajs   Reward   Rollout    ETA\n"
        "─────────\n"
        "  1/16     32    0.188     1m39s  43m09s\n"
        "  2/16  32  0.2  9.5s  —"
    )
    # 1m39s and — are no plain numbers and give nothing; 9.5s does
    assert read(text) == [
        ("Trajs", 1, "32"),
        ("Reward", 1, "0.188"),
        ("Trajs", 2, "32"),
        ("Reward", 2, "0.2"),
        ("Rollout", 2, "9.5"),
    ]
    assert {one.total for one in read_all(text.split("\n"))} == {16}


def test_rows_without_their_header_are_read_by_the_last_one_of_the_session() -> None:
    memory = TableMemory()
    read("Step Trajs Reward\n1/4 8 0.250", memory)
    assert read("noise\n  3/4       8    0.375\n 1 2 3", memory) == [("Trajs", 3, "8"), ("Reward", 3, "0.375")]
    assert read("  3/4       8    0.375") == []
    assert read("3/4 8 0.375 9", memory) == []


def test_tables_set_with_bars() -> None:
    boxed = "┌────┬──┐\n│ Step │ Reward │ Val Acc │\n├──┼──┤\n│ 1 │ 0.12 │ 0.000 │\n│ 2 │ – │ 0.491 │\n└──┘"
    assert read(boxed) == [("Reward", 1, "0.12"), ("Val Acc", 1, "0.000"), ("Val Acc", 2, "0.491")]
    marked = "| run | reward |\n|---|---|\n| base | 0.5 |\n"
    assert read(marked) == [("base reward", None, "0.5")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "step:24 - actor/lr:1e-06 - critic/score/mean:0.5 - x/y:-2.5",
            [("actor/lr", 24, "1e-06"), ("critic/score/mean", 24, "0.5"), ("x/y", 24, "-2.5")],
        ),
        (
            "[MONITOR_STEP] Step 11/? | R 0.360 | Loss -0.0672 | Finish 100% | ETA ~—",
            [("R", 11, "0.360"), ("Loss", 11, "-0.0672"), ("Finish", 11, "100")],
        ),
        ("=== Step 71 | R 0.8125 | Rmax 1.0000 ===", [("R", 71, "0.8125"), ("Rmax", 71, "1.0000")]),
        ("  Epoch 7: avgR=0.7783  ent=0.0910  (8 steps)", [("avgR", 7, "0.7783"), ("ent", 7, "0.0910")]),
        ("E8: R10=0.7846 R9=0.7915 Δ=-0.0069 (7st)", [("R10", 8, "0.7846"), ("R9", 8, "0.7915"), ("Δ", 8, "-0.0069")]),
        ("critic/score/mean: step=46 val=0.5312", [("critic/score/mean", 46, "0.5312")]),
        (
            "=== Step 33 ===\n  Reward       = 0.8633\n  lr = 2.00e-06\n\n  other = 4",
            [("Reward", 33, "0.8633"), ("lr", 33, "2.00e-06")],
        ),
        ("{'loss': 0.5, 'grad_norm': 1.25, 'epoch': 0.5}", [("loss", 0.5, "0.5"), ("grad_norm", 0.5, "1.25")]),
        (
            '{"step": 3, "data": {"critic/score/mean": 0.25, "on": true, "none": null}}',
            [("critic/score/mean", 3, "0.25")],
        ),
        (
            '{"step": 3, "reward_mean": 0.5, "seconds": {"generate": 2.5}}',
            [("reward_mean", 3, "0.5"), ("seconds/generate", 3, "2.5")],
        ),
        ('{"rewards": [0.5, 0.25]}', [("rewards", 0, "0.5"), ("rewards", 1, "0.25")]),
    ],
)
def test_lines_and_documents_of_a_step(line: str, expected: list[tuple[str, float, str]]) -> None:
    assert read(line) == expected


def test_lines_of_a_report() -> None:
    text = (
        "Entropy:  0.8963 -> 0.1718\n"
        "Grad norm: avg 71.25 (min=0.0, max=145.0)\n"
        "Final: 0.5 (min=0.0, max=0.75)\n"
        "Total: 72st avgR=0.69 maxR=0.86\n"
        "Reward: avg=0.12"
    )
    found = {(one.name, one.role, one.printed) for one in read_all(text.split("\n"))}
    assert found == {
        ("Entropy", Role.FIRST, "0.8963"),
        ("Entropy", Role.LAST, "0.1718"),
        ("Grad norm", Role.MEAN, "71.25"),
        ("Grad norm", Role.MIN, "0.0"),
        ("Grad norm", Role.MAX, "145.0"),
        ("Final", Role.VALUE, "0.5"),
        ("Final", Role.MIN, "0.0"),
        ("Final", Role.MAX, "0.75"),
        ("avgR", Role.VALUE, "0.69"),
        ("maxR", Role.VALUE, "0.86"),
        ("Reward", Role.MEAN, "0.12"),
    }


def test_a_configuration_is_no_measurement() -> None:
    block = "Training Configuration\n=====\n  Learning rate:    5e-06\n  Problems:  64 (seed=42)\n=====\n\nReward: 0.5"
    found = {one.name: one.setting for one in read_all(block.split("\n"))}
    assert found == {"Learning rate": True, "Problems": True, "seed": True, "Reward": False}
    document = json.dumps({"run_id": "run_1", "learning_rate": 1e-5, "seed": 3, "num_epochs": 2, "model_name": "m"})
    assert all(one.setting and one.run == "run_1" for one in read_all([document]))


@pytest.mark.parametrize(
    "text",
    [
        "The reward rose from 0.2 to 0.9 at step 3 because of the learning rate.",
        "in step 3 we saw 0.5",
        "- R1-R3 (lr=1e-6): best reward=0.1964",
        "reward: None",
        "reward: nan",
        "Step  Reward  Loss\nfoo bar baz",
        "total 36 drwxr-xr-x",
        "12:30:01 1.5 2.5",
    ],
)
def test_prose_and_empty_values_give_nothing(text: str) -> None:
    assert read(text) == []


@given(st.text())
def test_any_text_is_read_without_a_crash(text: str) -> None:
    for one in read_all(text.split("\n")):
        assert math.isfinite(one.value)


@given(
    st.lists(
        st.sampled_from(
            [
                '{"step": 1',
                "[",
                "{'a': 1}",
                "Step Reward Loss",
                "1/4 2 3",
                "step:1 - a:1.0",
                "Epoch 1: a=1",
                "|",
                "│ 1 │",
                "R: 1 -> 2",
                "{",
                "}",
                "]",
                "=== Step 2 ===",
                "  x = 1",
            ]
        ),
        max_size=12,
    )
)
def test_pieces_of_formats_in_any_order_are_read_without_a_crash(pieces: list[str]) -> None:
    for one in read_all(pieces):
        assert 0 <= one.row < len(pieces)


NAMES = st.sampled_from(["Reward", "Loss", "Entropy", "tok/s", "grad_norm"])
VALUES = st.floats(min_value=-1e6, max_value=1e6, allow_nan=False).map(lambda value: f"{value:.4f}")


@given(
    st.lists(NAMES, min_size=2, max_size=5, unique=True),
    st.data(),
    st.sampled_from(["spaces", "bars", "dashes", "json"]),
)
def test_a_generated_table_comes_back(names: list[str], data: st.DataObject, form: str) -> None:
    rows = data.draw(st.lists(st.lists(VALUES, min_size=len(names), max_size=len(names)), min_size=1, max_size=6))
    if form == "spaces":
        lines = ["  ".join(["Step", *names]), *("  ".join([f"{k}/9", *row]) for k, row in enumerate(rows, 1))]
    elif form == "bars":
        lines = [
            "| Step | " + " | ".join(names) + " |",
            "|---|",
            *("| " + " | ".join([str(k), *row]) + " |" for k, row in enumerate(rows, 1)),
        ]
    elif form == "dashes":
        lines = [
            " - ".join([f"step:{k}", *(f"{n}:{v}" for n, v in zip(names, row, strict=True))])
            for k, row in enumerate(rows, 1)
        ]
    else:
        lines = [
            json.dumps({"step": k, **{n: float(v) for n, v in zip(names, row, strict=True)}})
            for k, row in enumerate(rows, 1)
        ]
    wanted = {(name, k, float(value)) for k, row in enumerate(rows, 1) for name, value in zip(names, row, strict=True)}
    assert {(one.name, one.step, one.value) for one in read_all(lines)} == wanted


@pytest.mark.parametrize(
    ("printed", "places", "digits"), [("0.250", 3, 3), ("5e-06", 6, 1), ("1e2", -2, 1), ("145", 0, 3), ("0.0", 1, 0)]
)
def test_digits_of_a_printed_number(printed: str, places: int, digits: int) -> None:
    assert decimals(printed) == places
    assert significant(printed) == digits


@given(st.floats(min_value=-1e6, max_value=1e6, allow_nan=False), st.integers(0, 6))
def test_a_number_rounds_to_what_it_is_printed_as(value: float, places: int) -> None:
    assert rounds_to(value, f"{value:.{places}f}")
    assert not rounds_to(value + 1.1 * 10.0**-places, f"{value:.{places}f}")


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("12.5s", "12.5"),
        ("45%", "45"),
        ("—", None),
        ("1m39s", None),
        ("nan", None),
        ("1e400", None),
        ("inf", None),
        ("v2", None),
    ],
)
def test_cells_that_are_numbers(cell: str, expected: str | None) -> None:
    assert number_in(cell) == expected


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("val-core/gsm8k/acc/mean@1", "validation"),
        ("Val Acc", "validation"),
        ("eval_success", "validation"),
        ("critic/score/mean", "train"),
        ("train_reward", "train"),
        ("test/success", "test"),
        ("Reward", None),
        ("training/reward", None),
        ("value", None),
        ("interval", None),
    ],
)
def test_the_split_that_a_name_states(name: str, split: str | None) -> None:
    assert split_of_name(name) == split


def test_a_split_as_somebody_writes_it() -> None:
    assert [split_asked(one) for one in ("Held-out", "VAL", "training", "test", None, " ")] == [
        "validation",
        "validation",
        "train",
        "test",
        None,
        None,
    ]
    assert split_asked("production") == "production"


def test_runs_are_named_where_they_are_stated() -> None:
    assert stated_runs("cat out/runs/run_41/x.log; Run ID:   run_42\n'run_id': 'run_43' runs/latest/ runs/<id>") == {
        "run_41",
        "run_42",
        "run_43",
    }
    assert stated_runs("bash run_verl.sh; run_7 did well") == set()
    assert named_runs("run_7 vs run_8 vs run_7", {"run_7", "run_8"}) == ["run_7", "run_8"]


def test_a_row_belongs_to_the_only_run_or_to_the_one_named_before_it() -> None:
    known = {"run_1", "run_2"}
    assert RunOfRow(["a", "b run_1"], ["run_2"], known).at(0) == "run_1"
    assert RunOfRow(["a"], ["run_2"], known).at(0) == "run_2"
    assert RunOfRow(["a"], ["run_1", "run_2"], known).at(0) is None
    several = RunOfRow(["x", "== run_1 ==", "y", "run_1 → run_2", "z"], [], known)
    assert [several.at(row) for row in (0, 2, 4)] == [None, "run_1", None]


def bash(line: int, command: str, output: str = "", background: bool = False) -> Event:
    given = {"command": command, **({"run_in_background": True} if background else {})}
    return Event(
        kind=EventKind.TOOL_CALL,
        session="s",
        tool="Bash",
        input=given,
        response={"stdout": output},
        outcome="ok",
        line=line,
    )


@pytest.mark.parametrize(
    ("command", "launches"),
    [
        ("bash out/runs/run_1/run_train.sh > log.txt 2>&1", True),
        ("cd x && PYTHONUNBUFFERED=1 nohup python -m lab.train cfg.json &", True),
        ("torchrun --nproc_per_node=4 -m lab.run_training cfg.json", True),
        ("mcp-evo train 'tiny'", True),
        ("python -c 'from lab.train import main\nmain(1)'", True),
        ("cat out/runs/run_1/run_train.sh", False),
        ("chmod +x run_train.sh", False),
        ("ps aux | grep main_ppo", False),
        ("python -m lab.train --help", False),
        ("python -c 'print(\"bash run_train.sh\")'", False),
        ("cat <<EOF > x\nbash run_train.sh\nEOF", False),
        ("python show.py train.log", False),
        ('cat <<< "x"\nbash run_train.sh', True),
        ("grep x " + "ab/" * 400 + "\nls", False),
        ("tensorboard --logdir runs", False),
    ],
)
def test_what_launches_a_training(command: str, launches: bool) -> None:
    assert bool(find_launches([bash(0, command)], set())) is launches


def test_a_launch_that_names_no_run_has_the_one_its_log_states() -> None:
    calls = [
        bash(0, "nohup python -m lab.train cfg > /tmp/a.log 2>&1 &", "pid 1"),
        bash(1, "tail /tmp/a.log", "Run ID:  run_77\nStep Trajs Reward\n1/4 8 0.250"),
        bash(2, "tail /tmp/a.log; ls out/runs/run_78/", "run_77 run_78"),
    ]
    calls.append(bash(3, "tail -1 /tmp/a.log", "  2/4 8 0.375"))  # neither run nor header: both are known by now
    book = SeriesBook.build("s", calls)
    assert [one.run for one in book.launches] == ["run_77"]
    reward = next(one for one in book.series.values() if one.name == "Reward")
    assert (reward.key.run, [point.step for point in reward.measured()]) == ("run_77", [1, 2])


def test_numbers_of_two_launches_are_never_one_series() -> None:
    table = "Step Trajs Reward\n1/4 8 {}"
    calls = [
        bash(0, "nohup python -m lab.train a &"),
        bash(1, "tail out.txt", table.format("0.250")),
        bash(2, "nohup python -m lab.train b &"),
        bash(3, "tail out.txt", table.format("0.750")),
    ]
    book = SeriesBook.build("s", calls)
    rewards = [one for one in book.series.values() if one.name == "Reward"]
    assert [(one.key.run, one.key.launch) for one in rewards] == [(None, 1), (None, 2)]


def test_who_wrote_a_number() -> None:
    def own(event: Event, printed: str, line: str, author: Authorship) -> bool:
        author.take(event, str(event.response["stdout"]))
        return author.own(Reading("reward", printed, 0), line)

    assert own(bash(0, "python -c \"print('reward: 0.77')\"", "reward: 0.77"), "0.77", "reward: 0.77", Authorship())
    assert not own(bash(0, "tail log", "reward: 0.77"), "0.77", "reward: 0.77", Authorship())
    assert own(bash(0, "cat <<X\ntest accuracy: 1\nX", "test accuracy: 1"), "1", "test accuracy: 1", Authorship())
    author = Authorship()
    author.take(bash(0, "record --reward 0.1964", "ok"), "ok")
    assert own(bash(1, "cat status.json", '{"reward": 0.1964}'), "0.1964", '{"reward": 0.1964}', author)
    assert not own(bash(2, "tail log", "reward: 0.1965"), "0.1965", "reward: 0.1965", author)
    beside = Authorship()
    beside.take(bash(0, "record --reward 0.52\nset --lr 0.25", "ok"), "ok")
    assert own(bash(1, "cat status.json", "reward: 0.52"), "0.52", "reward: 0.52", beside)
    assert not beside.own(Reading("reward", "0.25", 0), "reward: 0.25")  # written beside another name
    seen_first = Authorship()
    seen_first.take(bash(0, "tail log", "reward: 0.1964"), "reward: 0.1964")
    seen_first.take(bash(1, "record --reward 0.1964", "ok"), "ok")
    assert not own(bash(2, "cat status", "score 0.1964"), "0.1964", "score 0.1964", seen_first)


def test_a_default_stands_for_a_missing_key_and_is_no_point() -> None:
    command = 'python -c "print(f\'Step {s} | R {d.get(\\"r\\", 0):.2f}\')"'
    book = SeriesBook.build("s", [bash(0, command, "Step 1 | R 0.00 | Ent 0.25")])
    assert {key.name for key in book.series} == {"Ent"}


def test_a_series_knows_run_split_axis_and_launch() -> None:
    book = made_up("claims").book
    score = [one for one in book.series.values() if one.name == "critic/score/mean" and one.key.run == "run_41"]
    measured = [one for one in score if any(not point.own for point in one.points)]
    (series,) = measured
    assert (series.key.split, series.key.axis, series.key.launch) == ("train", Axis.STEP, 2)
    assert [point.step for point in series.measured()] == list(range(1, 13))
    assert book.steps_of_run[("run_41", 2)] == 12
    held_out = next(one for one in book.series.values() if one.name == "val/gsm/acc" and one.key.run == "run_41")
    assert held_out.key.split == "validation"
    assert [point.reading.printed for point in held_out.measured()] == ["0.4400", "0.4800", "0.5200"]


def test_names_of_the_same_setting() -> None:
    assert canonical("actor_rollout_ref.actor.optim.lr") == canonical("learning_rate") == canonical("Learning rate")
    assert canonical("rollout.n") == canonical("num_generations")
    assert canonical("rollout.val_kwargs.temperature") != canonical("temperature")
    assert same_setting("2e-6", "2.0e-06")
    assert same_setting("'True'", "true")
    assert not same_setting("48", "49")
    script = 'T=0.7; python -m x rollout.temperature=${T} trainer.total_epochs=3 "data.files=[${A}]" --seed 5'
    found = overrides_in(script)
    assert found["temperature"] == ("rollout.temperature", "0.7")
    assert found["epochs"][1] == "3"
    assert found["seed"][1] == "5"


def test_our_own_metrics_are_read() -> None:
    rows = [
        {"step": k, "reward_mean": 0.1 * k, "frac_zero_variance": 0.5, "seconds": {"generate": 1.5}} for k in (1, 2)
    ]
    answer = {"run_id": "run-20260101-1", "state": "running", "steps": rows}
    event = Event(
        kind=EventKind.TOOL_CALL,
        session="s",
        tool="mcp__evo__monitor_run",
        input={},
        response=answer,
        outcome="ok",
        run_id="run-20260101-1",
        line=4,
    )
    book = SeriesBook.build("s", [event])
    found = {(key.name, key.run, key.split) for key in book.series}
    assert ("reward_mean", "run-20260101-1", "train") in found
    assert ("seconds/generate", "run-20260101-1", "train") in found


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_any_bytes_as_a_session_are_read(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(b"\n".join(lines))
    view_of("s", events_of(path)).book  # noqa: B018 - reading it is the test


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=20),
        lambda one: (
            st.lists(one, max_size=3)
            | st.dictionaries(st.sampled_from(["step", "stdout", "command", "content", "a/b"]), one, max_size=3)
        ),
        max_leaves=10,
    )
)
def test_any_input_and_response_are_read(value: object) -> None:
    event = Event(kind=EventKind.TOOL_CALL, session="s", tool="Bash", input=value, response=value, outcome="ok", line=0)
    SeriesBook.build("s", [event])


def test_real_sessions_give_the_truth_of_their_runs() -> None:
    """The per-step numbers of real runs (TensorBoard) equal what the sessions show, to the printed digits."""
    from analysis_helpers import CORPUS

    view = real("a44b0afc")
    truth = json.loads((CORPUS / "metrics_truth.json").read_text())["runs"]
    by_dir = {one["run_dir"]: one for one in truth.values() if "run_dir" in one}
    names = {"critic/score/mean": "score", "actor/entropy": "entropy", "actor/grad_norm": "grad_norm", "actor/lr": "lr"}
    checked = 0
    for series in view.book.series.values():
        wanted = by_dir.get(series.key.run or "", {}).get(names.get(series.name, ""))
        if wanted is None or series.key.axis is not Axis.STEP:
            continue
        values = dict(wanted)
        for point in series.measured():
            if point.step in values:
                assert math.isclose(point.value, values[point.step], rel_tol=1e-4, abs_tol=1e-6), (series.key, point)
                checked += 1
    assert checked > 30
