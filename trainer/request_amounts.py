"""How people say amounts: problems, epochs, steps, episodes, groups, batches, and how often something happens."""

from trainer.request_grammar import (
    COUNTER,
    INT,
    IS,
    LAPS,
    NOTHING,
    NUM,
    ROUND,
    ROUNDS,
    constant,
    counted,
    integer,
    named,
    ranges,
    rule,
    word,
)
from trainer.request_words import parse_number

_PROBLEM = r"problems?|tasks?|questions?|prompts?|examples?|exercises|问题|题目|习题|任务|题|样本"
_EPISODE_SUFFIX = r"(?:\s*(?:per|each|for each|for every|a)\s*(?:problem|task|question|prompt|group|step)?)?"

_VALIDATES = r"validat(?:e|es|ion|ing)|evaluat(?:e|es|ing)|eval"
_SAVES = r"sav(?:e|es|ing)(?: (?:a |the )?(?:model|checkpoint))?|checkpoints?|checkpointing"
_EVERY = rf"(?:once )?every\s+{INT}\s*(?:optimi[sz]er |training )?steps?"
_EVERY_ZH = rf"每\s*(?:隔\s*)?{INT}\s*(?:个\s*)?步"

_STEP = r"(?:training |optimi[sz]er )?(?:steps?|updates?|batch(?:es)?)"
_EACH = r"(?:per|each|every|in each|in every|for each|for every|an?)"
_EACH_STEP_ZH = r"每\s*(?:一\s*)?(?:个\s*)?(?:步|次更新|次|step|update|batch)"
_ATTEMPTS = r"(?:training )?(?:episodes?|rollouts?|samples?|completions?|generations?|attempts?|trajectories)"

_PER_STEP = [
    rule(
        "batch_size",
        rf"{INT}\s*{word('problems?|prompts?|questions?|tasks?|groups?')}\s*{_EACH}\s*{_STEP}(?![a-z])",
        integer,
    ),
    rule(
        "batch_size",
        rf"{word('(?:per|each|every|in each|in every)')}\s*{_STEP}\s*(?:uses|has|with|takes)?{IS}{INT}\s*"
        rf"{word('problems?|prompts?|questions?|tasks?|groups?')}",
        integer,
    ),
    rule("batch_size", rf"{_EACH_STEP_ZH}\s*(?:使用|取)?{IS}{INT}\s*(?:个|道|条)?\s*(?:问题|题目|任务|题|组)", integer),
    rule("batch_size", rf"{INT}\s*(?:个|道)?\s*(?:问题|题目|任务|题|组)\s*[/每]\s*步", integer),
    # episodes of a step and steps of an epoch follow from other fields: said as what they are, they set none
    rule(NOTHING, rf"{INT}\s*{word(_ATTEMPTS)}\s*{_EACH}\s*{_STEP}(?![a-z])"),
    rule(NOTHING, rf"{word('(?:per|each|every|in each|in every)')}\s*{_STEP}{IS}{INT}\s*{word(_ATTEMPTS)}"),
    rule(
        NOTHING,
        rf"{_EACH_STEP_ZH}\s*(?:采样|生成|跑)?{IS}{INT}\s*(?:局|(?:个|条|次)\s*(?:轨迹|样本|回答|采样|生成)|条)",
    ),
    rule(NOTHING, rf"{INT}\s*{word('(?:training )?steps?')}\s*{_EACH}\s*{word('epochs?|pass(?:es)?|rounds?')}"),
    rule(NOTHING, rf"{word('(?:per|each|every|in each|in every) (?:epoch|pass|round)')}{IS}{INT}\s*{word('steps?')}"),
    rule(NOTHING, rf"每\s*(?:一\s*)?(?:个\s*)?(?:轮|epoch)\s*(?:训练|跑)?{IS}{INT}\s*(?:个\s*)?步"),
]

_INTERVALS = [
    rule("validate_every", rf"{word(_VALIDATES)}\s*(?:the model\s*)?{_EVERY}", integer),
    rule("validate_every", rf"{_EVERY},?\s*{word(_VALIDATES)}", integer),
    rule("validate_every", rf"{_EVERY_ZH}\s*(?:做|进行)?\s*(?:一次)?(?:验证|评估)(?:一次|一下)?", integer),
    rule(
        "validate_every",
        r"(?:without|no|skip(?: the)?) validations?|(?:不|不要|不用|跳过)\s*(?:做|进行)?验证",
        constant(0),
    ),
    rule("save_every", rf"{word(_SAVES)}\s*{_EVERY}", integer),
    rule("save_every", rf"{_EVERY},?\s*{word(_SAVES)}", integer),
    rule("save_every", rf"{_EVERY_ZH}\s*(?:保存|存)(?:一次|一下)?(?:检查点|模型|存档)?(?:一次)?", integer),
    rule("warmup_steps", rf"{word('(?:lr )?warm-? ?up')}(?:\s*(?:of|for|over|=|:))?\s*{INT}(?:\s*steps?)?", integer),
    rule("warmup_steps", rf"{INT}\s*(?:steps? (?:of )?)?{word('warm-? ?up')}(?:\s*steps?)?", integer),
    rule("warmup_steps", rf"(?:预热|热身)(?:步数)?{IS}{INT}\s*(?:个\s*)?步?", integer),
    rule("warmup_steps", rf"{INT}\s*步(?:的)?(?:预热|热身)", integer),
    rule(NOTHING, rf"(?:[a-z]+\s+)?{_EVERY}"),
    rule(NOTHING, _EVERY_ZH),
]

AMOUNTS = [
    *counted(
        "test_problems",
        r"(?:held-out )?test (?:problems?|tasks?|questions?)|(?:道|个)?测试(?:题目|问题|题)(?:来)?(?:评估|测试)?",
    ),
    rule("test_problems", rf"测试(?:集|用)?\s*(?:题)?{IS}{INT}\s*(?:个|道)?\s*(?:题|问题)?", integer),
    rule(
        "test_problems",
        rf"{word('(?:test|evaluate) on|test set(?: of)?')}\s*{INT}\s*(?:held-out|unseen)?\s*{word(_PROBLEM)}?",
        integer,
    ),
    rule("test_problems", rf"{INT}\s*{word('held-out|unseen')}\s*(?:test\s*)?{word(_PROBLEM)}", integer),
    *counted("validation_problems", r"validation (?:problems?|tasks?|questions?)|(?:道|个)?验证(?:题目|问题|题)"),
    rule("validation_problems", rf"{word('validation(?: set)?(?: of)?')}{IS}{INT}\s*{word(_PROBLEM)}", integer),
    rule("validation_problems", rf"验证(?:集|用)\s*(?:题)?{IS}{INT}\s*(?:个|道)?\s*(?:题|问题)?", integer),
    *counted("problems", _PROBLEM, gap=True),
    *counted("epochs", r"epochs?|passes(?: over the data)?|遍|轮次|轮训练|轮(?:的)?训练", parse_number, value=NUM),
    rule(
        "epochs",
        rf"(?:训练|跑|学习)\s*{INT}\s*(?:个\s*)?轮(?!优化|演进|进化|迭代|对话|次)",
        parse_number,
    ),
    rule(LAPS, rf"{INT}\s*(?:个\s*)?轮(?!优化|演进|进化|迭代|对话|次|训练)", integer),
    rule(ROUNDS, rf"{INT}\s*(?:个\s*)?(?:轮|次)\s*(?:自动)?(?:优化|演进|进化|迭代)", integer),
    rule(ROUNDS, rf"(?:优化|演进|进化|迭代|evolve)\s*(?:for\s+)?{INT}\s*(?:轮|rounds?)", integer),
    rule(ROUNDS, rf"{INT}\s*{word('rounds')}(?:\s+of\s+(?:evolution|optimi[sz]ation|evolving))?", integer),
    rule(ROUNDS, rf"{word('rounds')}\s*[=:]\s*{INT}", integer),
    rule("epochs", rf"{INT}\s*{word('rounds')}\s+of\s+training", parse_number),
    rule(ROUND, rf"{word('round')}\s*[=:]?\s*{INT}(?:\s*\|)?", integer),
    rule(ROUND, rf"第\s*{INT}\s*轮(?:\s*\|)?", integer),
    *counted("max_steps", r"(?:optimi[sz]er |training |gradient |update )?(?:steps?|updates?)|步(?:训练)?"),
    rule("max_steps", rf"步数{IS}{INT}", integer),
    *counted("max_episodes", r"(?:training )?episodes?(?:\s+(?:in total|total|altogether))?|局|条轨迹"),
    *counted("max_turns", r"(?:agent |model )?turns?|agent steps?|(?:轮|个)?(?:对话|回合)"),
    *counted("max_completion_tokens", r"(?:completion )?tokens?|个?词元"),
    rule(
        "max_completion_tokens",
        rf"(?:{word('(?:max(?:imum)? )?completion(?: length| tokens| cap| limit)?|token (?:cap|limit)')}"
        rf"|(?:最大|最长)?(?:生成|回答|输出)?长度(?:上限)?){IS}{INT}(?:\s*tokens?|\s*个?词元)?",
        integer,
    ),
    rule(
        "num_generations",
        rf"{INT}{COUNTER}{word('generations?|samples?|rollouts?|completions?|attempts?|episodes?')}"
        r"\s*(?:per|for each|for every|each)\s*(?:problem|task|question|prompt|group)?(?![a-z])",
        integer,
    ),
    *counted("num_generations", r"generations?|samples|rollouts|completions|个?采样|次采样|个?生成|次生成"),
    rule("num_generations", rf"{word('g|group size|组大小|采样数|生成数')}{IS}{INT}", integer),
    rule(
        "num_generations",
        rf"每\s*(?:个|道|组)?\s*(?:问题|题目|题|组)?\s*(?:采样|生成|尝试){IS}{INT}\s*(?:个|次|条|份)?\s*(?:回答|样本|轨迹)?",
        integer,
    ),
    rule(
        "num_generations",
        rf"每\s*(?:个|道|组)?\s*(?:问题|题目|题|组)\s*{INT}\s*(?:个|次|条|份)?\s*(?:采样|生成|尝试|回答|样本|轨迹)?",
        integer,
    ),
    rule("num_generations", rf"(?:采样|生成)\s*{INT}\s*(?:个|次|条|份)\s*(?:回答|样本|轨迹)?", integer),
    *named(
        "batch_size", r"batch(?:[ _-]?size)?|bs|批大小|批次大小|批量大小|批量|批次|每批", INT, integer, reverse=False
    ),
    *_PER_STEP,
    rule(
        "num_generations",
        rf"{word('groups? of')}\s*{INT}(?:\s*{word('generations?|samples?|rollouts?|episodes?')})?",
        integer,
    ),
    *named("processes", r"(?:worker |training )?processes|个?进程", INT, integer),
    *named("seed", r"(?:random )?seed|随机种子|种子", INT, integer, reverse=False),
    *named("threads", r"(?:cpu )?threads?|cores?|个?线程|核", INT, integer),
    *_INTERVALS,
    *ranges(
        r"problems|epochs|steps|episodes|batch(?:[ _-]?size)?|group size|generations|题目数量|步数|批大小|组大小",
        rf"{_PROBLEM}|epochs?|(?:training )?steps?|episodes?|generations|rollouts|samples|轮|步|遍",
    ),
]
