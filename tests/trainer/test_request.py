"""Requests in English and Chinese: written by hand, generated ones that round-trip, contradictions, unknown words."""

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.request import RequestError, parse_request
from trainer.request_words import fold, parse_number

GPU = "mps" if sys.platform == "darwin" else "cuda"

ENGLISH: list[tuple[str, dict[str, Any]]] = [
    (
        "train the tiny calculator agent on 64 mixed problems, reward >= 0.9, seed 1",
        {
            "model": "tiny",
            "env": "calculator",
            "problems": 64,
            "difficulty": "mixed",
            "target_reward": 0.9,
            "seed": 1,
        },
    ),
    ("quick test with 16 problems", {"problems": 16, "max_steps": 10}),
    ("quick test", {"problems": 16, "max_steps": 10}),
    ("a quick run, 3 epochs", {"problems": 16, "epochs": 3.0}),
    ("quick test with 40 problems and 25 steps", {"problems": 40, "max_steps": 25}),
    (
        (
            "train SmolLM2-135M on house rules with lr 1e-4, batch size 4, 8 generations, temperature 0.7 for 2 epochs "
            "until success reaches 90%"
        ),
        {
            "model": "SmolLM2-135M",
            "env": "house_rules",
            "learning_rate": 1e-4,
            "batch_size": 4,
            "num_generations": 8,
            "temperature": 0.7,
            "epochs": 2.0,
            "target_reward": 0.9,
        },
    ),
    (
        "Please train qwen-0.5b on math, one hundred steps",
        {"model": "qwen-0.5b", "env": "calculator", "max_steps": 100},
    ),
    ("Qwen 0.5B math agent, 2 epochs", {"model": "Qwen 0.5B", "env": "calculator", "epochs": 2.0}),
    (
        "use Qwen/Qwen2.5-0.5B-Instruct with a learning rate of 0.00001",
        {"model": "Qwen/Qwen2.5-0.5B-Instruct", "learning_rate": 1e-5},
    ),
    (
        "lookup agent, 128 hard problems, G=16, seed=7",
        {"env": "lookup", "problems": 128, "difficulty": "hard", "num_generations": 16, "seed": 7},
    ),
    ("retrieval, easy, batch 8", {"env": "lookup", "difficulty": "simple", "batch_size": 8}),
    ("train on gsm8k math problems with qwen3-0.6b", {"env": "gsm8k", "model": "qwen3-0.6b"}),
    ("my tasks are in ./data/Tasks.jsonl, train tiny", {"data": "./data/Tasks.jsonl", "model": "tiny"}),
    (
        "env=python:my_env:MyEnv model=./Out/Model max_steps=5",
        {"env": "python:my_env:MyEnv", "model": "./Out/Model", "max_steps": 5},
    ),
    ("train on the gpu without lora for fifty steps", {"device": GPU, "lora": False, "max_steps": 50}),
    ("train with lora on cpu", {"lora": True, "device": "cpu"}),
    ("approve mode, tiny, 32 problems", {"mode": "approve", "model": "tiny", "problems": 32}),
    ("run it automatically until the reward is at least 0.8", {"mode": "auto", "target_reward": 0.8}),
    ("ask me first, then train tiny to 95% accuracy", {"mode": "approve", "model": "tiny", "target_reward": 0.95}),
    ("success 90%", {"target_reward": 0.9}),
    (
        "temperature=.8, at most 200 steps, max completion 128",
        {"temperature": 0.8, "max_steps": 200, "max_completion_tokens": 128},
    ),
    (
        "8 samples per problem, 4 problems per step, 1,024 episodes",
        {"num_generations": 8, "batch_size": 4, "max_episodes": 1024},
    ),
    (
        "learning rate 3x10^-4, twenty-five steps, completion cap 24",
        {"learning_rate": 3e-4, "max_steps": 25, "max_completion_tokens": 24},
    ),
]

CHINESE: list[tuple[str, dict[str, Any]]] = [
    (
        "用 qwen-0.5b 训练数学 agent，64 个问题，2 个 epoch",
        {"model": "qwen-0.5b", "env": "calculator", "problems": 64, "epochs": 2.0},
    ),
    ("用 qwen-0.5b 训练, reward >= 0.8", {"model": "qwen-0.5b", "target_reward": 0.8}),
    ("/rllm-train approve 模式，qwen-0.5b，64 题", {"mode": "approve", "model": "qwen-0.5b", "problems": 64}),
    ("/rllm-train auto 模式，16 题，reward >= 0.5", {"mode": "auto", "problems": 16, "target_reward": 0.5}),
    (
        "用tiny模型训练检索智能体，64道困难题，学习率1e-4，批大小4，每题采样8次，温度0.7，训练2轮，种子42，成功率达到90%，审批模式",
        {
            "model": "tiny",
            "env": "lookup",
            "problems": 64,
            "difficulty": "hard",
            "learning_rate": 1e-4,
            "batch_size": 4,
            "num_generations": 8,
            "temperature": 0.7,
            "epochs": 2.0,
            "seed": 42,
            "target_reward": 0.9,
            "mode": "approve",
        },
    ),
    (
        "不要用 lora，在 cpu 上训练 tiny，学习率 3×10^-4",
        {"lora": False, "device": "cpu", "model": "tiny", "learning_rate": 3e-4},
    ),
    (
        "训练 tiny 六十四道简单算术题，训练两轮",
        {"model": "tiny", "problems": 64, "difficulty": "simple", "env": "calculator", "epochs": 2.0},
    ),
    (
        "64 道困难的算术题，10 步，目标 0.8",
        {"problems": 64, "difficulty": "hard", "env": "calculator", "max_steps": 10, "target_reward": 0.8},
    ),
    ("快速测试，16 题", {"problems": 16, "max_steps": 10}),
    ("快速测试 3 个 epoch", {"problems": 16, "epochs": 3.0}),
    ("请帮我训练一个计算器智能体，奖励达到 0.9 为止", {"env": "calculator", "target_reward": 0.9}),
    ("自动模式，家规环境，128 个问题", {"mode": "auto", "env": "house_rules", "problems": 128}),
    (
        "用 SmolLM2-135M 训练 100 步，批大小为 8，组大小 16",
        {"model": "SmolLM2-135M", "max_steps": 100, "batch_size": 8, "num_generations": 16},
    ),
    ("正确率超过百分之九十，最多 200 步", {"target_reward": 0.9, "max_steps": 200}),
    ("学习率设为 0.0003，温度是 1.0，随机种子 7", {"learning_rate": 3e-4, "temperature": 1.0, "seed": 7}),
    ("难度混合，题目数量 96，每批 6", {"difficulty": "mixed", "problems": 96, "batch_size": 6}),
    ("用我的数据 ./data/tasks.csv 训练 tiny，两千步", {"data": "./data/tasks.csv", "model": "tiny", "max_steps": 2000}),
    ("训练 3 轮，每题 4 次采样", {"epochs": 3.0, "num_generations": 4}),
    ("最大长度 256，４个线程", {"max_completion_tokens": 256, "threads": 4}),
    ("人工审批，查找任务，1万步", {"mode": "approve", "env": "lookup", "max_steps": 10000}),
    ("成功率 ≥ 95%，两个 epoch，一百二十八题", {"target_reward": 0.95, "epochs": 2.0, "problems": 128}),
    ("用 Qwen/Qwen3-0.6B 全参数微调，学习率 1e-6", {"model": "Qwen/Qwen3-0.6B", "lora": False, "learning_rate": 1e-6}),
    (
        "混合难度的数学题 64 道，温度零点八",
        {"difficulty": "mixed", "env": "calculator", "problems": 64, "temperature": 0.8},
    ),
]


def ids(value: object) -> str:
    return value if isinstance(value, str) else ""


@pytest.mark.parametrize(("text", "expected"), ENGLISH + CHINESE, ids=ids)
def test_hand_written_requests(text: str, expected: dict[str, Any]) -> None:
    parsed = parse_request(text)
    assert parsed.values() == expected
    assert [span.text for span in parsed.unknown] == []


def test_there_are_enough_hand_written_requests_half_of_them_chinese() -> None:
    assert len(ENGLISH) + len(CHINESE) >= 40
    assert len(CHINESE) >= 20


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
        ("1e-4", 1e-4),
        ("3×10^-4", 3e-4),
        ("10^-3", 1e-3),
        (".5", 0.5),
    ],
)
def test_numbers(text: str, value: float) -> None:
    assert parse_number(text) == value


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
}


def write(value: Any, draw: st.DrawFn, field: str) -> str:
    """A value as a person may write it."""
    if field == "target_reward" and draw(st.booleans()):
        return f"{round(value * 100)}%"
    if isinstance(value, float) and value == int(value) and field == "epochs":
        return str(int(value))
    if field == "learning_rate":
        return draw(st.sampled_from([repr(value), f"{value:.10f}".rstrip("0"), f"{value:e}"]))
    return f"{value:,}" if field == "problems" and draw(st.booleans()) else str(value)


@st.composite
def requests(draw: st.DrawFn, phrases: dict[str, list[str]], separators: list[str]) -> tuple[str, dict[str, Any]]:
    fields = draw(st.lists(st.sampled_from(sorted(phrases)), min_size=1, max_size=9, unique=True))
    expected = {name: draw(VALUES[name]) for name in fields}
    parts = [
        draw(st.sampled_from(phrases[name])).replace("{v}", write(value, draw, name))
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
