"""The phrases of a request beside amounts: rates, targets, modes, devices, models, environments; and all of them.

The scanner (`trainer.request`) takes the leftmost phrase, then the longest, then the first in `RULES`.
"""

import re
import sys
from typing import Any, Literal, get_args, get_origin

from trainer.config import TrainingConfig
from trainer.models.catalog import all_aliases
from trainer.request_amounts import AMOUNTS
from trainer.request_grammar import (
    COMMAND,
    DIFFICULTY_WORDS,
    ENVIRONMENT_WORDS,
    EXPERIENCE,
    INT,
    IS,
    MATH_WORDS,
    NOTHING,
    NUM,
    PRESET,
    RANGE,
    Rule,
    constant,
    fraction,
    integer,
    named,
    ranges,
    rule,
    scalar,
    word,
)
from trainer.request_words import NUMBER, parse_number

_RATES = [
    *named("learning_rate", r"learning[ _-]?rate|lr|学习率|学习速率", NUM, parse_number),
    *named("temperature", r"(?:sampling )?temp(?:erature)?|采样温度|温度", NUM, parse_number),
    rule("temperature", rf"(?<![a-z0-9_])t\s*=\s*{NUM}", parse_number),
    *named(
        "beta",
        r"beta|kl(?: (?:weight|coefficient|penalty))?|kl\s*(?:系数|权重|惩罚)",
        NUM,
        parse_number,
        reverse=False,
    ),
    *named("weight_decay", r"weight[ -]?decay|权重衰减", NUM, parse_number),
    *named(
        "max_grad_norm",
        r"(?:max(?:imum)? )?grad(?:ient)?[ -]?(?:norm|clip(?:ping)?)(?: norm)?|clip (?:the )?gradients?"
        r"|梯度裁剪|梯度范数",
        NUM,
        parse_number,
        reverse=False,
    ),
    *named("epsilon_high", r"clip[ -]?hig(?:h|her)|epsilon[ -]high|upper clip(?: range)?", NUM, parse_number),
    *named("epsilon_low", r"clip[ -]?low(?:er)?|epsilon[ -]low|lower clip(?: range)?", NUM, parse_number),
    rule(
        "tool_timeout_s",
        rf"{word('tool time-?out')}{IS}(?P<v>\d+(?:\.\d+)?)\s*(?:s|sec(?:onds?)?)?(?![\w.])",
        parse_number,
    ),
    rule("tool_timeout_s", rf"工具超时(?:时间)?{IS}{NUM}\s*秒?", parse_number),
    *ranges(r"learning[ _-]?rate|lr|temp(?:erature)?|beta|学习率|温度", r"learning[ _-]?rate|temperature|学习率|温度"),
]

_METRIC = (
    r"(?:(?:target|goal|mean|average|test|validation|final|held-out|目标|平均|测试|验证)\s*(?:的\s*)?)?"
    r"(?:rewards?|success(?:[ -]rate)?|accuracy|score|奖励|成功率|正确率|准确率|通过率|得分|分数)(?:值)?"
)
_REACH = (
    r"(?:>=|≥|=>|>|=|:|is|of|at least|above|over|reaches|reach|reached|exceeds|hits|to|gets to|goes to|up to"
    r"|达到|达|至少|不低于|大于等于|大于|超过|高于|到|为|是)"
)
_TENTHS = r"(?:[一二两三四五六七八九十]|(?<![\w.])\d)成(?:[一二三四五六七八九](?!\s*[个道步轮次题]))?"
"""九成, 九成五: tenths, and hundredths behind them."""
_SHARE = (
    rf"(?P<v>{_TENTHS}|百分之{NUMBER}|(?<![\w.])\d+(?:\.\d+)?\s?(?:%|percent)|{NUMBER})"
    r"(?:\s*(?:以上|为止|or (?:more|better|higher)))?"
)
_PERCENT_OR_UNIT = (
    rf"(?P<v>{_TENTHS}|百分之"
    + NUMBER
    + r"|(?<![\w.])\d+(?:\.\d+)?\s?(?:%|percent)|(?<![\w.])(?:0?\.\d+|1\.0+|0\.\d+))"
)
_MUST = r"(?:should|must|has to|needs to|要|需要|需|能|能够|应|应该)?"

_TARGETS = [
    rule("target_reward", rf"{_METRIC}\s*{_MUST}\s*(?:be\s*)?(?:{_REACH}\s*){{0,2}}{_SHARE}", fraction),
    rule("target_reward", rf"{_PERCENT_OR_UNIT}\s*(?:以上)?\s*(?:的\s*)?{_METRIC}", fraction),
    rule("target_reward", rf"{word('target|goal')}{IS}(?:{_REACH}\s*)?{_SHARE}", fraction),
    rule("target_reward", rf"目标{IS}(?:{_REACH}\s*)?{_SHARE}", fraction),
    rule(
        "target_reward",
        rf"(?:{word('reach(?:es)?|until|hits?')}|达到|直到)\s*(?:{_REACH}\s*)?{_PERCENT_OR_UNIT}"
        rf"(?:\s*(?:以上)?\s*(?:的\s*)?{_METRIC})?",
        fraction,
    ),
    rule("target_reward", rf"(?:>=|≥)\s*{_PERCENT_OR_UNIT}", fraction),
    rule(RANGE, rf"{_METRIC}\s*(?:of|is|为|是|在)?\s*\d*\.?\d+\s*%?\s*(?:-|–|~|到|至)\s*\d*\.?\d+\s*%?(?![\w.])"),
]

_STOPS = r"auto(?:matic(?:ally)?)?[ -]?stop(?:ping)?|stop(?: it)? automatically|自动停止|异常(?:时)?(?:自动)?停止"
_ANOMALIES = r"(?:\s*(?:on|at|when there are|when|if)\s*(?:an |any )?(?:critical )?(?:anomal(?:y|ies)|alerts?))?"

_MODES = [
    rule("auto_stop", rf"(?:no|without|不要|不用|不)\s*{word(_STOPS)}", constant(False)),
    rule("auto_stop", rf"(?<![a-z0-9_]){word(_STOPS)}{_ANOMALIES}", constant(True)),
    rule(
        "mode",
        r"mode\s*[=:]\s*auto|(?<![a-z0-9_])(?:fully )?auto(?:matic(?:ally)?)?(?![a-z0-9_])[- ]*(?:mode|模式)?",
        constant("auto"),
    ),
    rule("mode", r"(?:全)?自动(?:模式|地|运行|执行)?", constant("auto")),
    rule(
        "mode",
        r"mode\s*[=:]\s*approve|(?<![a-z0-9_])(?:approve|approval|manual)(?![a-z0-9_])[- ]*(?:mode|模式)?",
        constant("approve"),
    ),
    rule(
        "mode",
        r"(?<![a-z0-9_])ask(?: me)?(?: first| before)(?: (?:starting|it starts|you start))?(?![a-z])",
        constant("approve"),
    ),
    rule("mode", r"(?:审批|人工|手动|逐步确认|按步确认|先确认|确认)(?:模式)?", constant("approve")),
]


def _gpu() -> str:
    return "mps" if sys.platform == "darwin" else "cuda"


_DEVICES = [
    rule("device", rf"(?:on |the )*{word('cpu')}(?:\s*上)?", constant("cpu")),
    rule("device", rf"(?:on |the )*{word('cuda|nvidia')}(?:\s*上)?", constant("cuda")),
    rule("device", rf"(?:on |the )*{word('mps|metal')}(?:\s*上)?", constant("mps")),
    rule("device", rf"(?:on |the |a )*(?:{word('gpu')}|显卡)(?:\s*上)?", lambda _: _gpu()),
    rule(
        "lora",
        r"(?:without|no|disable|关闭|禁用|不要用|不需要|不用|不要|不使用|无)\s*lora|全参数?(?:微调|训练)?"
        r"|full[ -](?:parameter|weights?|model)?\s*fine-?tun(?:e|ing)",
        constant(False),
    ),
    rule("lora", rf"{word('(?:with |using |use )?lora(?: adapters?)?')}", constant(True)),
]

_TRACKERS = [
    rule(
        "report_to",
        word(rf"(?:report|log|track)(?:ing)? (?:it |everything )?(?:to|in|with) {name}|(?:上报|记录|同步)到\s*{name}"),
        constant(name),
    )
    for name in ("tensorboard", "wandb", "trackio")
]

_DTYPES = {
    "float32": r"fp32|float32|full precision|单精度|全精度",
    "bfloat16": r"bf16|bfloat16",
    "float16": r"fp16|float16|half precision|半精度",
}
_SCHEDULES = {"cosine": "cosine|余弦", "linear": "linear|线性", "constant": "constant|恒定|常数"}
_RATE_NOUN = r"(?:learning[ -]?rate|lr)(?: schedule| decay)?|schedule|decay|学习率(?:调度|衰减)?|调度|衰减|退火"
_LOSSES = {
    "dr_grpo": r"dr[._ -]{0,2}grpo",
    "dapo": "dapo",
    "bnpo": "bnpo",
    "gspo": "gspo",
    "cispo": "cispo",
    "grpo": "grpo",
}

_KINDS = [
    *[rule("dtype", rf"(?:in |with )?{word(names)}", constant(name)) for name, names in _DTYPES.items()],
    *[
        rule("lr_schedule", rf"{word(names)}\s*(?:的\s*)?{word(_RATE_NOUN)}", constant(name))
        for name, names in _SCHEDULES.items()
    ],
    *[
        rule("loss_type", rf"{word(names)}\s*(?:的\s*)?{word('loss(?: type)?|损失(?:函数)?')}", constant(name))
        for name, names in _LOSSES.items()
    ],
    *[
        rule("loss_type", rf"{word('loss(?: type)?|损失(?:函数)?')}{IS}{word(names)}", constant(name))
        for name, names in _LOSSES.items()
    ],
    rule("lora_rank", rf"(?P<gap>lora)[ -]?(?:{word('rank|r')}|秩){IS}{INT}", integer),
    *named("lora_rank", r"rank|秩", INT, integer, reverse=False),
    rule(
        "skip_eval_before",
        r"skip (?:the )?(?:first |initial )?eval(?:uation)?(?: before(?: training)?)?",
        constant(True),
    ),
    rule("skip_eval_before", r"(?:跳过|不做|不要)\s*(?:训练前|初始)(?:的)?(?:评估|测试)", constant(True)),
]

_PRESET_NAME = r"(?P<v>[a-z][a-z0-9_+-]*)"
_EXPERIENCE = r"experiences?(?: pool)?"
_EXPERIENCES = [
    rule(EXPERIENCE, rf"{word('experience(?:[ _-](?:preset|mode))?')}\s*(?:=|:)\s*{_PRESET_NAME}"),
    rule(EXPERIENCE, rf"{word('experience[ _-](?:preset|mode)')}\s*{_PRESET_NAME}"),
    rule(EXPERIENCE, rf"经验(?:预设|模式)\s*(?:=|:|为|是|用)?\s*{_PRESET_NAME}"),
    rule(EXPERIENCE, rf"(?:without(?: any)?|no)\s+{word(_EXPERIENCE)}", constant("off")),
    rule(EXPERIENCE, r"(?:不用|不要|不使用|不带|无|没有|关闭)\s*经验(?:池)?", constant("off")),
    rule(EXPERIENCE, rf"mixed\s+{word(_EXPERIENCE)}|{word(_EXPERIENCE)}\s+mixed", constant("mixed")),
    rule(EXPERIENCE, r"混合\s*经验(?:池)?|经验\s*混合", constant("mixed")),
    rule(
        EXPERIENCE,
        rf"{word(_EXPERIENCE)}\s+(?:in|for|on)\s+(?:all|every)(?: (?:rollouts?|episodes?))?",
        constant("all"),
    ),
    rule(EXPERIENCE, r"(?:全部|所有)(?:轨迹|采样)?(?:都)?(?:使用|用|带)?\s*经验(?:池)?", constant("all")),
    rule(
        EXPERIENCE,
        rf"(?:with|using|use|from)\s+(?:the |an |our )?{word(_EXPERIENCE)}(?: from the pool)?",
        constant("mixed"),
    ),
    rule(EXPERIENCE, r"(?:使用|利用|带着|带|用|启用|开启)\s*经验(?:池)?", constant("mixed"), soft=True),
]

_QUICK = r"quick(?:ly)?(?: (?:test|run|check|try|training|experiment))?|smoke[ -]?test(?: run)?"
_PRESET_RULES = [
    rule(PRESET, word(_QUICK), constant("quick")),
    rule(
        PRESET,
        r"快速(?:测试|试跑|验证|跑一下|试一下|试试|训练)?|小(?:规模|型)?(?:的)?测试|试跑|冒烟测试",
        constant("quick"),
    ),
]


def _alias_pattern(alias: str) -> str:
    """`qwen2.5-0.5b` also as `Qwen 2.5 0.5B` and with -Instruct."""
    text = re.escape(alias).replace(r"\-", "[ _-]?")
    text = re.sub(r"^(qwen|smollm)(?=\d)", r"\1[ _-]?", text)
    return text + r"(?:-instruct)?"


_NAME = r"[a-z0-9][\w.-]*"
_HUB_DATA = rf"(?![\w./-]+\.(?:jsonl|csv|parquet)(?![\w])){_NAME}/{_NAME}(?![\w/])"
"""A data set of the hub is no model; tasks come from a file."""

_MODELS = [
    rule("env", r"openai/gsm8k(?![\w/-])", constant("gsm8k")),
    rule(NOTHING, rf"(?:{word('data ?sets?')}|数据集)\s*(?:=|:|is|是|为|用)?\s*(?!openai/gsm8k){_HUB_DATA}"),
    *[rule("model", word(_alias_pattern(alias))) for alias in sorted(all_aliases(), key=len, reverse=True)],
    rule("data", r"(?:~|\.{0,2}/)?[\w.-]+(?:/[\w.-]+)*\.(?:jsonl|csv|parquet)(?![\w])"),
    rule("model", r"(?:~|\.{0,2}/)?[\w.-]+(?:/[\w.-]+)*\.gguf(?![\w])"),
    rule("model", rf"(?<![\w./-])(?=[\w.-]*[a-z])[a-z0-9][\w.-]*/{_NAME}(?![\w/])"),
    rule("model", r"(?<![\w.])(?:~|\.{1,2})?/[\w.-]+(?:/[\w.-]+)+"),
    rule("model", r"(?<![\w.])\.{1,2}/[\w.-]+"),
    rule("model", r"(?<![\w.-])[a-z][a-z0-9._]*(?:-[a-z0-9._]+)*-?\d+(?:\.\d+)?[bm](?:-[a-z]+)*(?![\w-])"),
    rule("model", rf"{word('model')}\s*[=:]\s*(?P<v>[^\s,;|]+)"),
    rule("model", r"模型\s*(?:=|:|为|是|用)\s*(?P<v>[^\s,;|]+)"),
]

_ENVIRONMENTS = [
    rule("env", r"python:[A-Za-z_][\w.]*:[A-Za-z_]\w*"),
    *[rule("env", word(words), constant(name)) for name, words in ENVIRONMENT_WORDS.items()],
    rule("env", word(MATH_WORDS), constant("calculator"), soft=True),
    rule("env", rf"{word('env(?:ironment)?')}\s*[=:]\s*(?P<v>[^\s,;|]+)"),
    rule("env", r"环境\s*(?:=|:|为|是)\s*(?P<v>[a-z][\w:.-]*)"),
]

_DIFFICULTIES = [
    rule(
        "difficulty",
        rf"(?:difficulty\s*[=:]?\s*|难度\s*(?:=|:|为|是|级别)?\s*)?{word(words)}(?:\s*(?:difficulty|难度))?",
        constant(name),
    )
    for name, words in DIFFICULTY_WORDS.items()
]


_VALUE = r"(?P<v>-?\d{1,3}(?:,\d{3})+(?![\w.])|[^\s,;|]+)"


def _assignment_rules() -> list[Rule]:
    """`field=value`, `field: value` and `--field value` for every field of the config; `field value` where the value
    shows what it is: a number, true or false, one of the field's choices."""
    rules = []
    for name, info in TrainingConfig.model_fields.items():
        if name in ("schema_version", EXPERIENCE):  # presets of experience have phrases of their own
            continue
        spelt = rf"(?<![\w-])(?:--)?{name.replace('_', '[_-]')}"
        rules.append(rule(name, rf"{spelt}\s*=\s*{_VALUE}", scalar))
        if "_" in name:
            rules.append(rule(name, rf"{spelt}\s*:\s*{_VALUE}", scalar))
        plain = _plain_value(info.annotation)
        if plain is not None:
            rules.append(rule(name, rf"{spelt}\s+(?P<v>{plain})(?![\w.%-])", scalar))
    return rules


def _plain_value(annotation: Any) -> str | None:
    """Pattern of the values of a type that are recognised without a sign before them."""
    if get_origin(annotation) is Literal:
        return "|".join(re.escape(str(choice)) for choice in get_args(annotation))
    kinds = set(get_args(annotation) or (annotation,)) - {type(None)}
    if kinds == {bool}:
        return "true|false"
    if kinds <= {int, float}:
        return r"-?(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)(?:e[+-]?\d+)?"
    return None


RULES: tuple[Rule, ...] = (
    rule(COMMAND, r"^\s*/(?:rllm|traj|meta)-[a-z-]+"),
    *_assignment_rules(),
    *_MODELS,
    *_ENVIRONMENTS,
    *AMOUNTS,
    *_RATES,
    *_TARGETS,
    *_MODES,
    *_DEVICES,
    *_TRACKERS,
    *_KINDS,
    *_EXPERIENCES,
    *_PRESET_RULES,
    *_DIFFICULTIES,
)
"""All phrases, in the order in which equal matches are preferred."""
