"""The small words of a request: width and case folding, numbers as people write them, and words without meaning.

Everything keeps positions: a folded text has one character for each character of the original, so a span found in it
can be shown in the user's own words.
"""

import re

_SEPARATORS = str.maketrans(dict.fromkeys("，、。；！？", ";"))
"""Chinese punctuation separates and is never part of a number: `种子 1，200 步` holds no 1,200."""

_LOOKALIKES = str.maketrans({"\u3000": " ", "\u00a0": " ", "\t": " ", "\u2010": "-", "\u2011": "-", "−": "-", "≧": "≥"})

FLAGS = re.ASCII
"""Word boundaries lie between a Chinese character and a Latin one: `2个epoch`."""


def fold(text: str) -> str:
    """Lower case (ASCII), full-width forms as ASCII, dashes and spaces made plain; same length as `text`."""
    plain = text.translate(_SEPARATORS).translate(_LOOKALIKES)
    characters = []
    for character in plain:
        code = ord(character)
        if 0xFF01 <= code <= 0xFF5E:
            character = chr(code - 0xFEE0)
        characters.append(character.lower() if character.isascii() else character)
    return "".join(characters)


_ONE_WORDS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen"""
_TEN_WORDS = "twenty thirty forty fifty sixty seventy eighty ninety"
_ONES = _ONE_WORDS.split()
_TENS = _TEN_WORDS.split()
_ONES_PATTERN = "|".join(sorted(_ONES, key=len, reverse=True))
_ENGLISH = (
    rf"(?:a|one|two|three|four|five|six|seven|eight|nine)\s+hundred"
    rf"|(?:{'|'.join(_TENS)})(?:[- ](?:{_ONES_PATTERN}))?|{_ONES_PATTERN}"
)
_CHINESE_DIGITS = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_CHINESE_UNITS = {"十": 10, "百": 100, "千": 1000}
_SCALES = {"k": 1000, "百": 100, "千": 1000, "万": 10_000}
CHINESE_NUMBER = r"[零〇一二两三四五六七八九十百千万]{1,16}"
"""As long as 九千九百九十九万九千九百九十九; without a bound a page of 一 takes minutes."""

_SIGN = r"(?:(?<![\w.)%-])-(?=[\d.])|负\s?)?"
"""A minus that belongs to a number stands directly before it and behind nothing: `-5`, not `10-20`, `tiny-5`, `- 5`."""

_NOT_INSIDE = r"(?<![\w.])(?<!\w-)"
"""A number does not begin inside a word, another number (`1e-4`), a range or a hyphenated name."""

INTEGER = (
    rf"(?:{_SIGN}{_NOT_INSIDE}(?:\d{{1,3}}(?:,\d{{3}})+|\d+)(?:\s?k\b|\s?[百千万])?(?![\d.]*\d|\w|%)"
    rf"|{_SIGN}{_NOT_INSIDE}\d+\.\d+(?:\s?k\b|\s?[百千万])"
    rf"|(?<![a-z])(?:{_ENGLISH})(?![a-z])|负?{CHINESE_NUMBER})"
)
"""A whole number: 64, 1,024, 2k, 1.5k, 1万, sixty-four, 六十四, with its sign. No digit, letter or % follows."""

_CHINESE_SHARE = r"[一二两三四五六七八九十百千万]{1,16}分之" + CHINESE_NUMBER
_POWER = r"(?:\d+(?:\.\d+)?\s*[x×*]\s*)?10\s*(?:\^|\*\*)\s*[({]?-?\d+[)}]?"
NUMBER = (
    rf"(?:{_SIGN}{_NOT_INSIDE}{_POWER}"
    rf"|{_SIGN}{_NOT_INSIDE}(?:\d{{1,3}}(?:,\d{{3}})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])"
    rf"|{_SIGN}(?<![\w])\.\d+(?:e[+-]?\d+)?(?!\w)|{_CHINESE_SHARE}|负?{CHINESE_NUMBER}(?:点[零〇一二三四五六七八九]+)?)"
)
"""A number: 0.7, .5, 1e-4, 3×10^-4, 零点九, 百万分之五, with its sign."""


def parse_number(text: str) -> float:
    """The value of what INTEGER or NUMBER matched. Raises ValueError for anything else."""
    plain = text.strip()
    if plain.startswith(("-", "负")):
        return -parse_number(plain[1:])
    if "分之" in plain:
        below, _, above = plain.partition("分之")
        return parse_number(above) / parse_number(below)
    power = re.fullmatch(r"(?:(\d+(?:\.\d+)?)\s*[x×*]\s*)?10\s*(?:\^|\*\*)\s*[({]?(-?\d+)[)}]?", plain)
    if power is not None:
        return float(f"{power[1] or 1}e{power[2]}")  # so that 3×10^-4 is exactly 0.0003
    scale = 1
    if re.fullmatch(r"[\d,.]+\s?[k百千万]", plain):
        scale = _SCALES[plain[-1]]
        plain = plain[:-1].strip()
    if re.fullmatch(r"[\d,]*\.?\d+(?:e[+-]?\d+)?", plain):
        return round(float(plain.replace(",", "")) * scale, 6) if scale > 1 else float(plain.replace(",", ""))
    if plain and (plain[0] in _CHINESE_DIGITS or plain[0] in "十百千万"):
        return _chinese_number(plain)
    return _english_number(plain)


def _chinese_number(text: str) -> float:
    whole, _, fraction = text.partition("点")
    total = section = digit = 0
    for character in whole:
        if character in _CHINESE_DIGITS:
            digit = _CHINESE_DIGITS[character]
        elif character in _CHINESE_UNITS:
            section += (digit or 1) * _CHINESE_UNITS[character]
            digit = 0
        elif character == "万":
            total += (section + digit or 1) * 10_000
            section = digit = 0
        else:
            raise ValueError(f"{text!r} is not a number")
    decimals = "".join(str(_CHINESE_DIGITS[character]) for character in fraction)
    return float(f"{total + section + digit}.{decimals or 0}")


def _english_number(text: str) -> float:
    words = re.split(r"[\s-]+", text)
    total = 0
    for word in words:
        if word == "hundred":
            total = (total or 1) * 100
        elif word in _TENS:
            total += 10 * (_TENS.index(word) + 2)
        elif word in _ONES:
            total += _ONES.index(word)
        elif word != "a":
            raise ValueError(f"{text!r} is not a number")
    return float(total)


NEGATION = re.compile(
    r"(?:\b(?:not|no|without|never|don'?t|do not|instead of|except|other than)\b"
    r"|不要|不用|不需要|不能|不是|不|别|没有|除了)"
    r"\s*(?:\b(?:the|a|an|any|use|using|too|so|be|on|in)\b|使用|用|太|是|\s)*$",
    FLAGS,
)
"""What directly before a phrase turns its meaning round."""

_ENGLISH_WORDS = """
a about after all also am an are and as at be before begin big by can could do does during each environment env ensure
every everything fine-tune finetune finetuning fine-tuning for from get give go goal have help hello hi i if
improve in into is it its just keep language learn learning let like llm local long make max maximal maximum me
mine mix model models most my need new now of on one ones only optimise optimize or our out over per perform
please policy process rate reach reached reaches reinforcement rl run running set settings setup should simply
size small so some start stop than thanks that the their them then there these this those to total train trained
trainer training trains try until up upto us use used uses using value values via want was we when where which
while will with within would you your agent agents assistant bot grpo tool tool-using tools task tasks problem
problems question questions least exactly around approximately roughly different random generated own number
count amount budget first bundled default standard held-out test mode level difficulty data dataset file
device machine here again once time times ok okay hey well good it'll i'd i'll let's
"""
_ENGLISH_FILLERS = frozenset(_ENGLISH_WORDS.split())
"""English words that carry no setting by themselves."""

_CHINESE_WORDS = """
请 帮我 帮忙 帮 我们 我 你 想要 想 需要 要 希望 一个 一下 一 个 的 地 得 了
吧 呢 啊 用 使用 采用 利用 基于 通过 以 把 将 让 使 给 对 对于 在 上 上面 里
中 下 内 进行 做 跑 运行 启动 开始 执行 完成 训练集 训练 学习 强化学习 微调 优化
智能体 代理 助手 模型 小模型 语言模型 工具 环境 任务 题目 问题 题 道 条 组 数据
数据集 和 与 以及 并且 并 然后 再 同时 还有 另外 其中 为 是 设为 设置为 设置
设成 设定 配置 参数 直到 为止 直至 达到 到 至少 最多 不超过 大约 约 左右 总共
一共 共 每轮 每一轮 每 次 来 去 能 可以 应该 最终 最后 目标 模式 难度 级别 数量 数 规模
大小 就 都 也 就行 即可 好 谢谢 你好 麻烦 按 按照 根据 方式 自己 本地 测一下
看看 试试 试 起来 就停 停下 最大 少于 后 前 先 会 用来 关于 之后 停止
"""
_CHINESE_FILLERS = sorted(_CHINESE_WORDS.split(), key=len, reverse=True)
"""Chinese words that carry no setting by themselves, the longer ones first."""

_TOKEN = re.compile(
    r"[a-z0-9_][a-z0-9_.'/+-]*[a-z0-9_%]|[a-z0-9_%]|[\u3400-\u9fff]+|[<>=≥≤|&@#$^*~]+|[^\s\x00-\x7f]", FLAGS
)


_PHRASES = re.compile(
    r"\b(?:no|not) (?:more|less|fewer) than\b|\bas many as\b|\ba total of\b|\bin total\b|\bon average\b", FLAGS
)
"""Phrases that carry no setting although their words, one by one, might."""


def leftover_spans(folded: str, start: int, end: int) -> list[tuple[int, int]]:
    """Spans of `folded[start:end]` that carry meaning nobody understood, neighbouring words joined."""
    spans: list[tuple[int, int]] = []
    blanked = folded[:start] + _PHRASES.sub(lambda found: " " * len(found[0]), folded[start:end])
    for token in _TOKEN.finditer(blanked, start, end):
        for first, last in _meaningful(token.group(), token.start()):
            if spans and not folded[spans[-1][1] : first].strip(" -_=:"):
                spans[-1] = (spans[-1][0], last)
            else:
                spans.append((first, last))
    return spans


def _meaningful(word: str, offset: int) -> list[tuple[int, int]]:
    if word in _ENGLISH_FILLERS or not any(c.isalnum() or c in "<>≥≤%" for c in word):
        return []
    if not "\u3400" <= word[0] <= "\u9fff":
        return [(offset, offset + len(word))]
    spans: list[tuple[int, int]] = []
    position = 0
    while position < len(word):
        filler = next((f for f in _CHINESE_FILLERS if word.startswith(f, position)), None)
        if filler is not None:
            position += len(filler)
            continue
        if spans and spans[-1][1] == offset + position:
            spans[-1] = (spans[-1][0], offset + position + 1)
        else:
            spans.append((offset + position, offset + position + 1))
        position += 1
    return spans
