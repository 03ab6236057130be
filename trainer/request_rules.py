"""The phrases of a request: for each field, how people say it in English and in Chinese.

A rule is a pattern over folded text and a conversion. The named group `v` holds the value, `gap` a stretch inside the
phrase that is left for other rules (the word `mixed` in `64 mixed problems`), `span` what is taken, where the pattern
needs to see more than it takes. The scanner (`trainer.request`) takes the leftmost phrase, then the longest, then the
first in this list.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainer.config import TrainingConfig
from trainer.models.catalog import all_aliases
from trainer.request_words import FLAGS, INTEGER, NUMBER, parse_number

ROUND = "round"
"""Pseudo field: number of this round of an evolution (`round=2 | …`)."""

ROUNDS = "rounds"
"""Pseudo field: how many rounds an evolution shall have."""

PRESET = "preset"
"""Pseudo field: name of a bundle of values; what is said explicitly beats it."""

COMMAND = "command"
"""Pseudo field: a leading slash command such as /rllm-train."""

LAPS = "laps"
"""Pseudo field: a bare `3 轮`: epochs, or rounds where the request speaks of an evolution."""

PRESETS: dict[str, dict[str, Any]] = {"quick": {"problems": 16, "max_steps": 10}}
"""Preset → values: enough steps to see that everything works, too few to learn much."""

ENVIRONMENT_WORDS: dict[str, str] = {
    "calculator": r"calculator|calculation|计算器|四则运算",
    "house_rules": r"house[ _-]?rules?|house\s*规则|房屋规则|家规",
    "lookup": r"look[ _-]?up|retrieval|key[ -]?value|检索|查找|查询|键值",
    "gsm8k": r"gsm[ _-]?8k",
    "reasoning_gym": r"reasoning[ _-]?gym",
}
"""Environment → words that name it."""

MATH_WORDS = r"math(?:s|ematics|ematical)?|arithmetic|算术|数学|计算(?!机|器)"
"""They mean the calculator, unless another environment of arithmetic is named beside them."""

DIFFICULTY_WORDS: dict[str, str] = {
    "simple": r"simple|easy|简单|容易",
    "mixed": r"mixed|混合",
    "hard": r"hard|difficult|困难|较难|高难度|难(?=的|度?题|问题)",
}
"""Difficulty → words that name it."""


@dataclass(frozen=True)
class Rule:
    """One way to say one field."""

    field: str
    pattern: re.Pattern[str]
    convert: Callable[[str], Any]
    raw: bool = False
    """The value keeps the user's spelling (names of models, files, classes)."""
    soft: bool = False
    """A soft value gives way to an explicit one instead of contradicting it."""


def _integer(text: str) -> int:
    return int(parse_number(text))


def _fraction(text: str) -> float:
    """0.9, 90%, 90 %, 百分之九十 → 0.9."""
    plain = text.strip()
    if plain.startswith("百分之"):
        return parse_number(plain.removeprefix("百分之")) / 100
    if plain.endswith(("%", "percent")):
        return parse_number(plain.removesuffix("%").removesuffix("percent")) / 100
    return parse_number(plain)


def _constant(value: Any) -> Callable[[str], Any]:
    return lambda _: value


def _scalar(text: str) -> Any:
    """What stands behind `field=`: a number, true, false, null, or the text itself."""
    plain = text.strip()
    words: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None}
    if plain.lower() in words:
        return words[plain.lower()]
    for kind in (int, float):
        try:
            return kind(plain.replace(",", ""))
        except ValueError:
            continue
    return plain


def _rule(field: str, pattern: str, convert: Callable[[str], Any] = str.strip, soft: bool = False) -> Rule:
    return Rule(field, re.compile(pattern, FLAGS), convert, convert in (str.strip, _scalar), soft)


_IS = r"\s*(?:=|:|is|of|at|to|为|是|设为|设成|设置为|用|约|大约|about|around)?\s*"
_INT = rf"(?P<v>{INTEGER})"
_NUM = rf"(?P<v>{NUMBER})"
_COUNTER = r"\s*(?:个|道|条|组|次|轮|份)?\s*"
_OF_GAP = "|".join(
    [
        *DIFFICULTY_WORDS.values(),
        *ENVIRONMENT_WORDS.values(),
        MATH_WORDS,
        r"training|different|random|generated|new|的|训练|随机|house",
    ]
)
_GAP = rf"(?P<gap>(?:(?:{_OF_GAP})[\s,]*(?:的\s*)?){{0,4}}?)"


def _word(words: str) -> str:
    """Words that are not the inside of a longer Latin word; a Chinese word needs no boundary: `学习率1e-4`."""
    return rf"(?:(?<![a-z0-9_])|(?=[^\x00-\x7f]))(?:{words})(?:(?![a-z0-9_])|(?<=[^\x00-\x7f]))"


def _named(field: str, names: str, value: str, convert: Callable[[str], Any], reverse: bool = True) -> list[Rule]:
    """`name value` and `value name`."""
    rules = [_rule(field, rf"{_word(names)}{_IS}{value}", convert)]
    if reverse:
        rules.append(_rule(field, rf"{value}\s*(?:的\s*)?{_word(names)}", convert))
    return rules


def _counted(field: str, noun: str, convert: Callable[[str], Any] = _integer, gap: bool = False) -> list[Rule]:
    """`64 problems`, `problems 64`, `64 道题`."""
    between = _GAP if gap else ""
    return [
        _rule(field, rf"{_INT}{_COUNTER}{between}{_word(noun)}", convert),
        _rule(field, rf"{_word(noun)}(?:数量|数目|数|\s+count)?{_IS}{_INT}", convert),
    ]


_PROBLEM = r"problems?|tasks?|questions?|prompts?|examples?|exercises|问题|题目|习题|任务|题|样本"
_EPISODE_SUFFIX = r"(?:\s*(?:per|each|for each|for every|a)\s*(?:problem|task|question|prompt|group|step)?)?"

_AMOUNTS = [
    *_counted("test_problems", r"(?:held-out )?test (?:problems?|tasks?|questions?)|(?:道|个)?测试(?:题目|问题|题)"),
    _rule("test_problems", rf"测试(?:集|用)?\s*(?:题)?{_IS}{_INT}\s*(?:个|道)?\s*(?:题|问题)?", _integer),
    *_counted("validation_problems", r"validation (?:problems?|tasks?|questions?)|验证(?:题目|问题|题)"),
    *_counted("problems", _PROBLEM, gap=True),
    *_counted("epochs", r"epochs?|passes|遍|轮次|轮训练|轮(?:的)?训练", parse_number),
    _rule(
        "epochs",
        rf"(?:训练|跑|学习)\s*{_INT}\s*(?:个\s*)?轮(?!优化|演进|进化|迭代|对话|次)",
        parse_number,
    ),
    _rule(LAPS, rf"{_INT}\s*(?:个\s*)?轮(?!优化|演进|进化|迭代|对话|次|训练)", _integer),
    _rule(ROUNDS, rf"{_INT}\s*(?:个\s*)?(?:轮|次)\s*(?:自动)?(?:优化|演进|进化|迭代)", _integer),
    _rule(ROUNDS, rf"(?:优化|演进|进化|迭代|evolve)\s*(?:for\s+)?{_INT}\s*(?:轮|rounds?)", _integer),
    _rule(ROUNDS, rf"{_INT}\s*{_word('rounds')}(?:\s+of\s+(?:evolution|optimi[sz]ation|evolving))?", _integer),
    _rule(ROUNDS, rf"{_word('rounds')}\s*[=:]\s*{_INT}", _integer),
    _rule("epochs", rf"{_INT}\s*{_word('rounds')}\s+of\s+training", parse_number),
    _rule(ROUND, rf"{_word('round')}\s*[=:]?\s*{_INT}(?:\s*\|)?", _integer),
    _rule(ROUND, rf"第\s*{_INT}\s*轮(?:\s*\|)?", _integer),
    *_counted("max_steps", r"(?:optimi[sz]er |training |gradient |update )?(?:steps?|updates?)|步(?:训练)?"),
    _rule("max_steps", rf"步数{_IS}{_INT}", _integer),
    *_counted("max_episodes", r"(?:training )?episodes?(?:\s+(?:in total|total|altogether))?|局|条轨迹"),
    *_counted("max_turns", r"(?:agent |model )?turns?|agent steps?|(?:轮|个)?(?:对话|回合)"),
    *_counted("max_completion_tokens", r"(?:completion )?tokens?|个?词元"),
    _rule(
        "max_completion_tokens",
        rf"(?:{_word('(?:max(?:imum)? )?completion(?: length| tokens| cap| limit)?|token (?:cap|limit)')}"
        rf"|(?:最大|最长)?(?:生成|回答|输出)?长度(?:上限)?){_IS}{_INT}(?:\s*tokens?|\s*个?词元)?",
        _integer,
    ),
    _rule(
        "num_generations",
        rf"{_INT}{_COUNTER}{_word('generations?|samples?|rollouts?|completions?|attempts?|episodes?')}"
        r"\s*(?:per|for each|for every|each)\s*(?:problem|task|question|prompt|group)?(?![a-z])",
        _integer,
    ),
    *_counted("num_generations", r"generations?|samples|rollouts|completions|个?采样|次采样|个?生成|次生成"),
    _rule("num_generations", rf"{_word('g|group size|组大小|采样数|生成数')}{_IS}{_INT}", _integer),
    _rule(
        "num_generations",
        rf"每\s*(?:个|道|组)?\s*(?:问题|题目|题|组)?\s*(?:采样|生成|尝试){_IS}{_INT}\s*(?:个|次|条|份)?\s*(?:回答|样本|轨迹)?",
        _integer,
    ),
    _rule(
        "num_generations",
        rf"每\s*(?:个|道|组)?\s*(?:问题|题目|题|组)\s*{_INT}\s*(?:个|次|条|份)?\s*(?:采样|生成|尝试|回答|样本|轨迹)?",
        _integer,
    ),
    _rule("num_generations", rf"(?:采样|生成)\s*{_INT}\s*(?:个|次|条|份)\s*(?:回答|样本|轨迹)?", _integer),
    *_named(
        "batch_size", r"batch(?:[ _-]?size)?|批大小|批次大小|批量大小|批量|批次|每批", _INT, _integer, reverse=False
    ),
    _rule("batch_size", rf"{_INT}\s*{_word('problems per (?:step|batch)')}", _integer),
    *_named("seed", r"(?:random )?seed|随机种子|种子", _INT, _integer, reverse=False),
    *_named("threads", r"(?:cpu )?threads?|cores?|个?线程|核", _INT, _integer),
]

_RATES = [
    *_named("learning_rate", r"learning[ _-]?rate|lr|学习率|学习速率", _NUM, parse_number),
    *_named("temperature", r"(?:sampling )?temp(?:erature)?|采样温度|温度", _NUM, parse_number),
    _rule("temperature", rf"(?<![a-z0-9_])t\s*=\s*{_NUM}", parse_number),
    *_named(
        "beta",
        r"beta|kl(?: (?:weight|coefficient|penalty))?|kl\s*(?:系数|权重|惩罚)",
        _NUM,
        parse_number,
        reverse=False,
    ),
]

_METRIC = (
    r"(?:(?:target|goal|mean|average|test|validation|final|held-out|目标|平均|测试|验证)\s*(?:的\s*)?)?"
    r"(?:rewards?|success(?:[ -]rate)?|accuracy|score|奖励|成功率|正确率|准确率|通过率|得分|分数)(?:值)?"
)
_REACH = (
    r"(?:>=|≥|=>|>|=|:|is|of|at least|above|over|reaches|reach|reached|exceeds|hits|to|gets to|goes to|up to"
    r"|达到|达|至少|不低于|大于等于|大于|超过|高于|到|为|是)"
)
_SHARE = (
    rf"(?P<v>百分之{NUMBER}|(?<![\w.])\d+(?:\.\d+)?\s?(?:%|percent)|{NUMBER})"
    r"(?:\s*(?:以上|为止|or (?:more|better|higher)))?"
)
_PERCENT_OR_UNIT = (
    r"(?P<v>百分之" + NUMBER + r"|(?<![\w.])\d+(?:\.\d+)?\s?(?:%|percent)|(?<![\w.])(?:0?\.\d+|1\.0+|0\.\d+))"
)
_MUST = r"(?:should|must|has to|needs to|要|需要|需|能|能够|应|应该)?"

_TARGETS = [
    _rule("target_reward", rf"{_METRIC}\s*{_MUST}\s*(?:be\s*)?(?:{_REACH}\s*){{0,2}}{_SHARE}", _fraction),
    _rule("target_reward", rf"{_PERCENT_OR_UNIT}\s*(?:以上)?\s*(?:的\s*)?{_METRIC}", _fraction),
    _rule("target_reward", rf"{_word('target|goal')}{_IS}(?:{_REACH}\s*)?{_SHARE}", _fraction),
    _rule("target_reward", rf"目标{_IS}(?:{_REACH}\s*)?{_SHARE}", _fraction),
    _rule(
        "target_reward",
        rf"(?:{_word('reach(?:es)?|until|hits?')}|达到|直到)\s*(?:{_REACH}\s*)?{_PERCENT_OR_UNIT}",
        _fraction,
    ),
    _rule("target_reward", rf"(?:>=|≥)\s*{_PERCENT_OR_UNIT}", _fraction),
]

_MODES = [
    _rule(
        "mode",
        r"mode\s*[=:]\s*auto|(?<![a-z0-9_])(?:fully )?auto(?:matic(?:ally)?)?(?![a-z0-9_])[- ]*(?:mode|模式)?",
        _constant("auto"),
    ),
    _rule("mode", r"(?:全)?自动(?:模式|地|运行|执行)?", _constant("auto")),
    _rule(
        "mode",
        r"mode\s*[=:]\s*approve|(?<![a-z0-9_])(?:approve|approval|manual)(?![a-z0-9_])[- ]*(?:mode|模式)?",
        _constant("approve"),
    ),
    _rule(
        "mode",
        r"(?<![a-z0-9_])ask(?: me)?(?: first| before)(?: (?:starting|it starts|you start))?(?![a-z])",
        _constant("approve"),
    ),
    _rule("mode", r"(?:审批|人工|手动|逐步确认|按步确认|先确认|确认)(?:模式)?", _constant("approve")),
]


def _gpu() -> str:
    return "mps" if sys.platform == "darwin" else "cuda"


_DEVICES = [
    _rule("device", rf"(?:on |the )*{_word('cpu')}(?:\s*上)?", _constant("cpu")),
    _rule("device", rf"(?:on |the )*{_word('cuda|nvidia')}(?:\s*上)?", _constant("cuda")),
    _rule("device", rf"(?:on |the )*{_word('mps|metal')}(?:\s*上)?", _constant("mps")),
    _rule("device", rf"(?:on |the |a )*(?:{_word('gpu')}|显卡)(?:\s*上)?", lambda _: _gpu()),
    _rule(
        "lora",
        r"(?:without|no|不要用|不需要|不用|不要|不使用|无)\s*lora|全参数?(?:微调|训练)?"
        r"|full[ -](?:parameter|weights?|model)?\s*fine-?tun(?:e|ing)",
        _constant(False),
    ),
    _rule("lora", rf"{_word('(?:with |using |use )?lora(?: adapters?)?')}", _constant(True)),
]

_QUICK = r"quick(?:ly)?(?: (?:test|run|check|try|training|experiment))?|smoke[ -]?test(?: run)?"
_PRESET_RULES = [
    _rule(PRESET, _word(_QUICK), _constant("quick")),
    _rule(PRESET, r"快速(?:测试|试跑|验证|跑一下|试一下|试试|训练)?|试跑|冒烟测试", _constant("quick")),
]


def _alias_pattern(alias: str) -> str:
    """`qwen2.5-0.5b` also as `Qwen 2.5 0.5B` and with -Instruct."""
    text = re.escape(alias).replace(r"\-", "[ _-]?")
    text = re.sub(r"^(qwen|smollm)(?=\d)", r"\1[ _-]?", text)
    return text + r"(?:-instruct)?"


_NAME = r"[a-z0-9][\w.-]*"
_MODELS = [
    *[_rule("model", _word(_alias_pattern(alias))) for alias in sorted(all_aliases(), key=len, reverse=True)],
    _rule("data", r"(?:~|\.{0,2}/)?[\w.-]+(?:/[\w.-]+)*\.(?:jsonl|csv|parquet)(?![\w])"),
    _rule("model", r"(?:~|\.{0,2}/)?[\w.-]+(?:/[\w.-]+)*\.gguf(?![\w])"),
    _rule("model", rf"(?<![\w./-])(?=[\w.-]*[a-z])[a-z0-9][\w.-]*/{_NAME}(?![\w/])"),
    _rule("model", r"(?<![\w.])(?:~|\.{1,2})?/[\w.-]+(?:/[\w.-]+)+"),
    _rule("model", r"(?<![\w.])\.{1,2}/[\w.-]+"),
    _rule("model", r"(?<![\w.-])[a-z][a-z0-9._]*(?:-[a-z0-9._]+)*-?\d+(?:\.\d+)?[bm](?:-[a-z]+)*(?![\w-])"),
    _rule("model", rf"{_word('model')}\s*[=:]\s*(?P<v>[^\s,;|]+)"),
    _rule("model", r"模型\s*(?:=|:|为|是|用)\s*(?P<v>[^\s,;|]+)"),
]

_ENVIRONMENTS = [
    _rule("env", r"python:[A-Za-z_][\w.]*:[A-Za-z_]\w*"),
    *[_rule("env", _word(words), _constant(name)) for name, words in ENVIRONMENT_WORDS.items()],
    _rule("env", _word(MATH_WORDS), _constant("calculator"), soft=True),
    _rule("env", rf"{_word('env(?:ironment)?')}\s*[=:]\s*(?P<v>[^\s,;|]+)"),
    _rule("env", r"环境\s*(?:=|:|为|是)\s*(?P<v>[a-z][\w:.-]*)"),
]

_DIFFICULTIES = [
    _rule(
        "difficulty",
        rf"(?:difficulty\s*[=:]?\s*|难度\s*(?:=|:|为|是|级别)?\s*)?{_word(words)}(?:\s*(?:difficulty|难度))?",
        _constant(name),
    )
    for name, words in DIFFICULTY_WORDS.items()
]


def _assignment_rules() -> list[Rule]:
    """`field=value` and `--field value` for every field of the config."""
    return [
        _rule(name, rf"(?<![\w-])(?:--)?{name.replace('_', '[_-]')}\s*=\s*(?P<v>[^\s,;|]+)", _scalar)
        for name in TrainingConfig.model_fields
        if name != "schema_version"
    ]


RULES: tuple[Rule, ...] = (
    _rule(COMMAND, r"^\s*/(?:rllm|traj|meta)-[a-z-]+"),
    *_assignment_rules(),
    *_MODELS,
    *_ENVIRONMENTS,
    *_AMOUNTS,
    *_RATES,
    *_TARGETS,
    *_MODES,
    *_DEVICES,
    *_PRESET_RULES,
    *_DIFFICULTIES,
)
"""All phrases, in the order in which equal matches are preferred."""
