"""Requests in English and Chinese: written by hand, generated ones that round-trip, contradictions, unknown words."""

import contextlib
import re
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.config import TrainingConfig
from trainer.experience.manager import ExperienceConfig
from trainer.request import RequestError, parse_request, rounds_wanted
from trainer.request_words import fold, parse_number
from trainer.settings import resolve

GPU = "mps" if sys.platform == "darwin" else "cuda"

CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "requests.yaml").read_text(encoding="utf-8"))


def is_chinese(text: str) -> bool:
    return any("\u4e00" <= character <= "\u9fff" for character in text)


def known_environment(case: dict[str, Any]) -> bool:
    names = {point.name for point in entry_points(group="mcp_evo.environments")}
    env = case["values"].get("env", "calculator")
    return env in names or env.startswith("python:")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"])
def test_hand_written_requests(case: dict[str, Any]) -> None:
    parsed = parse_request(case["text"])
    assert parsed.values() == case["values"]
    beside = {name: case.get(name) for name in ("round", "rounds", "preset", "experience")}
    assert {name: getattr(parsed, name) for name in beside} == beside
    assert [span.text for span in parsed.unknown] == case.get("unknown", [])
    for name in case["values"]:
        assert parsed.source_of(name) in case["text"]
        assert parsed.source_of(name)


@pytest.mark.parametrize("case", [one for one in CASES if known_environment(one)], ids=lambda case: case["text"])
def test_hand_written_requests_become_the_whole_configuration(
    case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but what the request names differs from the defaults, and it says that the request named it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "Tasks.jsonl").write_text("".join(f'{{"prompt": "q{i}"}}\n' for i in range(5)))
    (tmp_path / "data" / "tasks.csv").write_text("prompt\n" + "".join(f"q{i}\n" for i in range(5)))
    rows = pyarrow.Table.from_pylist([{"prompt": f"q{i}"} for i in range(300)])
    pyarrow.parquet.write_table(rows, tmp_path / "data" / "tasks.parquet")
    (tmp_path / "Out" / "Model").mkdir(parents=True)
    (tmp_path / "Out" / "Model" / "config.json").write_text("{}")
    hub = {"env_args": {"hub": True}} if case["values"].get("env") == "gsm8k" else {}  # it never fetches unasked
    resolved = resolve(case["text"], overrides=hub)
    defaults = TrainingConfig().model_dump()
    guided = case.get("experience", "off") != "off"
    wanted = {**defaults, **case["values"], **hub}
    if guided:
        wanted["experience"] = ExperienceConfig.model_validate({"preset": case["experience"]}).model_dump()
    actual = resolved.config.model_dump()
    own_paths = {"model", "data", "folder"}  # stored as aliases and absolute paths; test_settings holds those
    differing = {name for name in wanted if actual[name] != wanted[name]} - own_paths
    assert differing == set()
    named = {name for name, origin in resolved.provenance.items() if origin["source"] == "request"}
    assert named == set(case["values"]) | ({"experience"} if "experience" in case else set())
    assert len(resolved.warnings) == len(case.get("unknown", [])) + ("rounds" in case)


def test_there_are_enough_hand_written_requests_half_of_them_chinese() -> None:
    chinese = sum(is_chinese(case["text"]) for case in CASES)
    assert len({case["text"] for case in CASES}) == len(CASES)
    assert len(CASES) >= 60
    assert 0.4 * len(CASES) <= chinese <= 0.6 * len(CASES)
    assert chinese >= 30


@pytest.mark.parametrize(
    ("text", "phrase", "allowed"),
    [
        ("-5 problems", "-5 problems", "at least 1"),
        ("train tiny on −5 problems", "−5 problems", "at least 1"),
        ("负五题，tiny", "负五题", "at least 1"),
        ("0 steps", "0 steps", "at least 1"),
        ("num_generations 1", "num_generations 1", "at least 2"),
        ("num_generations=-4", "num_generations=-4", "at least 2"),
        ("learning rate -1e-4", "learning rate -1e-4", "greater than 0"),
        ("temperature -0.5", "temperature -0.5", "greater than 0"),
        ("学习率 0", "学习率 0", "greater than 0"),
        ("seed -3", "seed -3", "at least 0"),
        ("reward >= 1.5", "reward >= 1.5", "at most 1"),
        ("成功率达到 120%", "成功率达到 120%", "at most 1"),
        ("0 rounds of evolution", "0 rounds of evolution", "at least 1"),
        ("10-20 steps", "10-20 steps", "two values"),
        ("between 10 and 20 problems", "between 10 and 20 problems", "two values"),
        ("lr 1e-5 to 1e-4", "lr 1e-5 to 1e-4", "two values"),
        ("温度 0.7 到 1.0", "温度 0.7 到 1.0", "two values"),
        ("训练 3 到 5 轮", "3 到 5 轮", "two values"),
        ("success 80-90%", "success 80-90%", "two values"),
    ],
)
def test_what_no_run_can_have_is_one_error_with_the_words_that_ask_for_it(text: str, phrase: str, allowed: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_request(text)
    message = str(caught.value)
    assert f'"{phrase}"' in message
    assert allowed in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "values", "unknown"),
    [
        ("- 64 problems, tiny", {"problems": 64, "model": "tiny"}, []),  # a list's dash is no sign
        ("tiny - 64 problems - 2 epochs", {"model": "tiny", "problems": 64, "epochs": 2.0}, []),
        ("1e-4 steps", {}, ["1e-4 steps"]),  # the 4 of an exponent is no number of its own
        ("seed-5", {}, ["seed-5"]),
        ("64.5 steps", {}, ["64.5 steps"]),
        ("print every 10 steps", {}, ["print", "10 steps"]),  # how often is not how long
        ("dataset my/problems, tiny", {"model": "tiny"}, ["my/problems"]),  # a data set is no model
        ("auto stop", {"auto_stop": True}, []),  # not the mode
        ("lora rank 8", {"lora": True, "lora_rank": 8}, []),
    ],
)
def test_lookalikes(text: str, values: dict[str, Any], unknown: list[str]) -> None:
    parsed = parse_request(text)
    assert parsed.values() == values
    assert [span.text for span in parsed.unknown] == unknown


PLAIN_FIELDS = {
    "problems": 32,
    "max_steps": 7,
    "max_episodes": 640,
    "num_generations": 6,
    "learning_rate": 3e-4,
    "max_grad_norm": 0.5,
    "validate_every": 0,
    "lora": True,
    "skip_eval_before": False,
    "device": "cuda",
    "dtype": "bfloat16",
    "loss_type": "dr_grpo",
    "scale_rewards": "batch",
    "difficulty": "hard",
}


@pytest.mark.parametrize("form", ["{name} {value}", "{name}={value}", "--{name} {value}", "--{name}={value}"])
@pytest.mark.parametrize("name", sorted(PLAIN_FIELDS))
def test_every_field_is_understood_by_its_own_name(name: str, form: str) -> None:
    value = PLAIN_FIELDS[name]
    written = str(value).lower() if isinstance(value, bool) else str(value)
    parsed = parse_request(f"tiny, {form.format(name=name, value=written)}, seed 3")
    assert parsed.values() == {"model": "tiny", name: value, "seed": 3}
    assert parsed.unknown == ()


def test_rounds_come_from_the_option_or_the_request_and_must_agree() -> None:
    assert rounds_wanted("train tiny", None) == 2
    assert rounds_wanted("自动优化 3 轮", None) == 3
    assert rounds_wanted("train tiny", 5) == 5
    assert rounds_wanted("evolve for 5 rounds", 5) == 5
    with pytest.raises(RequestError, match="evolve for 5 rounds"):
        rounds_wanted("evolve for 5 rounds", 4)


@pytest.mark.parametrize(
    ("text", "number", "rounds"),
    [
        ("round=2 | 用 qwen-0.5b 训练, reward >= 0.8", 2, None),
        ("round=1 | train tiny", 1, None),
        ("第3轮 | 用 tiny 训练", 3, None),
        ("/traj-loop 用 qwen-0.5b 自动优化 3 轮", None, 3),
        ("/traj-loop qwen-0.5b，3 轮，auto", None, 3),
        ("evolve for 4 rounds with tiny", None, 4),
    ],
)
def test_rounds_are_not_epochs(text: str, number: int | None, rounds: int | None) -> None:
    parsed = parse_request(text)
    assert (parsed.round, parsed.rounds) == (number, rounds)
    assert "epochs" not in parsed.values()


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("64 problems, no wait, 32 problems", "64 problems", "32 problems"),
        ("64 个问题，32 题", "64 个问题", "32 题"),
        ("seed 1 and seed 2", "seed 1", "seed 2"),
        ("tiny on lookup and the calculator", "lookup", "calculator"),
        ("简单的题，难度困难", "简单", "难度困难"),
        ("reward >= 0.8, success 90%", "reward >= 0.8", "success 90%"),
        ("auto mode, approve mode", "auto mode", "approve mode"),
        ("learning rate 1e-4, lr=1e-5", "learning rate 1e-4", "lr=1e-5"),
    ],
)
def test_contradictions_are_one_error_that_names_both_phrases(text: str, first: str, second: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_request(text)
    assert f'"{first}"' in str(caught.value)
    assert f'"{second}"' in str(caught.value)


def test_saying_the_same_twice_is_no_contradiction() -> None:
    assert parse_request("64 problems (yes, 64 problems), the Tiny model tiny").values() == {
        "problems": 64,
        "model": "Tiny",
    }


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("train tiny on purple elephants", ["purple elephants"]),
        ("train tiny with 64", ["64"]),
        ("用 tiny 训练，多放点辣椒", ["多放点辣椒"]),
        ("learnrate=3, tiny", ["learnrate=3"]),
        ("not on the gpu, tiny", ["not", "gpu"]),
        ("reward < 0.5", ["reward < 0.5"]),
    ],
)
def test_what_is_not_understood_is_reported_in_the_users_words(text: str, unknown: list[str]) -> None:
    assert [span.text for span in parse_request(text).unknown] == unknown


def test_spans_point_into_the_original_text() -> None:
    text = "用 Tiny 训练，学习率１ｅ－４，多放点辣椒"
    parsed = parse_request(text)
    assert parsed.values() == {"model": "Tiny", "learning_rate": 1e-4}
    for span in [one.span for one in parsed.found] + list(parsed.unknown):
        assert text[span.start : span.end].strip() == span.text


def test_explicit_values_beat_a_preset_and_say_where_they_come_from() -> None:
    parsed = parse_request("quick test with 100 problems")
    assert parsed.source_of("problems") == "100 problems"
    assert parsed.source_of("max_steps") == "quick test"


def test_a_request_may_be_empty_but_not_a_book() -> None:
    assert parse_request("").values() == {}
    with pytest.raises(RequestError, match="at most"):
        parse_request("train " * 10_000)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("64", 64),
        ("1,024", 1024),
        ("2k", 2000),
        ("1万", 10_000),
        ("sixty-four", 64),
        ("a hundred", 100),
        ("nineteen", 19),
        ("六十四", 64),
        ("一百二十八", 128),
        ("十二", 12),
        ("两千", 2000),
        ("三万二千", 32_000),
        ("零点九", 0.9),
        ("万", 10_000),
        ("三分之一", 1 / 3),
        ("万分之三", 3e-4),
        ("百万分之五", 5e-6),
        ("1e-4", 1e-4),
        ("3×10^-4", 3e-4),
        ("10^-3", 1e-3),
        (".5", 0.5),
    ],
)
def test_numbers(text: str, value: float) -> None:
    assert parse_number(text) == value


def test_a_page_of_one_numeral_is_read_in_bounded_time() -> None:
    """Without a bound on a numeral's length the time grew with the cube of it: five minutes for 4,000 characters."""
    began = time.process_time()
    with contextlib.suppress(RequestError):
        parse_request("一" * 4000)
    assert time.process_time() - began < 60


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_or_refused_clearly(text: str) -> None:
    assert len(fold(text)) == len(text)
    try:
        parsed = parse_request(text)
    except RequestError:
        return
    for span in parsed.unknown:
        assert text[span.start : span.end] == span.text


ENGLISH_PHRASES = {
    "model": ["the {v} model", "{v}", "model={v}"],
    "env": ["the {v} agent", "env={v}", "in the {v} environment"],
    "difficulty": ["difficulty {v}", "{v} difficulty"],
    "problems": ["{v} problems", "on {v} tasks", "{v} different questions", "problems={v}"],
    "epochs": ["{v} epochs", "for {v} epochs", "epochs={v}"],
    "max_steps": ["at most {v} steps", "{v} optimizer steps", "max_steps={v}"],
    "learning_rate": ["learning rate {v}", "lr={v}", "with a learning rate of {v}"],
    "batch_size": ["batch size {v}", "batch={v}", "batch_size={v}"],
    "num_generations": ["{v} generations", "{v} samples per problem", "group size {v}", "G={v}"],
    "temperature": ["temperature {v}", "temp {v}", "sampling temperature of {v}"],
    "seed": ["seed {v}", "random seed {v}", "seed={v}"],
    "target_reward": ["reward >= {v}", "until success reaches {v}", "target {v}", "accuracy at least {v}"],
    "mode": ["{v} mode", "mode={v}"],
    "device": ["on {v}", "device={v}", "device {v}"],
    "dtype": ["in {v}", "dtype={v}", "dtype {v}"],
    "lr_schedule": ["{v} schedule", "a {v} learning rate", "lr_schedule={v}"],
    "loss_type": ["{v} loss", "loss {v}", "loss_type: {v}"],
    "max_turns": ["{v} turns", "max turns {v}", "max_turns={v}"],
    "max_episodes": ["at most {v} episodes", "max_episodes {v}", "{v} training episodes"],
    "max_completion_tokens": ["completion cap {v}", "{v} tokens", "max_completion_tokens={v}"],
    "warmup_steps": ["{v} warm-up steps", "a warm-up of {v} steps", "warmup {v}"],
    "validate_every": ["validate every {v} steps", "validate_every={v}"],
    "save_every": ["save every {v} steps", "a checkpoint every {v} steps", "save_every {v}"],
    "test_problems": ["{v} test problems", "test on {v} held-out problems", "{v} unseen problems"],
    "validation_problems": ["{v} validation problems", "a validation set of {v} problems"],
    "beta": ["beta {v}", "kl {v}", "a KL coefficient of {v}"],
    "weight_decay": ["weight decay {v}", "weight_decay={v}"],
    "threads": ["{v} threads", "{v} cpu threads", "threads={v}"],
}
CHINESE_PHRASES = {
    "model": ["用 {v} 模型", "模型是{v}", "使用{v}"],
    "env": ["{v} 智能体", "环境={v}"],
    "difficulty": ["难度={v}", "{v} 难度"],
    "problems": ["{v} 个问题", "{v}道题", "{v} 题", "题目数量 {v}"],
    "epochs": ["{v} 个 epoch", "训练 {v} 轮", "{v}轮训练"],
    "max_steps": ["最多 {v} 步", "训练 {v} 步", "步数为 {v}"],
    "learning_rate": ["学习率 {v}", "学习率设为{v}", "学习率为 {v}"],
    "batch_size": ["批大小 {v}", "批次大小为{v}", "batch size {v}"],
    "num_generations": ["每题采样 {v} 次", "每题 {v} 个采样", "组大小 {v}"],
    "temperature": ["温度 {v}", "采样温度为{v}", "温度设为 {v}"],
    "seed": ["种子 {v}", "随机种子为{v}", "seed={v}"],
    "target_reward": ["奖励达到 {v}", "成功率 >= {v}", "目标 {v}", "正确率至少{v}"],
    "mode": ["{v} 模式"],
    "device": ["在 {v} 上", "device={v}"],
    "dtype": ["{v}", "用 {v}"],
    "loss_type": ["{v} 损失", "损失函数为 {v}"],
    "max_turns": ["最多 {v} 轮对话", "{v} 个回合"],
    "max_episodes": ["最多 {v} 条轨迹", "{v} 个 episode"],
    "warmup_steps": ["预热 {v} 步", "{v} 步预热"],
    "validate_every": ["每 {v} 步验证一次", "每隔 {v} 步做一次验证"],
    "save_every": ["每 {v} 步保存一次", "每 {v} 步保存一次检查点"],
    "test_problems": ["{v} 道测试题", "测试集 {v} 题"],
    "validation_problems": ["{v} 道验证题", "验证集 {v} 题"],
    "weight_decay": ["权重衰减 {v}", "权重衰减为{v}"],
    "threads": ["{v} 个线程", "线程 {v}"],
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "model": st.sampled_from(["tiny", "smollm2-135m", "qwen-0.5b", "qwen3-0.6b", "qwen2.5-1.5b", "my-org/My_Model-7B"]),
    "env": st.sampled_from(["calculator", "house_rules", "lookup"]),
    "difficulty": st.sampled_from(["simple", "mixed", "hard"]),
    "problems": st.integers(1, 100_000),
    "epochs": st.integers(1, 500).map(float),
    "max_steps": st.integers(1, 100_000),
    "learning_rate": st.sampled_from([1e-6, 2e-5, 1e-4, 3e-4, 5e-4, 0.001, 0.0003, 0.05]),
    "batch_size": st.integers(1, 512),
    "num_generations": st.integers(2, 256),
    "temperature": st.integers(1, 30).map(lambda tenths: tenths / 10),
    "seed": st.integers(0, 2**31 - 1),
    "target_reward": st.integers(1, 100).map(lambda percent: percent / 100),
    "mode": st.sampled_from(["auto", "approve"]),
    "device": st.sampled_from(["cpu", "cuda", "mps"]),
    "dtype": st.sampled_from(["float32", "bfloat16", "float16"]),
    "lr_schedule": st.sampled_from(["constant", "linear", "cosine"]),
    "loss_type": st.sampled_from(["grpo", "dapo", "dr_grpo", "bnpo"]),
    "max_turns": st.integers(1, 256),
    "max_episodes": st.integers(1, 1_000_000),
    "max_completion_tokens": st.integers(4, 131_072),
    "warmup_steps": st.integers(0, 100_000),
    "validate_every": st.integers(0, 100_000),
    "save_every": st.integers(0, 100_000),
    "test_problems": st.integers(8, 100_000),
    "validation_problems": st.integers(8, 100_000),
    "beta": st.integers(0, 100).map(lambda hundredths: hundredths / 100),
    "weight_decay": st.integers(0, 100).map(lambda hundredths: hundredths / 100),
    "threads": st.integers(1, 1024),
}


COUNTS = ("problems", "max_steps", "max_turns", "max_episodes", "test_problems", "validation_problems", "threads")


def chinese_number(value: int) -> str:
    """The numeral as it is written out, for 1 to 99,999,999."""
    if value >= 10_000:
        rest = value % 10_000
        gap = "零" if rest and rest < 1000 else ""
        return chinese_number(value // 10_000) + "万" + gap + (chinese_number(rest) if rest else "")
    text = ""
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = value // unit % 10
        if digit:
            text += "零一二三四五六七八九"[digit] + name
        elif text and value % unit:
            text += "零"
    return re.sub("零+", "零", text)


def test_the_written_out_numerals_of_this_test_are_right() -> None:
    known = {12: "一十二", 105: "一百零五", 2048: "二千零四十八", 10_010: "一万零一十", 320_000: "三十二万"}
    for value, text in known.items():
        written = chinese_number(value)
        assert written == text


def write(value: Any, draw: st.DrawFn, field: str, chinese: bool) -> str:
    """A value as a person may write it."""
    if field == "target_reward" and draw(st.booleans()):
        return f"{round(value * 100)}%"
    if isinstance(value, float) and value == int(value) and field == "epochs":
        return str(int(value))
    if field == "learning_rate":
        return draw(st.sampled_from([repr(value), f"{value:.10f}".rstrip("0"), f"{value:e}"]))
    if field in COUNTS:
        return draw(st.sampled_from([str(value), f"{value:,}", chinese_number(value) if chinese else f"{value:,}"]))
    return str(value)


@st.composite
def requests(draw: st.DrawFn, phrases: dict[str, list[str]], separators: list[str]) -> tuple[str, dict[str, Any]]:
    chinese = phrases is CHINESE_PHRASES
    fields = draw(st.lists(st.sampled_from(sorted(phrases)), min_size=1, max_size=9, unique=True))
    expected = {name: draw(VALUES[name]) for name in fields}
    parts = [
        draw(st.sampled_from(phrases[name])).replace("{v}", write(value, draw, name, chinese))
        for name, value in expected.items()
    ]
    return draw(st.sampled_from(separators)).join(parts), expected


@given(requests(ENGLISH_PHRASES, [", ", "; ", " and ", " with "]))
@settings(max_examples=300, deadline=None)
def test_generated_english_requests_round_trip(case: tuple[str, dict[str, Any]]) -> None:
    text, expected = case
    parsed = parse_request(text)
    assert parsed.values() == pytest.approx(expected)
    assert parsed.unknown == ()


@given(requests(CHINESE_PHRASES, ["，", "、", "；", ", ", "，并且", " "]))
@settings(max_examples=300, deadline=None)
def test_generated_chinese_requests_round_trip(case: tuple[str, dict[str, Any]]) -> None:
    text, expected = case
    parsed = parse_request(text)
    assert parsed.values() == pytest.approx(expected)
    assert parsed.unknown == ()
